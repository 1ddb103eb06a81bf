//! Records the changes of a command for undo, by a look before and after it.
//!
//! Git runs for this outside of walls, so not in a clone, whose configuration belongs to its agent. The changes of a command
//! that is interrupted are found at the end of the turn.

use crate::store::StoreError;
use crate::store::asynchronous::offload;
use crate::tools::registry::ToolParts;
use crate::undo::recorder::Recorder;
use std::sync::Arc;

const IN_CLONE: &str =
    "changes made by commands are not covered in a clone: `team work diff` shows them";

pub(in crate::tools) struct UndoGuard {
    recorder: Arc<Recorder>,
}

impl UndoGuard {
    /// Looks at the files of the workspace. A failure is logged: the changes are then not covered.
    pub(in crate::tools) async fn before(parts: &ToolParts) -> Self {
        let recorder = Arc::clone(parts.files.recorder());
        let folder = parts.files.workspace.path().to_owned();
        let environment = parts.commands.env.clone();
        let is_covered = if parts.work.is_some() { Err(IN_CLONE) } else { Ok(()) };
        let guard = Self { recorder: Arc::clone(&recorder) };
        log(offload(move || recorder.begin_command(&folder, &environment, is_covered)).await);
        guard
    }

    /// Records what has changed since. No process of the command is left.
    pub(in crate::tools) async fn after(self) {
        log(offload(move || self.recorder.end_command()).await);
    }
}

fn log(done: Result<(), StoreError>) {
    if let Err(why) = done {
        tracing::warn!(%why, "the changes of a command were not recorded for undo");
    }
}
