//! The path of one message, from the files alone: the call that sent it, its place in inbox or transcript,
//! the reply of its recipient, and answers to it; each step with the line that proves it.
//!
//! *Invariant:* files are read line by line: a long conversation is never in memory.

use super::message_progress::Stage;
use crate::store::mail_search::{SearchLocation, Spot, each_line};
use crate::store::{StoreError, TeamDir};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde::Serialize;
use serde_json::{Map, Value};

type Object = Map<String, Value>;

/// The longest line that is shown in full, in characters.
const LINE_CHARS: usize = 4000;

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A model called the tool that sends it.
    Called,
    /// The program sent it at the end of a turn.
    Reported,
    /// It was sent.
    Sent,
    /// The sender's model got the result of the call.
    Told,
    /// It is in the inbox.
    Waits,
    /// It is in a batch that its recipient has claimed.
    Claimed,
    /// It is in a batch that was claimed and processed.
    #[serde(rename = "kept")]
    Processed,
    /// It is in the recipient's transcript.
    TakenIn,
    /// The recipient's model has replied to it.
    Read,
    /// The turn that it reached has ended.
    TurnEnded,
    /// An answer to the request was sent.
    Answered,
    /// It could not be delivered.
    Dead,
    /// A log line names it.
    Logged,
}

impl What {
    /// The stage of the message that this step proves, if any.
    pub(crate) fn stage(self) -> Option<Stage> {
        match self {
            Self::Called | Self::Reported => Some(Stage::Sent),
            Self::Waits => Some(Stage::Appended),
            Self::Claimed | Self::Processed => Some(Stage::Claimed),
            Self::TakenIn => Some(Stage::Acknowledged),
            Self::Read => Some(Stage::Answered),
            Self::Sent
            | Self::Told
            | Self::TurnEnded
            | Self::Answered
            | Self::Dead
            | Self::Logged => None,
        }
    }
}

/// One step of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// The time; `None` for the place at which the message is now.
    pub(crate) at: Option<WallTime>,
    /// The agent that acted, or whose files have the line.
    pub(crate) agent: String,
    /// The kind of the step.
    pub(crate) what: What,
    /// Details, for people.
    pub(crate) text: String,
    /// The line that proves the step; `None` if the message itself does.
    pub(crate) proof: Option<Proof>,
}

/// A line on disk that proves a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Proof {
    /// The file, relative to the team folder.
    pub(crate) file: String,
    /// The byte offset of the line.
    pub(crate) offset: u64,
    /// The number of the line, from 1.
    pub(crate) line: usize,
    /// The line, truncated.
    pub(crate) text: String,
    /// For a line of a transcript: the claim that had the message, and the byte offset there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<(String, u64)>,
}

/// The steps of a message.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The message as received, if it is in any file.
    pub(crate) message: Option<Object>,
    /// The steps by time; the present place comes last.
    pub(crate) steps: Vec<Step>,
}

/// Searches all files for a message.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn of(team: &TeamDir, id: &str) -> Result<Trace, StoreError> {
    let call = id.split_once(':').map(|(_, call)| call).filter(|call| !call.is_empty());
    let mut search = Search { id, call, trace: Trace::default() };
    let agents = team.agents()?;
    for name in &agents {
        search.look(team, name)?;
    }
    let message = search.trace.message.as_ref();
    let request = message.and_then(|message| message.get("request_id")).and_then(Value::as_str);
    if let Some(request) = request.map(ToOwned::to_owned) {
        for name in &agents {
            search.look_for_answer(team, name, &request)?;
        }
    }
    let time = |step: &Step| step.at.map_or(f64::INFINITY, WallTime::as_secs);
    search.trace.steps.sort_by(|a, b| time(a).total_cmp(&time(b)));
    Ok(search.trace)
}

/// The search for a message.
struct Search<'a> {
    id: &'a str,
    /// The id of the call that sent it, if the message id contains it.
    call: Option<&'a str>,
    trace: Trace,
}

/// The state of reading one agent's files.
struct Reader<'a> {
    name: &'a AgentName,
    /// The agent has received the message, and its model has not replied since.
    unanswered: bool,
    /// The agent has received the message, and the turn has not ended.
    in_turn: bool,
}

