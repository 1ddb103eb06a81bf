//! `team trace ID`: a message's whole life, from the files alone: who sent it and by which call, where it
//! lies or was taken in, what its reader did then, and who answered.

use super::args::TraceArgs;
use super::context::{Context, store_failure};
use super::out;
use crate::error::{Exit, Failure};
use crate::store::TeamDir;
use crate::store::sightings::{Place, Spot, each_line};
use crate::ui::trace::{Step, What};
use crate::ui::{self, transcript::outcome_word};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, Timestamp};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// What is known of a message so far.
struct Trace<'a> {
    id: &'a str,
    /// The call that sent it, when its id tells.
    call: Option<&'a str>,
    message: Option<Object>,
    steps: Vec<Step>,
}

/// Somebody's files while they are read.
struct Reader<'a> {
    name: &'a AgentName,
    /// The message was taken in, and the model has not answered since.
    unanswered: bool,
    /// The message was taken in, and the turn goes on.
    in_turn: bool,
}

pub(super) fn run(context: &Context, args: &TraceArgs) -> Result<Exit, Failure> {
    let team = context.seen_team()?;
    let call = args.id.split_once(':').map(|(_, call)| call).filter(|call| !call.is_empty());
    let mut trace = Trace { id: &args.id, call, message: None, steps: Vec::new() };
    let agents = team.agents().map_err(store_failure)?;
    for name in &agents {
        trace.look(&team, name)?;
    }
    let request = trace.message.as_ref().and_then(|message| message.get("request_id"));
    if let Some(request) = request.and_then(Value::as_str).map(ToOwned::to_owned) {
        for name in &agents {
            trace.look_for_answer(&team, name, &request)?;
        }
    }
    if trace.steps.is_empty() {
        return Err(Failure::new(
            Exit::Failure,
            format!("no message {:?} is known here", args.id),
            "no inbox, claim, transcript, dead letter or log of this team tells of it",
            "`team log --type mail --json` shows messages with their ids",
        ));
    }
    // What has no time is where the message lies now: the end of the story so far.
    trace
        .steps
        .sort_by(|a, b| a.at.unwrap_or(f64::INFINITY).total_cmp(&b.at.unwrap_or(f64::INFINITY)));
    let printed = if args.show.json {
        let events: Vec<Value> = trace.steps.iter().map(as_json).collect();
        out::say_json(&json!({
            "schema": 1, "id": trace.id, "message": trace.message, "events": events,
        }))
    } else {
        let message = trace.message.as_ref().and_then(|message| Message::read(message).ok());
        out::say(&ui::trace::story(trace.id, message.as_ref(), &trace.steps, &context.view()))
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

impl Trace<'_> {
    /// Looks through all that somebody has left.
    fn look(&mut self, team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
        let mut reader = Reader { name, unanswered: false, in_turn: false };
        each_line(team, name, |spot, line| self.meet(&mut reader, spot, line))
            .map_err(store_failure)
    }

    fn meet(&mut self, reader: &mut Reader<'_>, spot: &Spot, line: &[u8]) {
        let names = |word: &str| std::str::from_utf8(line).is_ok_and(|line| line.contains(word));
        let is_called = || self.call.is_some_and(|call| names(&format!("\"{call}\"")));
        let is_story = || spot.place == Place::Transcript && (reader.in_turn || is_called());
        if !names(self.id) && !is_story() {
            return;
        }
        let agent = reader.name.to_string();
        let mut add = |at, what, text: String| {
            let (file, offset) = (spot.file.display().to_string(), spot.offset);
            self.steps.push(Step { at, agent: agent.clone(), what, file, offset, text });
        };
        match spot.place {
            Place::Inbox | Place::Claim | Place::TakenClaim => {
                let Ok(object) = serde_json::from_slice::<Object>(line) else { return };
                if object.get("id").and_then(Value::as_str) != Some(self.id) {
                    return;
                }
                let what = if spot.place == Place::Inbox {
                    What::Waits
                } else if spot.place == Place::Claim {
                    What::Claimed
                } else {
                    What::Kept
                };
                add(None, what, String::new());
                self.found(object);
            }
            Place::Dead => {
                let Ok(letter) = serde_json::from_slice::<Object>(line) else { return };
                let raw = letter.get("raw").and_then(Value::as_str).unwrap_or_default();
                let id =
                    serde_json::from_str::<Object>(raw).ok().and_then(|it| it.get("id").cloned());
                if id.is_some_and(|id| id != self.id) {
                    return;
                }
                let text = letter.get("reason").and_then(Value::as_str).unwrap_or_default();
                add(letter.get("at").and_then(Value::as_f64), What::Dead, text.to_owned());
            }
            Place::Log => {
                let Ok(logged) = serde_json::from_slice::<Object>(line) else { return };
                let at = logged.get("timestamp").and_then(Value::as_str);
                let at = at.and_then(|at| at.parse::<jiff::Timestamp>().ok());
                let text = logged.get("message").and_then(Value::as_str).unwrap_or_default();
                add(at.map(|at| at.as_duration().as_secs_f64()), What::Logged, text.to_owned());
            }
            Place::Transcript => {
                if let Some(line) = Line::read(line) {
                    self.transcript(reader, spot, line);
                }
            }
        }
    }

    fn transcript(&mut self, reader: &mut Reader<'_>, spot: &Spot, line: Line) {
        let (at, agent) = (Some(line.at), reader.name.to_string());
        let mut steps = Vec::new();
        let mut add = |what, text: String| {
            let (file, offset) = (spot.file.display().to_string(), spot.offset);
            steps.push(Step { at, agent: agent.clone(), what, file, offset, text });
        };
        let mut found = None;
        match line.entry {
            Entry::Mail { message, .. }
                if message.get("id").and_then(Value::as_str) == Some(self.id) =>
            {
                add(What::TakenIn, String::new());
                (reader.unanswered, reader.in_turn) = (true, true);
                found = Some(message);
            }
            Entry::Assistant { blocks, .. } => {
                let is_the_call = |block: &&Block| matches!(block, Block::ToolUse { id, .. } if Some(id.as_str()) == self.call);
                if let Some(Block::ToolUse { name, .. }) = blocks.iter().find(is_the_call) {
                    add(What::Called, name.clone());
                }
                if std::mem::take(&mut reader.unanswered) {
                    add(What::Read, said(&blocks));
                }
            }
            Entry::ToolResult { tool_use_id, content, .. }
                if Some(tool_use_id.as_str()) == self.call =>
            {
                add(What::Told, content);
            }
            Entry::TurnEnd { outcome, report, .. } => {
                if report.as_ref().is_some_and(|report| report.id == self.id) {
                    add(What::Reported, String::new());
                }
                if std::mem::take(&mut reader.in_turn) {
                    let told = report.map_or_else(String::new, |it| format!(", told as {}", it.id));
                    add(What::TurnEnded, format!("{}{told}", outcome_word(outcome)));
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
        self.steps.append(&mut steps);
        if let Some(message) = found {
            self.found(message);
        }
    }

    /// The message itself: when it was sent stands in it.
    fn found(&mut self, object: Object) {
        if self.message.is_some() {
            return;
        }
        if let Ok(message) = Message::read(&object)
            && let Some(at) = sent_at(&object)
        {
            let text = object.get("to").and_then(Value::as_str).unwrap_or_default().to_owned();
            let agent = message.from.clone();
            let (file, offset) = (String::new(), 0);
            self.steps.push(Step { at: Some(at), agent, what: What::Sent, file, offset, text });
        }
        self.message = Some(object);
    }

    /// Answers carry the request's id.
    fn look_for_answer(
        &mut self,
        team: &TeamDir,
        name: &AgentName,
        request: &str,
    ) -> Result<(), Failure> {
        each_line(team, name, |spot, line| {
            if !std::str::from_utf8(line).is_ok_and(|line| line.contains(request)) {
                return;
            }
            let object: Option<Object> = match spot.place {
                Place::Inbox | Place::Claim => serde_json::from_slice(line).ok(),
                Place::Transcript => mail_of(line),
                Place::TakenClaim | Place::Dead | Place::Log => None,
            };
            let Some(object) = object else { return };
            let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
            if word("request_id") == request && word("id") != self.id {
                let (file, offset) = (spot.file.display().to_string(), spot.offset);
                let text = format!("{} to {name}, {}", word("type"), word("id"));
                let (at, agent) = (sent_at(&object), word("from").to_owned());
                self.steps.push(Step { at, agent, what: What::Answered, file, offset, text });
            }
        })
        .map_err(store_failure)
    }
}

/// The message that a transcript line acknowledges.
fn mail_of(line: &[u8]) -> Option<Object> {
    let Entry::Mail { message, .. } = Line::read(line)?.entry else { return None };
    Some(message)
}

fn sent_at(message: &Object) -> Option<Timestamp> {
    message.get("timestamp").or_else(|| message.get("ts")).and_then(Value::as_f64)
}

/// What a reply does, in short.
fn said(blocks: &[Block]) -> String {
    let part = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolUse { name, .. } => Some(format!("calls {name}")),
        Block::ToolResult { .. } | Block::Opaque { .. } => None,
    };
    blocks.iter().filter_map(part).collect::<Vec<_>>().join("; ")
}

fn as_json(step: &Step) -> Value {
    let is_in_file = !step.file.is_empty();
    json!({
        "at": step.at,
        "agent": step.agent,
        "event": step.what.word(),
        "file": is_in_file.then_some(&step.file),
        "offset": is_in_file.then_some(step.offset),
        "text": step.text,
    })
}
