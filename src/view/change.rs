//! The changes of a team that are sent to views: of the roster file, its members, tasks, requests and messages.

use super::members::MemberView;
use super::requests::content;
use crate::wire::message::Message;
use crate::wire::money::Money;
use crate::wire::permission::Question;
use crate::wire::task::Task;
use crate::wire::{WallTime, WithUnknownFields};
use serde::Serialize;
use serde_json::{Map, Value};

/// The maximum length of the content of a `MessageProgress`, in characters; the conversation has all of it.
const CONTENT_CHARS: usize = 2000;

/// One change of the team's state.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Change {
    /// The roster file has other lines.
    Config(LineDiff),
    /// The list of agents has changed: all of them, the lead first.
    Team {
        members: Vec<MemberView>,
    },
    /// Some agents of the same list have changed; they are in the order of the list.
    Members {
        members: Vec<MemberView>,
    },
    /// The task list has changed: all tasks, by id.
    Tasks {
        tasks: Vec<WithUnknownFields<Task>>,
    },
    /// The open requests have changed: all of them, by id.
    Requests {
        requests: Vec<PendingQuestion>,
    },
    /// A message is new, or has reached a further stage.
    Mail(MessageProgress),
    Usage(ModelCallUsage),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PendingQuestion {
    pub(crate) from: String,
    /// The decider: `lead`, or `user` at the agent's own terminal.
    pub(crate) decider: String,
    /// The time from which the question counts as denied.
    pub(crate) deadline: WallTime,
    pub(crate) question: Question,
    /// The lines of what it asks for, as a person must see them before an answer.
    content: Vec<String>,
}

impl PendingQuestion {
    pub(crate) fn new(
        from: String,
        decider: String,
        deadline: WallTime,
        question: Question,
    ) -> Self {
        let content = content(&question);
        Self { from, decider, deadline, question, content }
    }
}

/// The tokens and the cost of one model call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ModelCallUsage {
    pub(crate) at: WallTime,
    pub(crate) name: String,
    /// Input tokens, cached ones included.
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// The cost, by the price that is set for the model now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Money>,
}

/// The stages of a message, in order. Each one is visible in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The call that sends the message is in the sender's transcript.
    Sent,
    /// The message's line is in the recipient's inbox.
    Appended,
    /// The recipient has renamed the inbox to a claim.
    Claimed,
    /// The message's line is in the recipient's transcript.
    Acknowledged,
    /// The recipient's model has answered a request that contains it.
    Answered,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MessageProgress {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) content: String,
    pub(crate) timestamp: Option<WallTime>,
    pub(crate) stage: Stage,
    /// Whether it is traffic between the programs of the team.
    #[serde(skip)]
    pub(crate) is_protocol: bool,
}

impl MessageProgress {
    /// Whether the content may be only the beginning of the message's.
    pub(crate) fn may_be_cut(&self) -> bool {
        self.content.chars().nth(CONTENT_CHARS - 1).is_some()
    }

    /// Reads a message in the mail of `owner`; `None` if the object is not a message or has no id yet.
    pub(crate) fn read(owner: &str, object: &Map<String, Value>, stage: Stage) -> Option<Self> {
        let message = Message::read(object).ok()?;
        let field = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        // A message without content has its text in a field of its kind.
        let fields = ["description", "plan", "reason", "feedback", "subject", "mode", "exit"];
        let content = Some(message.content).filter(|content| !content.is_empty());
        let text = content.or_else(|| fields.into_iter().find_map(field)).unwrap_or_default();
        Some(Self {
            id: message.id?,
            kind: message.body.kind().to_owned(),
            is_protocol: message.body.is_protocol(),
            from: message.from,
            to: owner.to_owned(),
            content: text.chars().take(CONTENT_CHARS).collect(),
            timestamp: message.timestamp,
            stage,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct LineDiff {
    /// The index of the first replaced line, from 0.
    pub(crate) at: usize,
    pub(crate) gone: usize,
    pub(crate) lines: Vec<String>,
}

impl LineDiff {
    /// Returns the difference from `before` to `after`; `None` if they are equal.
    pub(crate) fn between(before: &[String], after: &[String]) -> Option<Self> {
        let alike = |pairs: &mut dyn Iterator<Item = (&String, &String)>| {
            pairs.take_while(|(a, b)| a == b).count()
        };
        let at = alike(&mut before.iter().zip(after));
        let [before, after] = [before, after].map(|lines| lines.get(at..).unwrap_or_default());
        let kept = alike(&mut before.iter().rev().zip(after.iter().rev()));
        let gone = before.len() - kept;
        let lines = after.get(..after.len() - kept).unwrap_or_default().to_vec();
        (gone > 0 || !lines.is_empty()).then_some(Self { at, gone, lines })
    }

    pub(crate) fn apply(&self, lines: &mut Vec<String>) {
        let at = self.at.min(lines.len());
        let end = self.at.saturating_add(self.gone).min(lines.len());
        lines.splice(at..end, self.lines.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_the_changed_range_is_replaced() {
        let diff = LineDiff::between(&lines("a\nb\nc\nd"), &lines("a\nx\ny\nd"));
        let wanted = LineDiff { at: 1, gone: 2, lines: lines("x\ny") };
        assert_eq!(diff, Some(wanted));
        assert_eq!(LineDiff::between(&lines("a\nb"), &lines("a\nb")), None);
        let removed = LineDiff { at: 1, gone: 1, lines: Vec::new() };
        assert_eq!(LineDiff::between(&lines("a\na"), &lines("a")), Some(removed));
    }

    #[test]
    fn a_message_without_content_shows_its_reason_and_one_without_an_id_is_not_listed() {
        let read = |owner: &str, object: serde_json::Value| {
            MessageProgress::read(owner, object.as_object().unwrap(), Stage::Appended)
        };
        let stop = json!({"type":"shutdown_request","id":"u:1","from":"user","reason":"done"});
        let stop = read("alice", stop).unwrap();
        assert_eq!((stop.content.as_str(), stop.to.as_str()), ("done", "alice"));
        assert_eq!(read("b", json!({"from":"a","content":"x"})), None);
    }

    proptest! {
        #[test]
        fn applying_a_difference_gives_the_new_text(
            before in proptest::collection::vec("[ab]", 0..9),
            after in proptest::collection::vec("[ab]", 0..9),
        ) {
            let mut text = before.clone();
            if let Some(diff) = LineDiff::between(&before, &after) {
                diff.apply(&mut text);
            }
            prop_assert_eq!(text, after);
        }
    }
}
