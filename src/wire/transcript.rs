//! A transcript line: one entry of an agent's conversation (SPEC 3.1).
//!
//! The transcript is the agent's memory and acknowledges its mail: a message in the transcript was delivered, and
//! the next request to the model contains it.

use super::chat::{Block, StopReason, Usage};
use super::file_view::FileView;
use super::image::ShownImage;
use super::message::Outcome;
use super::permission::{Decision, Question};
use super::subagent::SubagentStart;
use super::words::words;
use super::{WallTime, object_of};
use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// A line of the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The time of the entry.
    pub at: WallTime,
    /// The entry.
    pub entry: Entry,
}

/// The kinds of transcript lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A process began or resumed this conversation.
    Session {
        /// The incarnation of the agent.
        incarnation: String,
        /// The process id.
        pid: i32,
        /// The model, `provider/name`.
        model: String,
        /// The session of the agent of another vendor that does the work, once it has begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        foreign: Option<ForeignSession>,
    },
    /// A prompt from the person at this agent's terminal.
    User {
        /// The text.
        content: String,
    },
    /// A message was delivered; this line acknowledges it.
    Mail {
        /// The batch id of the claim that held the message.
        #[serde(rename = "gen")]
        claim: String,
        /// The byte offset of the message's line in the claim.
        offset: u64,
        /// The message as it was received, with its id.
        message: Map<String, Value>,
        /// Whether the message is sealed by its sender, or by a program of the user in its name. A line of an earlier
        /// version counts as verified.
        #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
        verified: bool,
    },
    /// A reply of the model.
    Assistant {
        /// The content blocks.
        blocks: Vec<Block>,
        /// The reason for which the model stopped.
        stop_reason: StopReason,
        /// The tokens of the call.
        usage: Usage,
        /// The model that replied.
        model: String,
    },
    /// A tool call starts. Without a result after this line, the effect of the call is unknown.
    ToolStart {
        /// The id of the tool call.
        tool_use_id: String,
        /// The name of the tool.
        name: String,
    },
    /// A call has started a subagent. The same line begins the transcript of the subagent.
    Subagent(SubagentStart),
    /// The result of a tool call.
    ToolResult {
        /// The id of the tool call.
        tool_use_id: String,
        /// The output.
        content: String,
        /// Whether the call failed.
        is_error: bool,
        /// The file that the call read or wrote, as the agent has seen it since.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "super::file_view::if_understood"
        )]
        file: Option<Box<FileView>>,
        /// Further files of the call, in the same form.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "super::file_view::those_understood"
        )]
        more_files: Vec<FileView>,
        /// The images that the call has shown to the model.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "super::image::those_understood"
        )]
        images: Vec<ShownImage>,
    },
    /// A tool call waits for a decision. The request is open until its `decision`, or until the result of its call.
    Request {
        /// The question.
        #[serde(flatten)]
        question: Question,
        /// The decider: `lead` by mail, or `user` at the agent's own terminal.
        decider: String,
        /// The time from which the request counts as denied.
        deadline: WallTime,
    },
    /// The decision on a request.
    Decision(Decision),
    /// The program has acted on an `interrupt_request`.
    Interrupt {
        /// The id of the request.
        request_id: String,
        /// The sender of the request: `user` or `lead`.
        by: String,
        /// The effect of the request.
        outcome: InterruptOutcome,
    },
    /// The conversation goes on with another model.
    Model {
        /// The model, `provider/name`.
        model: String,
    },
    /// A note of the program for the model: a restart, an interruption, a limit.
    Note {
        /// The text.
        content: String,
    },
    /// The instructions of a folder below the workspace, of which the model was told when it had used a file there.
    Instructions {
        /// The path of their file below the workspace.
        file: String,
        /// The text; empty if there was no room for it, and the model was told only where it is.
        content: String,
    },
    /// A summary that replaces the conversation before this line: the memory of a resumed agent begins here. The
    /// prompt of the turn in progress is repeated to the model.
    Compacted {
        /// The model's summary of the conversation.
        summary: String,
        /// The facts that the program adds: name, role, team, open tasks.
        situation: String,
        /// The tokens of the summary call.
        usage: Usage,
        /// The context size of the model in tokens, as far as a refused request has shown it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_tokens: Option<u64>,
    },
    /// The results of these calls are left out of the conversation from now on: later calls have made them useless.
    ResultsLeftOut {
        /// The ids of the tool calls.
        tool_use_ids: Vec<String>,
    },
    /// Mail was handed out to a model that another program runs: the answer that holds it was written. Mail without
    /// such a line after it may not have reached that model.
    HandedOut {
        /// The ids of the messages.
        ids: Vec<String>,
    },
    /// The end of a turn.
    TurnEnd {
        /// The outcome of the turn.
        outcome: Outcome,
        /// The number of model calls.
        rounds: u32,
        /// The report for the lead. A resumed agent repeats a send that was not recorded, under the same id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<TurnReport>,
        /// Whether the end of the process cut the turn off, so that a resumed agent continues it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut_off: bool,
    },
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

impl Entry {
    /// Returns the result of a call that has used these files.
    pub(crate) fn tool_result(
        tool_use_id: String,
        content: String,
        is_error: bool,
        files: Vec<FileView>,
    ) -> Self {
        let mut files = files.into_iter();
        let file = files.next().map(Box::new);
        let (more_files, images) = (files.collect(), Vec::new());
        Self::ToolResult { tool_use_id, content, is_error, file, more_files, images }
    }

    /// Adds the images that the call of a result has shown.
    pub(crate) fn with_images(mut self, shown: Vec<ShownImage>) -> Self {
        if let Self::ToolResult { images, .. } = &mut self {
            *images = shown;
        }
        self
    }
}

