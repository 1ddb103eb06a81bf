//! The end of a subagent: its result in words, and the last line of its transcript.

use crate::wire::chat::Usage;
use crate::wire::message::Outcome;
use crate::wire::transcript::{Entry, Line};

/// The reason for which a subagent is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum EndReason {
    /// A person has interrupted its caller, which is told.
    Interrupted,
    /// The process of its caller ends.
    Stopped,
}

impl EndReason {
    /// Returns the result of a subagent that is cancelled; empty if its caller learns of the end in another way.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Interrupted => "",
            Self::Stopped => "its work was cut off: the agent that had started it was stopped",
        }
    }
}

/// The end of a subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubagentEnd {
    pub(super) outcome: Outcome,
    /// The last text, or the reason for which it ended.
    pub(super) text: String,
    pub(super) calls: u64,
    pub(super) tokens: u64,
}

impl SubagentEnd {
    /// Returns the end that a transcript tells; `None` if the subagent has not ended.
    pub(super) fn in_lines(lines: &[Line]) -> Option<Self> {
        let (outcome, text) = lines.iter().find_map(|line| {
            let Entry::TurnEnd { outcome, report, .. } = &line.entry else { return None };
            let text = report.as_ref().map(|report| report.text.clone());
            Some((*outcome, text.unwrap_or_default()))
        })?;
        let used = Used::in_lines(lines);
        Some(Self { outcome, text, calls: used.calls, tokens: used.tokens })
    }

    /// Returns the result for the caller, with a line about the subagent.
    pub(super) fn in_words(&self, id: &str) -> String {
        let Self { text, calls, tokens, .. } = self;
        let end = match self.outcome {
            Outcome::Done if text.is_empty() => "It ended without a text.",
            Outcome::Done => text,
            Outcome::Failed => &format!("It failed: {text}"),
            Outcome::Interrupted => &format!("It did not finish: {text}"),
        };
        format!("{end}\n[subagent {id}: {calls} model calls, {tokens} tokens]")
    }
}

/// The model calls and tokens of a subagent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) calls: u64,
    pub(super) tokens: u64,
}

impl Used {
    pub(super) fn in_lines(lines: &[Line]) -> Self {
        let mut used = Self::default();
        for Line { entry, .. } in lines {
            if let Entry::Assistant { usage, .. } | Entry::Compacted { usage, .. } = entry {
                used.add(*usage);
            }
        }
        used
    }

    pub(super) fn add(&mut self, usage: Usage) {
        self.calls += 1;
        self.tokens = self.tokens.saturating_add(usage.total());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::transcript::TurnReport;

    #[test]
    fn an_end_is_that_of_the_transcript_and_says_how_it_came() {
        let line = |entry| Line { at: 1.0.into(), entry };
        let usage = Usage { input_tokens: 40, output_tokens: 2, ..Usage::default() };
        let summary = Entry::Compacted {
            summary: String::new(),
            situation: String::new(),
            usage,
            context_tokens: None,
        };
        let mut lines = vec![line(summary)];
        assert_eq!(SubagentEnd::in_lines(&lines), None);
        let report = TurnReport { id: "system:1".into(), text: "Found it.".into() };
        for (outcome, words) in [
            (Outcome::Done, "Found it.\n"),
            (Outcome::Failed, "It failed: Found it.\n"),
            (Outcome::Interrupted, "It did not finish: Found it.\n"),
        ] {
            let report = Some(report.clone());
            lines.truncate(1);
            lines.push(line(Entry::TurnEnd { outcome, rounds: 1, report, cut_off: false }));
            let told = SubagentEnd::in_lines(&lines).unwrap().in_words("alice:1");
            assert_eq!(told, format!("{words}[subagent alice:1: 1 model calls, 42 tokens]"));
        }
    }
}
