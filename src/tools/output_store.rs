//! Where the whole of a result goes that is too long to be shown.
//!
//! It knows when to begin, and what to say of it; where files are is known to the store, what is a secret
//! to whoever made the [`OutputStore`].

use crate::store::TeamDir;
use crate::store::output_spill::{LONGEST, MOST, OutputSpill};
use crate::wire::AgentName;
use std::rc::Rc;

/// Takes secrets out of text that comes in pieces: what may be written, and what may turn out to be the
/// beginning of a secret.
type Censor = Rc<dyn Fn(String) -> (String, String)>;

/// Keeps the results of one agent.
#[derive(Clone)]
pub(crate) struct OutputStore {
    dir: TeamDir,
    name: AgentName,
    censor: Censor,
}

impl std::fmt::Debug for OutputStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("OutputStore").field("name", &self.name).finish_non_exhaustive()
    }
}

impl OutputStore {
    /// Of this agent; `censor` is asked for each piece, what it held back before the next one.
    pub(crate) fn new(
        dir: TeamDir,
        name: AgentName,
        censor: impl Fn(String) -> (String, String) + 'static,
    ) -> Self {
        Self { dir, name, censor: Rc::new(censor) }
    }

    /// In a team folder below this one; nothing is a secret.
    #[cfg(test)]
    pub(super) fn below(folder: &std::path::Path) -> Self {
        let dir = TeamDir::create(&folder.join(".team")).unwrap();
        Self::new(dir, AgentName::lead(), |text| (text, String::new()))
    }

    /// For the next result.
    pub(super) fn keeping(&self) -> StoredOutput {
        StoredOutput { output_store: self.clone(), state: State::Short, held: String::new() }
    }
}

/// One result on its way.
#[derive(Debug)]
pub(super) struct StoredOutput {
    output_store: OutputStore,
    state: State,
    /// What may turn out to be the beginning of a secret.
    held: String,
}

#[derive(Debug)]
enum State {
    /// All of it can be shown so far.
    Short,
    OutputSpill(OutputSpill),
    /// Why it could not be kept.
    Failed(String),
}

impl StoredOutput {
    /// Takes in more of a result that is too long to be shown.
    pub(super) fn push(&mut self, text: &str) {
        if matches!(self.state, State::Short) {
            self.state = match OutputSpill::begin(&self.output_store.dir, &self.output_store.name) {
                Ok(kept) => State::OutputSpill(kept),
                Err(why) => State::Failed(why.to_string()),
            };
        }
        let text = std::mem::take(&mut self.held) + text;
        let (clean, held) = (self.output_store.censor)(text);
        self.held = held;
        self.write(&clean);
    }

    fn write(&mut self, text: &str) {
        if let State::OutputSpill(kept) = &mut self.state
            && let Err(why) = kept.push(text)
        {
            // A part that looks like the whole would mislead.
            let state = std::mem::replace(&mut self.state, State::Failed(why.to_string()));
            if let State::OutputSpill(kept) = state {
                kept.discard();
            }
        }
    }

    /// Where the whole is, in words for the model.
    pub(super) fn finish(mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.write(&held);
        match &self.state {
            State::Short => "ask for less at a time".into(),
            State::Failed(why) => {
                tracing::warn!(why, "a long result could not be kept");
                "the whole could not be kept; ask for less at a time".into()
            }
            State::OutputSpill(kept) => {
                let path = kept.path();
                let workspace = self.output_store.dir.workspace();
                let path = path.strip_prefix(workspace).unwrap_or(path).display();
                let what = if kept.is_cut() {
                    format!("its first {} MiB are", LONGEST / 1024 / 1024)
                } else {
                    "all of it is".into()
                };
                format!(
                    "{what} in {path} (until {MOST} later ones): read_file it by offset and limit, \
                     or search it with bash"
                )
            }
        }
    }
}