fn yes() -> bool {
    true
}

/// The session of an agent of another vendor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignSession {
    /// The name of the agent.
    pub agent: String,
    /// The agent's id of the session, by which it is continued.
    pub session_id: String,
    /// The version of the agent's program.
    pub version: String,
}

words! {
    /// The effect of an interrupt request.
    pub enum InterruptOutcome {
        /// It ended the running turn.
        Interrupted = "interrupted",
        /// No turn was running, and nothing changed.
        NoTurn = "no_turn",
    }
}

/// The report of a finished turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// The id of the `result` message.
    pub id: String,
    /// The text of the report.
    pub text: String,
}

impl Line {
    /// Returns the line as text, including its newline, for tests and benchmarks.
    ///
    /// # Panics
    /// The entry cannot be serialized. The store serializes the line itself and gets an error instead.
    #[expect(clippy::expect_used, reason = "no file of the team is written from it")]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a line of a test is serialized") + "\n"
    }

    /// Returns the time of a line.
    pub fn time(text: &[u8]) -> Option<WallTime> {
        serde_json::from_slice::<When>(text).ok()?.at.as_f64().map(WallTime::from_secs)
    }

    /// Whether a line may be of the given kind, without parsing it. A line that this program did not write may be
    /// of any kind.
    pub fn may_be(text: &[u8], kind: &str) -> bool {
        text.strip_prefix(br#"{"kind":""#).is_none_or(|rest| {
            rest.strip_prefix(kind.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
        })
    }

    /// Parses a line; returns `None` for a torn or foreign one.
    pub fn read(text: &[u8]) -> Option<Self> {
        let When { at } = serde_json::from_slice(text).ok()?;
        let at = WallTime::from_secs(at.as_f64().unwrap_or_default());
        let entry = serde_json::from_slice(text).ok()?;
        Some(Self { at, entry })
    }
}

impl Serialize for Line {
    /// Serializes the entry, with `at` after `kind`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = object_of(&self.entry).map_err(S::Error::custom)?;
        object.shift_insert(1, "at".into(), self.at.as_secs().into());
        object.serialize(serializer)
    }
}

/// The time of a line. Parsing a line twice is faster than parsing it into an object first.
#[derive(Deserialize)]
struct When {
    #[serde(default)]
    at: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_own_line_is_exact_and_of_a_foreign_line_any() {
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
    fn a_file_that_is_not_understood_leaves_the_result() {
        let line =
            br#"{"kind":"tool_result","tool_use_id":"t","content":"ok","is_error":false,"file":7}"#;
        let entry = Line::read(line).unwrap().entry;
        assert!(matches!(entry, Entry::ToolResult { file: None, .. }), "{entry:?}");
    }

    #[test]
    fn every_kind_survives_the_round_trip() {
        for rest in [
            r#""session","at":1.5,"incarnation":"x","pid":3,"model":"rehearsal""#,
            r#""user","at":1.5,"content":"hi\n""#,
            r#""mail","at":1.5,"gen":"1-a","offset":9,"message":{"id":"a:1"}"#,
            r#""mail","at":1.5,"gen":"1-a","offset":9,"message":{"id":"a:1"},"verified":false"#,
            r#""assistant","at":1.5,"blocks":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"bash","input":null},{"type":"opaque","value":{"type":"thinking","signature":"s"}}],"stop_reason":"new","usage":{"input_tokens":1,"output_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0},"model":"m""#,
            r#""tool_start","at":1.5,"tool_use_id":"t","name":"bash""#,
            r#""subagent","at":1.5,"id":"alice:1","caller":"alice","tool_use_id":"t","task":"look","role":"tester","model":"m","background":true"#,
            r#""tool_result","at":1.5,"tool_use_id":"t","content":"ok","is_error":true"#,
            r#""tool_result","at":1.5,"tool_use_id":"t","content":"ok","is_error":false,"file":{"path":"a.rs","hash":"00ff","lines":[[1,4],[9,9]]}"#,
            r#""tool_result","at":1.5,"tool_use_id":"t","content":"ok","is_error":false,"images":[{"path":"a.png","hash":"00ff","media_type":"image/png","width":3,"height":2,"bytes":9}]"#,
            r#""request","at":1.5,"request_id":"a:t","about":"permission","tool_use_id":"t","tool":"bash","input":{"command":"ls"},"description":"ls","decider":"lead","deadline":9.5"#,
            r#""decision","at":1.5,"request_id":"a:t","outcome":"expired","by":"program","scope":"once","reason":"late""#,
            r#""interrupt","at":1.5,"request_id":"user:1","by":"user","outcome":"interrupted""#,
            r#""note","at":1.5,"content":"n""#,
            r#""instructions","at":1.5,"file":"a/AGENTS.md","content":"c""#,
            r#""compacted","at":1.5,"summary":"s","situation":"a","usage":{"input_tokens":0,"output_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0},"context_tokens":9"#,
            r#""results_left_out","at":1.5,"tool_use_ids":["t"]"#,
            r#""handed_out","at":1.5,"ids":["lead:1"]"#,
            r#""turn_end","at":1.5,"outcome":"failed","rounds":2"#,
            r#""turn_end","at":1.5,"outcome":"done","rounds":1,"report":{"id":"a:1","text":"done"}"#,
            r#""turn_end","at":1.5,"outcome":"interrupted","rounds":1,"cut_off":true"#,
        ] {
            let text = format!("{{\"kind\":{rest}}}\n");
            let line = Line::read(text.as_bytes()).unwrap();
            assert_ne!(line.entry, Entry::Unknown, "{text}");
            assert_eq!(line.text(), text);
        }
    }
}
