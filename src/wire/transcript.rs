//! A transcript line: one thing that happened in an agent's conversation (SPEC 3.1).
//!
//! The transcript is the agent's memory and the acknowledgement record of its mail: what stands here
//! was taken in, and the next request to the model contains it.

use super::Timestamp;
use super::chat::{Block, StopReason, Usage};
use super::message::Outcome;
use super::permission::{Decision, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One line: when, and what.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Seconds since 1970.
    pub at: Timestamp,
    /// What happened.
    pub entry: Entry,
}

/// The kinds of transcript lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A process took up (or began) this conversation.
    Session {
        /// Which life of the agent.
        incarnation: String,
        /// Its process.
        pid: i32,
        /// Its model, `provider/name`.
        model: String,
    },
    /// The person at this agent's terminal said something.
    User {
        /// The text.
        content: String,
    },
    /// A message was taken in. This line is its acknowledgement.
    Mail {
        /// The claim it came from.
        #[serde(rename = "gen")]
        claim: String,
        /// Byte offset of its line in the claim.
        offset: u64,
        /// The message as it was received, with its id.
        message: Map<String, Value>,
    },
    /// The model answered.
    Assistant {
        /// Its blocks.
        blocks: Vec<Block>,
        /// Why it stopped.
        stop_reason: StopReason,
        /// What the call cost.
        usage: Usage,
        /// Which model.
        model: String,
    },
    /// A tool is about to run: without a result after it, its effect is unknown.
    ToolStart {
        /// The call.
        tool_use_id: String,
        /// The tool.
        name: String,
    },
    /// A tool has run.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// What it said.
        content: String,
        /// It failed.
        is_error: bool,
    },
    /// Somebody must decide before a call runs; open until its `decision`, or its call's result.
    Request {
        /// What is asked.
        #[serde(flatten)]
        question: Question,
        /// Who is asked: `lead` by mail, or `user` at the agent's own terminal.
        decider: String,
        /// When it counts as denied.
        deadline: Timestamp,
    },
    /// It was decided.
    Decision(Decision),
    /// The program tells the model something (it was restarted, interrupted, cut short).
    Note {
        /// The text.
        content: String,
    },
    /// The conversation until here was replaced by this: memory begins anew, with what was asked in the
    /// turn under way told again.
    Compacted {
        /// What the model said of the conversation.
        summary: String,
        /// What the program knows: name, role, team.
        situation: String,
        /// What the summary cost.
        usage: Usage,
        /// What fits the model, as far as this has shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_tokens: Option<u64>,
    },
    /// A turn is over.
    TurnEnd {
        /// How.
        outcome: Outcome,
        /// Model calls it took.
        rounds: u32,
        /// What is told to the lead about it; sent again, under the same id, when the process died
        /// before it was known to be sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<Report>,
    },
    /// Written by a later version.
    #[serde(other)]
    Unknown,
}

/// The report of a finished turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The id of the `result` message.
    pub id: String,
    /// Its text.
    pub text: String,
}

impl Line {
    /// The line as text, with its newline; `at` stands behind `kind`.
    pub fn text(&self) -> String {
        let mut object = Map::new();
        if let Ok(Value::Object(fields)) = serde_json::to_value(&self.entry) {
            for (key, value) in fields {
                let is_kind = key == "kind";
                object.insert(key, value);
                if is_kind {
                    object.insert("at".into(), self.at.into());
                }
            }
        }
        let mut text = Value::Object(object).to_string();
        text.push('\n');
        text
    }

    /// Only the time of a line.
    pub fn time(text: &[u8]) -> Option<Timestamp> {
        serde_json::from_slice::<When>(text).ok()?.at.as_f64()
    }

    /// Whether a line may be of a kind. It is not parsed: of lines as we write them the answer is right, and
    /// what another program wrote may be anything.
    pub fn may_be(text: &[u8], kind: &str) -> bool {
        text.strip_prefix(br#"{"kind":""#).is_none_or(|rest| {
            rest.strip_prefix(kind.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
        })
    }

    /// Understands a line; `None` for a torn or foreign one.
    pub fn read(text: &[u8]) -> Option<Self> {
        let When { at } = serde_json::from_slice(text).ok()?;
        let at = at.as_f64().unwrap_or_default();
        let entry = serde_json::from_slice(text).ok()?;
        Some(Self { at, entry })
    }
}

/// Of a line, only its time: reading it twice is faster than once into an object and again from that.
#[derive(Deserialize)]
struct When {
    #[serde(default)]
    at: Value,
}

#[cfg(test)]
mod tests {
    use super::super::permission::{self, QuestionKind};
    use super::*;

    #[test]
    fn a_line_of_a_later_version_is_read_as_unknown() {
        let line = Line::read(br#"{"kind":"dream","at":2.5,"of":"sheep"}"#).unwrap();
        assert_eq!(line, Line { at: 2.5, entry: Entry::Unknown });
    }

    #[test]
    fn of_a_line_of_ours_the_kind_is_known_and_a_foreign_one_may_be_any() {
        for (line, may_be) in [
            (&br#"{"kind":"mail","at":1}"#[..], true),
            (br#"{"kind":"mailing","at":1}"#, false),
            (br#"{"kind":"note","content":"\"kind\":\"mail\""}"#, false),
            (br#"{"kind": "note"}"#, true),
            (br#"{"at":1,"kind":"mail"}"#, true),
            (br#"{"kind":"ma"#, false),
        ] {
            assert_eq!(Line::may_be(line, "mail"), may_be, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn every_kind_survives_the_round_trip() {
        let entries = [
            Entry::Session { incarnation: "x".into(), pid: 3, model: "rehearsal".into() },
            Entry::User { content: "hi\n".into() },
            Entry::Mail { claim: "1-a".into(), offset: 9, message: Map::new() },
            Entry::Assistant {
                blocks: vec![
                    Block::Text { text: "a".into() },
                    Block::ToolUse { id: "t".into(), name: "bash".into(), input: Value::Null },
                    Block::Opaque { value: serde_json::json!({"type":"thinking","signature":"s"}) },
                ],
                stop_reason: StopReason::Other("new".into()),
                usage: Usage { input_tokens: 1, ..Usage::default() },
                model: "m".into(),
            },
            Entry::ToolStart { tool_use_id: "t".into(), name: "bash".into() },
            Entry::ToolResult { tool_use_id: "t".into(), content: "ok".into(), is_error: true },
            Entry::Request {
                question: Question {
                    request_id: "a:t".into(),
                    about: QuestionKind::Permission,
                    tool_use_id: "t".into(),
                    tool: "bash".into(),
                    input: serde_json::json!({"command": "ls"}),
                    description: "ls".into(),
                },
                decider: "lead".into(),
                deadline: 9.5,
            },
            Entry::Decision(Decision::by_program(
                "a:t",
                permission::DecisionOutcome::Expired,
                "late",
            )),
            Entry::Note { content: "n".into() },
            Entry::Compacted {
                summary: "s".into(),
                situation: "a".into(),
                usage: Usage::default(),
                context_tokens: Some(9),
            },
            Entry::TurnEnd { outcome: Outcome::Failed, rounds: 2, report: None },
            Entry::TurnEnd {
                outcome: Outcome::Done,
                rounds: 1,
                report: Some(Report { id: "a:1".into(), text: "done".into() }),
            },
        ];
        for entry in entries {
            let line = Line { at: 1.5, entry };
            let text = line.text();
            assert!(text.starts_with(r#"{"kind":""#) && text.contains(r#""at":1.5"#), "{text}");
            assert_eq!(Line::read(text.trim_end().as_bytes()), Some(line));
        }
    }
}
