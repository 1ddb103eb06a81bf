//! The path of a message for people: one row per step.

use super::messages;
use super::sanitize::one_line;
use super::view::View;
use crate::view::trace::{Step, What};
use crate::wire::message::Message;

/// The step in words, after the name of its agent.
fn words(what: What) -> &'static str {
    match what {
        What::Called => "calls the tool",
        What::Reported => "ends a turn and reports it",
        What::Sent => "sends it to",
        What::Told => "is told",
        What::Waits => "has it in the inbox, unread",
        What::Claimed => "has taken it from the inbox, not yet acted on",
        What::Processed => "acted on the batch it came with",
        What::TakenIn => "takes it in",
        What::Read => "replies",
        What::TurnEnded => "ends the turn",
        What::Answered => "answers",
        What::Dead => "has it among the dead messages",
        What::Logged => "logs",
    }
}

/// All steps of a message.
pub(crate) fn story(id: &str, message: Option<&Message>, steps: &[Step], view: &View) -> String {
    let width = view.width.unwrap_or(200);
    let mut text = format!("{}\n", view.palette.bold(&one_line(id, width)));
    if let Some(message) = message {
        text.push_str(&messages::message(message, view));
    }
    for step in steps {
        let time = step.at.map_or_else(|| "now     ".into(), |at| view.clock(at));
        let place = step
            .proof
            .as_ref()
            .map_or_else(String::new, |proof| format!("  ({} at {})", proof.file, proof.offset));
        let separator = if step.text.is_empty() { "" } else { ": " };
        let room = width.saturating_sub(time.len() + place.len() + 1).max(30);
        let what = words(step.what);
        let row = one_line(&format!("{} {what}{separator}{}", step.agent, step.text), room);
        let (time, place) = (view.palette.dim(&time), view.palette.dim(&place));
        text.extend([&time, " ", &row, &place, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::trace::Proof;

    #[test]
    fn a_trace_has_a_row_per_step_and_is_sanitized() {
        let step = |at, what, file: Option<&str>, text: &str| Step {
            at,
            agent: "alice".into(),
            what,
            text: text.into(),
            proof: file.map(|file| Proof {
                file: file.into(),
                offset: 7,
                line: 1,
                text: String::new(),
                claim: None,
            }),
        };
        let steps = [
            step(Some(1.0.into()), What::Sent, None, "bob"),
            step(Some(2.0.into()), What::Read, Some("transcript/bob.jsonl"), "\u{1b}[2Jdone\n"),
            step(None, What::Waits, Some("inbox/bob.jsonl"), ""),
        ];
        let wanted = "\
a:1
00:00:01 alice sends it to: bob
00:00:02 alice replies: done  (transcript/bob.jsonl at 7)
now      alice has it in the inbox, unread  (inbox/bob.jsonl at 7)
";
        assert_eq!(story("a:1", None, &steps, &View::fixed(None)), wanted);
    }
}
