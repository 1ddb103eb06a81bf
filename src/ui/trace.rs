//! A message's life as a person reads it: one row for each thing that happened.

use super::clean::one_line;
use super::messages;
use super::view::View;
use crate::wire::Timestamp;
use crate::wire::message::Message;

/// One thing that happened to a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// When; `None` for where it lies now.
    pub(crate) at: Option<Timestamp>,
    /// Whose doing it was, or in whose files it stands.
    pub(crate) agent: String,
    /// What.
    pub(crate) what: What,
    /// The file that says so, from the team folder on; empty when the message itself does.
    pub(crate) file: String,
    /// The place in it.
    pub(crate) offset: u64,
    /// More.
    pub(crate) text: String,
}

/// What can happen to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A model called the tool that sends it.
    Called,
    /// The program made it at the end of a turn.
    Reported,
    /// It was sent.
    Sent,
    /// The sender's model was told how that went.
    Told,
    /// It lies in the inbox.
    Waits,
    /// It lies in a batch that its owner has taken.
    Claimed,
    /// It stands in a batch that was acted on.
    Kept,
    /// It was taken in.
    TakenIn,
    /// Its reader's model has replied since.
    Read,
    /// The turn in which it was taken in is over.
    TurnEnded,
    /// Somebody answered the request.
    Answered,
    /// It could not be delivered.
    Dead,
    /// A log tells of it.
    Logged,
}

impl What {
    /// The word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Called => "called",
            Self::Reported => "reported",
            Self::Sent => "sent",
            Self::Told => "told",
            Self::Waits => "waits",
            Self::Claimed => "claimed",
            Self::Kept => "kept",
            Self::TakenIn => "taken_in",
            Self::Read => "read",
            Self::TurnEnded => "turn_ended",
            Self::Answered => "answered",
            Self::Dead => "dead",
            Self::Logged => "logged",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Called => "calls the tool",
            Self::Reported => "ends a turn and reports it",
            Self::Sent => "sends it to",
            Self::Told => "is told",
            Self::Waits => "has it in the inbox, unread",
            Self::Claimed => "has taken it from the inbox, not yet acted on",
            Self::Kept => "acted on the batch it came with",
            Self::TakenIn => "takes it in",
            Self::Read => "replies",
            Self::TurnEnded => "ends the turn",
            Self::Answered => "answers",
            Self::Dead => "has it among the dead letters",
            Self::Logged => "logs",
        }
    }
}

/// The whole story.
pub(crate) fn story(id: &str, message: Option<&Message>, steps: &[Step], view: &View) -> String {
    let width = view.width.unwrap_or(200);
    let mut text = format!("{}\n", view.palette.bold(&one_line(id, width)));
    if let Some(message) = message {
        text.push_str(&messages::message(message, view));
    }
    for step in steps {
        let time = step.at.map_or_else(|| "now     ".into(), |at| view.clock(at));
        let place = match step.file.as_str() {
            "" => String::new(),
            file => format!("  ({file} at {})", step.offset),
        };
        let separator = if step.text.is_empty() { "" } else { ": " };
        let room = width.saturating_sub(time.len() + place.len() + 1).max(30);
        let what = step.what.words();
        let row = one_line(&format!("{} {what}{separator}{}", step.agent, step.text), room);
        let (time, place) = (view.palette.dim(&time), view.palette.dim(&place));
        text.extend([&time, " ", &row, &place, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_has_a_row_for_each_step_and_nothing_in_it_acts_on_the_terminal() {
        let step = |at, what, file: &str, text: &str| Step {
            at,
            agent: "alice".into(),
            what,
            file: file.into(),
            offset: 7,
            text: text.into(),
        };
        let steps = [
            step(Some(1.0), What::Sent, "", "bob"),
            step(Some(2.0), What::Read, "transcript/bob.jsonl", "\u{1b}[2Jdone\n"),
            step(None, What::Waits, "inbox/bob.jsonl", ""),
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
