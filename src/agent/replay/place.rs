//! A place in a transcript, by which the script tells what comes next.

use crate::wire::transcript::Entry;

/// A place in a transcript, counted in entries. The counts after `replies` are those since the last reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Replies and summaries of the model.
    pub(super) replies: usize,
    pub(super) results: usize,
    pub(super) turn_ends: usize,
    /// Decisions about calls.
    pub(super) decisions: usize,
    /// Messages and prompts.
    pub(super) delivered: usize,
    /// Processes, in the whole transcript.
    pub(super) sessions: usize,
}

impl Place {
    /// Follows an entry.
    pub(super) fn pass(&mut self, entry: &Entry) {
        match entry {
            Entry::Session { .. } => self.sessions += 1,
            Entry::Assistant { .. } | Entry::Compacted { .. } => {
                *self =
                    Self { replies: self.replies + 1, sessions: self.sessions, ..Self::default() };
            }
            Entry::ToolResult { .. } => self.results += 1,
            Entry::TurnEnd { .. } => self.turn_ends += 1,
            Entry::Decision(_) => self.decisions += 1,
            Entry::Mail { .. } | Entry::User { .. } => self.delivered += 1,
            Entry::ToolStart { .. }
            | Entry::Request { .. }
            | Entry::Subagent(_)
            | Entry::Interrupt { .. }
            | Entry::Model { .. }
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::Unknown => {}
        }
    }

    /// Whether so many results, decisions and turn ends have passed since the last reply.
    pub(super) fn has_passed(&self, other: &Self) -> bool {
        let has_process = self.sessions >= other.sessions;
        let has_call = self.results >= other.results && self.decisions >= other.decisions;
        has_process && has_call && self.turn_ends >= other.turn_ends
    }
}
