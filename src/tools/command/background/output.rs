//! The output of one background command: its end in memory, and its first part in a file.

use crate::store::output_spill::OutputSpill;
use crate::tools::command::output::{OutputStore, decoded};

/// The size of the end that is kept in memory, in bytes. It is more than a model sees at once.
pub(super) const KEPT_BYTES: usize = 48 * 1024;

pub(super) struct CommandLog {
    store: OutputStore,
    /// The file; `None` if it could not be written.
    spill: Option<OutputSpill>,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    /// The end of the text that is held back, since it may be the beginning of a secret.
    held: String,
    kept: String,
    /// The size of the whole output, without secrets.
    total: u64,
}

/// New output of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewOutput {
    pub(super) text: String,
    /// The number of bytes before the text that are not kept in memory.
    pub(super) skipped: u64,
}

impl CommandLog {
    /// Creates the output of a new command.
    pub(super) fn new(store: OutputStore, spill: Option<OutputSpill>) -> Self {
        let (partial, held, kept) = (Vec::new(), String::new(), String::new());
        Self { store, spill, partial, held, kept, total: 0 }
    }

    /// Creates the output of a command of an earlier process, of which this is the end.
    pub(super) fn of_earlier(store: OutputStore, kept: String, total: u64) -> Self {
        Self { kept, total, ..Self::new(store, None) }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let text = std::mem::take(&mut self.held) + &decoded(&mut self.partial, bytes);
        let (clean, held) = (self.store.redact)(text);
        self.held = held;
        self.append(&clean);
    }

    /// Appends what was held back, since no more output follows.
    pub(super) fn finish(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.append(&held);
        if !std::mem::take(&mut self.partial).is_empty() {
            self.append("\u{fffd}");
        }
        self.spill = None;
    }

    fn append(&mut self, clean: &str) {
        if let Some(Err(why)) = self.spill.as_mut().map(|spill| spill.push(clean)) {
            tracing::warn!(%why, "the output of a background command is no longer stored");
            self.spill = None;
        }
        self.total += clean.len() as u64;
        self.kept.push_str(clean);
        // It is not moved for each piece.
        if self.kept.len() > 2 * KEPT_BYTES {
            let from = self.kept.ceil_char_boundary(self.kept.len() - KEPT_BYTES);
            self.kept.drain(..from);
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the output after its first `seen` bytes; of more than `most` bytes, the end.
    pub(super) fn since(&self, seen: u64, most: usize) -> NewOutput {
        let new = self.total.saturating_sub(seen);
        let fits = usize::try_from(new).unwrap_or(usize::MAX).min(most).min(self.kept.len());
        let from = self.kept.ceil_char_boundary(self.kept.len() - fits);
        let text = self.kept.get(from..).unwrap_or_default().to_owned();
        NewOutput { skipped: new.saturating_sub(text.len() as u64), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_output_is_what_was_not_seen_and_of_much_output_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = CommandLog::new(OutputStore::below(folder.path()), None);
        log.push("one\n\u{e4}".as_bytes().split_last().unwrap().1);
        assert_eq!((log.total(), log.since(0, 99).text), (4, "one\n".into()));
        log.push(&[0xa4]);
        assert_eq!(log.since(4, 99), NewOutput { text: "\u{e4}".into(), skipped: 0 });
        assert_eq!(log.since(0, 1), NewOutput { text: String::new(), skipped: 6 });
        let line = "x".repeat(1023) + "\n";
        (0..200).for_each(|_| log.push(line.as_bytes()));
        let new = log.since(6, KEPT_BYTES);
        assert_eq!(new.text.len(), KEPT_BYTES);
        assert_eq!(new.skipped + new.text.len() as u64, 200 * 1024);
        log.push(&[0xc3]);
        log.finish();
        assert_eq!(log.since(6 + 200 * 1024, 99).text, "\u{fffd}");
    }
}