impl Search<'_> {
    /// Searches all files of an agent.
    fn look(&mut self, team: &TeamDir, name: &AgentName) -> Result<(), StoreError> {
        let mut reader = Reader { name, unanswered: false, in_turn: false };
        each_line(team, name, |spot, line| self.meet(&mut reader, spot, line))
    }

    fn meet(&mut self, reader: &mut Reader<'_>, spot: &Spot, line: &[u8]) {
        let names = |word: &str| std::str::from_utf8(line).is_ok_and(|line| line.contains(word));
        let is_called = || self.call.is_some_and(|call| names(call_of(call)));
        let is_context =
            || spot.place == SearchLocation::Transcript && (reader.in_turn || is_called());
        if !names(self.id) && !is_context() {
            return;
        }
        let mut add = |at, what, text: String| {
            let proof = Some(proof(spot, line));
            self.trace.steps.push(Step { at, agent: reader.name.to_string(), what, text, proof });
        };
        match spot.place {
            SearchLocation::Inbox | SearchLocation::Claim | SearchLocation::TakenClaim => {
                let Ok(object) = serde_json::from_slice::<Object>(line) else { return };
                if object.get("id").and_then(Value::as_str) != Some(self.id) {
                    return;
                }
                let what = if spot.place == SearchLocation::Inbox {
                    What::Waits
                } else if spot.place == SearchLocation::Claim {
                    What::Claimed
                } else {
                    What::Processed
                };
                add(None, what, String::new());
                self.found(object);
            }
            SearchLocation::Dead => {
                let Ok(progress) = serde_json::from_slice::<Object>(line) else { return };
                let raw = progress.get("raw").and_then(Value::as_str).unwrap_or_default();
                let id =
                    serde_json::from_str::<Object>(raw).ok().and_then(|it| it.get("id").cloned());
                if id.is_some_and(|id| id != self.id) {
                    return;
                }
                let text = progress.get("reason").and_then(Value::as_str).unwrap_or_default();
                add(
                    progress.get("at").and_then(Value::as_f64).map(WallTime::from_secs),
                    What::Dead,
                    text.to_owned(),
                );
            }
            SearchLocation::Log => {
                let Ok(logged) = serde_json::from_slice::<Object>(line) else { return };
                let at = logged.get("timestamp").and_then(Value::as_str);
                let at = at.and_then(|at| at.parse::<jiff::Timestamp>().ok());
                let text = logged.get("message").and_then(Value::as_str).unwrap_or_default();
                add(
                    at.map(|at| at.as_duration().as_secs_f64().into()),
                    What::Logged,
                    text.to_owned(),
                );
            }
            SearchLocation::Transcript => {
                if let Some(Line { at, entry }) = Line::read(line) {
                    self.transcript(reader, at, entry, &proof(spot, line));
                }
            }
        }
    }

    fn transcript(
        &mut self,
        reader: &mut Reader<'_>,
        at: crate::wire::WallTime,
        entry: Entry,
        shown: &Proof,
    ) {
        let mut steps = Vec::new();
        let mut add = |what, text: String, claim| {
            let proof = Some(Proof { claim, ..shown.clone() });
            let agent = reader.name.to_string();
            steps.push(Step { at: Some(at), agent, what, text, proof });
        };
        let is_the_call = |id: &str| self.call.map(call_of) == Some(id);
        let mut found = None;
        match entry {
            Entry::Mail { message, claim, offset }
                if message.get("id").and_then(Value::as_str) == Some(self.id) =>
            {
                add(What::TakenIn, String::new(), Some((claim, offset)));
                (reader.unanswered, reader.in_turn) = (true, true);
                found = Some(message);
            }
            Entry::Assistant { blocks, .. } => {
                let sends = |block: &Block| match block {
                    Block::ToolUse { id, name, .. } if is_the_call(id) => Some(name.clone()),
                    Block::ToolUse { .. }
                    | Block::Text { .. }
                    | Block::ToolResult { .. }
                    | Block::Opaque { .. } => None,
                };
                if let Some(tool) = blocks.iter().find_map(sends) {
                    add(What::Called, tool, None);
                }
                if std::mem::take(&mut reader.unanswered) {
                    add(What::Read, summary(&blocks), None);
                }
            }
            Entry::ToolResult { tool_use_id, content, .. } if is_the_call(&tool_use_id) => {
                add(What::Told, content, None);
            }
            Entry::TurnEnd { outcome, report, .. } => {
                if report.as_ref().is_some_and(|report| report.id == self.id) {
                    add(What::Reported, String::new(), None);
                }
                if std::mem::take(&mut reader.in_turn) {
                    let told = report.map_or_else(String::new, |it| format!(", told as {}", it.id));
                    add(What::TurnEnded, format!("{}{told}", outcome.word()), None);
                }
            }
            Entry::Mail { .. }
            | Entry::ToolResult { .. }
            | Entry::Session { .. }
            | Entry::User { .. }
            | Entry::ToolStart { .. }
            | Entry::Note { .. }
            | Entry::Compacted { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Unknown => {}
        }
        self.trace.steps.append(&mut steps);
        if let Some(message) = found {
            self.found(message);
        }
    }

    /// Keeps the message, which has the time at which it was sent.
    fn found(&mut self, object: Object) {
        if self.trace.message.is_some() {
            return;
        }
        if let Ok(message) = Message::read(&object)
            && let Some(at) = sent_at(&object)
        {
            let text = object.get("to").and_then(Value::as_str).unwrap_or_default().to_owned();
            let (agent, what) = (message.from.clone(), What::Sent);
            self.trace.steps.push(Step { at: Some(at), agent, what, text, proof: None });
        }
        self.trace.message = Some(object);
    }

    /// Searches for answers: they carry the request's id.
    fn look_for_answer(
        &mut self,
        team: &TeamDir,
        name: &AgentName,
        request: &str,
    ) -> Result<(), StoreError> {
        each_line(team, name, |spot, line| {
            if !std::str::from_utf8(line).is_ok_and(|line| line.contains(request)) {
                return;
            }
            let object: Option<Object> = match spot.place {
                SearchLocation::Inbox | SearchLocation::Claim => serde_json::from_slice(line).ok(),
                SearchLocation::Transcript => mail_of(line),
                SearchLocation::TakenClaim | SearchLocation::Dead | SearchLocation::Log => None,
            };
            let Some(object) = object else { return };
            let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
            if word("request_id") == request && word("id") != self.id {
                let text = format!("{} to {name}, {}", word("type"), word("id"));
                let (at, agent) = (sent_at(&object), word("from").to_owned());
                let (what, proof) = (What::Answered, Some(proof(spot, line)));
                self.trace.steps.push(Step { at, agent, what, text, proof });
            }
        })
    }
}

