//! Detects a model that repeats the same call with the same result, model call after model call. Small models do
//! not notice such a loop by themselves, and each repetition costs tokens.

use crate::tools::{Call, find};
use crate::wire::tool::{Repetition, Signal};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The number of repetitions in one turn from which on the result holds a note for the model.
const TELL_FROM: u32 = 3;

/// The number of repetitions at which a turn ends.
const END_AT: u32 = 10;

/// The beginning and the end of the note for the model.
const NOTE: [&str; 2] = [
    "\n[team: the same call returned the same result ",
    " times in this turn; do something else, or end your turn with what you know]",
];

/// Returns a result without the note about repetitions.
pub(in crate::agent) fn without_note(result: &str) -> &str {
    let [begin, end] = NOTE;
    let noted = result.strip_suffix(end).and_then(|noted| noted.rsplit_once(begin));
    noted.map_or(result, |(result, _)| result)
}

#[derive(Debug, Default)]
pub(super) struct LoopDetector {
    seen: BTreeMap<u64, CallCount>,
    end: Option<String>,
}

/// The number of times that a call had one result.
#[derive(Debug, Clone, Copy, Default)]
struct CallCount {
    /// The number of the last reply that contained the call.
    round: u32,
    times: u32,
}

impl LoopDetector {
    /// Counts the result of a call in the model's `round`-th reply. Returns the result for the model, with a note
    /// if it is a repetition.
    pub(super) fn look(
        &mut self,
        round: u32,
        call: &Call,
        result: String,
        is_error: bool,
    ) -> String {
        let spec = find(&call.name);
        // The turn continues after such a call only if mail has arrived.
        if !is_error && spec.is_some_and(|spec| spec.signal == Signal::EndsTurn) {
            return result;
        }
        let mut hasher = DefaultHasher::new();
        (&call.name, call.input.to_string(), &result, is_error).hash(&mut hasher);
        let seen = self.seen.entry(hasher.finish()).or_default();
        if seen.round != round {
            *seen = CallCount { round, times: seen.times + 1 };
        }
        let (times, tool) = (seen.times, &call.name);
        let counts = match spec.map(|spec| spec.repetition) {
            Some(Repetition::Failures) => is_error,
            Some(Repetition::Any) | None => true,
        };
        if times >= END_AT && counts {
            let same = if is_error { format!(": {result}") } else { ".".into() };
            self.end = Some(format!(
                "because the same call of {tool} returned the same result {times} times{same}"
            ));
        }
        if times < TELL_FROM {
            return result;
        }
        let [begin, end] = NOTE;
        format!("{result}{begin}{times}{end}")
    }

    /// Returns the reason for which the turn must end, if it must.
    pub(super) fn end(&self) -> Option<String> {
        self.end.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(tool: &str, input: u32) -> Call {
        Call { id: "1".into(), name: tool.into(), input: json!({ "input": input }) }
    }

    #[test]
    fn repetitions_are_counted_once_per_model_call() {
        let mut loop_detector = LoopDetector::default();
        for (round, tool, input, result, is_told) in [
            (1, "list_teammates", 1, "alice", false),
            (1, "list_teammates", 1, "alice", false), // one reply may ask for much
            (1, "list_teammates", 1, "alice", false),
            (2, "list_teammates", 1, "alice", false),
            (3, "send_message", 1, "Sent.", false),
            (4, "list_teammates", 1, "alice", true),
            (5, "list_teammates", 1, "bob", false), // another result
            (6, "list_teammates", 2, "alice", false), // another call
        ] {
            let told = loop_detector.look(round, &call(tool, input), result.into(), false);
            let is_expected = if is_told {
                told.starts_with("alice\n[team: ") && told.contains("3 times")
            } else {
                told == result
            };
            assert!(is_expected, "{round}: {told}");
        }
        assert_eq!(loop_detector.end(), None);
    }

    #[test]
    fn the_note_is_taken_off_a_result() {
        let mut loop_detector = LoopDetector::default();
        for round in 1..END_AT {
            let told = loop_detector.look(round, &call("bash", 1), "no\n".into(), false);
            assert_eq!(without_note(&told), "no\n");
            assert_eq!(told == "no\n", round < TELL_FROM);
        }
    }

    #[test]
    fn a_call_that_ends_the_turn_is_no_repetition() {
        let mut loop_detector = LoopDetector::default();
        for round in 1..=END_AT {
            let told = loop_detector.look(round, &call("idle", 1), "Idle.".into(), false);
            assert_eq!((told.as_str(), loop_detector.end()), ("Idle.", None));
        }
    }

    #[test]
    fn ten_repetitions_end_the_turn_but_not_of_commands_that_succeed() {
        for (tool, is_error, end) in [
            ("bash", false, None),
            ("bash", true, Some("bash returned the same result 10 times: no")),
            ("write_file", false, Some("write_file returned the same result 10 times.")),
            ("idle", true, Some("idle returned the same result 10 times: no")),
        ] {
            let mut loop_detector = LoopDetector::default();
            for round in 1..=END_AT {
                assert_eq!(loop_detector.end(), None);
                loop_detector.look(round, &call(tool, 1), "no".into(), is_error);
            }
            let why = loop_detector.end();
            assert_eq!(why.is_some(), end.is_some(), "{tool}: {why:?}");
            assert!(why.unwrap_or_default().ends_with(end.unwrap_or_default()), "{tool}");
        }
    }
}
