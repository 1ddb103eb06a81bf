//! Storage of output that is too long to be shown.
//!
//! This file decides when to store and what the model is told. `store::output_spill` owns the files, the
//! creator of the [`OutputStore`] knows the secrets.

use crate::store::TeamDir;
use crate::store::output_spill::{LONGEST, MOST, OutputSpill};
use crate::wire::AgentName;
use std::rc::Rc;

/// Redacts text that comes in pieces. Gives the redacted text, and the end of the text that may be the
/// beginning of a secret.
type RedactPiece = Rc<dyn Fn(String) -> (String, String)>;

/// Stores the output of one agent's commands.
#[derive(Clone)]
pub(crate) struct OutputStore {
    dir: TeamDir,
    name: AgentName,
    redact: RedactPiece,
}

impl OutputStore {
    /// The store of this agent. `redact` gets each piece together with the end that it held back before.
    pub(crate) fn new(
        dir: TeamDir,
        name: AgentName,
        redact: impl Fn(String) -> (String, String) + 'static,
    ) -> Self {
        Self { dir, name, redact: Rc::new(redact) }
    }

    /// A store in a new team folder below `folder`, without secrets.
    #[cfg(test)]
    pub(in crate::tools) fn below(folder: &std::path::Path) -> Self {
        let dir = TeamDir::create(&folder.join(".team")).unwrap();
        Self::new(dir, AgentName::lead(), |text| (text, String::new()))
    }

    /// Begins one output.
    pub(super) fn begin(&self) -> StoredOutput {
        StoredOutput { output_store: self.clone(), spill: None, held: String::new() }
    }
}

/// One output.
pub(super) struct StoredOutput {
    output_store: OutputStore,
    /// `None` while it is short enough to be shown as a whole; or why it could not be stored.
    spill: Option<Result<OutputSpill, String>>,
    /// An end of the text that may be the beginning of a secret.
    held: String,
}

impl StoredOutput {
    /// Appends to an output that is too long to be shown.
    pub(super) fn push(&mut self, text: &str) {
        let OutputStore { dir, name, redact } = &self.output_store;
        let begin = || OutputSpill::begin(dir, name).map_err(|why| why.to_string());
        self.spill.get_or_insert_with(begin);
        let (clean, held) = redact(std::mem::take(&mut self.held) + text);
        self.held = held;
        self.write(&clean);
    }

    fn write(&mut self, text: &str) {
        if let Some(Ok(spill)) = &mut self.spill
            && let Err(why) = spill.push(text)
            && let Some(Ok(spill)) = self.spill.replace(Err(why.to_string()))
        {
            // An incomplete file would pass for a complete one.
            spill.discard();
        }
    }

    /// Tells the model where the output is.
    pub(super) fn finish(mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.write(&held);
        match &self.spill {
            None => "ask for less at a time".into(),
            Some(Err(why)) => {
                tracing::warn!(why, "a long output could not be stored");
                "the whole could not be kept; ask for less at a time".into()
            }
            Some(Ok(spill)) => {
                let path = spill.path();
                let workspace = self.output_store.dir.workspace();
                let path = path.strip_prefix(workspace).unwrap_or(path).display();
                let what = if spill.is_cut() {
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