/// The id of the call, without the recipient that a broadcast adds.
fn call_of(call: &str) -> &str {
    call.split_once(':').map_or(call, |(call, _)| call)
}

fn proof(spot: &Spot, line: &[u8]) -> Proof {
    Proof {
        file: spot.file.display().to_string(),
        offset: spot.offset,
        line: spot.line,
        text: String::from_utf8_lossy(line).trim_end().chars().take(LINE_CHARS).collect(),
        claim: None,
    }
}

/// The message of a transcript line of kind `mail`.
fn mail_of(line: &[u8]) -> Option<Object> {
    let Entry::Mail { message, .. } = Line::read(line)?.entry else { return None };
    Some(message)
}

fn sent_at(message: &Object) -> Option<WallTime> {
    let at = message.get("timestamp").or_else(|| message.get("ts")).and_then(Value::as_f64);
    at.map(WallTime::from_secs)
}

/// A summary of a reply.
fn summary(blocks: &[Block]) -> String {
    let part = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolUse { name, .. } => Some(format!("calls {name}")),
        Block::ToolResult { .. } | Block::Opaque { .. } => None,
    };
    blocks.iter().filter_map(part).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::Usage;
    use serde_json::json;
    use std::io::Write;
    use std::path::Path;

    fn write(path: &Path, text: &str) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn each_step_has_the_line_that_proves_it() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        let lead = AgentName::lead();
        let message = json!({"type":"message","from":"user","content":"hi","id":"user:1"});
        write(&dir.inbox(&lead), &format!("{{\"from\":\"x\"}}\n{message}\n"));
        let shown = |id: &str| {
            let steps = of(&dir, id).unwrap().steps.into_iter();
            steps.map(|step| (step.what, step.proof.unwrap())).collect::<Vec<_>>()
        };
        let steps = shown("user:1");
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].0, steps[0].1.line, steps[0].1.offset), (What::Waits, 2, 13));
        let entry = Entry::Mail {
            claim: "000000000001-0123abcd".into(),
            offset: 13,
            message: message.as_object().unwrap().clone(),
        };
        write(&dir.transcript(&lead), &Line { at: 1.0.into(), entry }.text());
        let steps = shown("user:1");
        let (what, proof) = &steps[0];
        assert_eq!((steps.len(), what.stage()), (2, Some(Stage::Acknowledged)));
        assert_eq!(proof.claim, Some(("000000000001-0123abcd".into(), 13)));
        assert_eq!((proof.file.as_str(), proof.line), ("transcript/lead.jsonl", 1));
        assert!(shown("user:2").is_empty());
    }

    #[test]
    fn each_copy_of_a_broadcast_is_traced_to_the_call() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        let call = Block::ToolUse {
            id: "t1".into(),
            name: "broadcast".into(),
            input: json!({"content": "all hear"}),
        };
        let entry = Entry::Assistant {
            blocks: vec![call],
            stop_reason: crate::wire::chat::StopReason::ToolUse,
            usage: Usage::default(),
            model: "m".into(),
        };
        write(&dir.transcript(&AgentName::lead()), &Line { at: 1.0.into(), entry }.text());
        for id in ["lead:t1:bob", "lead:t1"] {
            let steps = of(&dir, id).unwrap().steps;
            assert_eq!(steps.iter().map(|step| step.what).collect::<Vec<_>>(), [What::Called]);
            assert_eq!(steps[0].text, "broadcast");
        }
        assert!(of(&dir, "lead:t").unwrap().steps.is_empty());
    }
}
