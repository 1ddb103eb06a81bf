//! Records the changes of a command for undo, by a look before and after it.
//!
//! Git runs for this outside of walls, so not before the files that a command has planted for git are quarantined, and in a
//! clone without its configuration, which belongs to the agent.

use super::git_guard::NextLook;
use crate::store::StoreError;
use crate::store::asynchronous::offload;
use crate::tools::registry::ToolParts;
use crate::undo::look::Checkout;
use crate::undo::recorder::Recorder;
use crate::work::clone::first_index;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(in crate::tools) struct UndoGuard {
    recorder: Arc<Recorder>,
    /// The id of the look; `None` if there is none.
    id: Option<u64>,
}

impl UndoGuard {
    /// Looks at the files of the workspace or the clone. A failure is logged: the changes are then not covered.
    pub(in crate::tools) async fn before(parts: &ToolParts) -> Self {
        let recorder = Arc::clone(parts.files.recorder());
        let checkout = checkout(parts);
        let environment = parts.commands.env.clone();
        let own = Arc::clone(&recorder);
        let begun = move || own.begin_command(&checkout, &environment);
        let id = log(offload(begun).await).flatten();
        Self { recorder, id }
    }

    /// Returns the work that records what has changed if the command is interrupted.
    pub(super) fn look(&self) -> NextLook {
        let (recorder, id) = (Arc::clone(&self.recorder), self.id);
        Box::new(move || {
            if let Some(id) = id {
                log(recorder.end_command(id)).unwrap_or_default();
            }
        })
    }

    /// Records what has changed since. No process of the command is left.
    pub(in crate::tools) async fn after(self) {
        let Self { recorder, id } = self;
        let Some(id) = id else { return };
        log(offload(move || recorder.end_command(id)).await).unwrap_or_default();
    }
}

/// Returns the files in which commands of an agent make changes.
pub(super) fn checkout(parts: &ToolParts) -> Checkout {
    match &parts.work {
        Some(work) => Checkout::Clone {
            top: PathBuf::from(&work.place.path),
            repository: PathBuf::from(&work.place.repository),
            index: first_index(Path::new(&work.place.path)),
        },
        None => Checkout::Around(parts.files.workspace.path().to_owned()),
    }
}

fn log<T>(done: Result<T, StoreError>) -> Option<T> {
    let report = |why: &StoreError| {
        tracing::warn!(%why, "the changes of a command were not recorded for undo");
    };
    done.inspect_err(report).ok()
}
