//! The path of one message, from the files alone: the call that sent it, its place in inbox or transcript, the
//! reply of its recipient, and answers to it. Each step has the line that proves it.
//!
//! *Invariant:* files are read in parts: a long conversation is never in memory as a whole.

use super::change::Stage;
use crate::store::conversations::index::Sought;
use crate::store::mail_search::{
    LineLocation, NextLine, SearchLocation, carried, each_line, each_log_line,
};
use crate::store::relay::copies;
use crate::store::{StoreError, TeamDir, roster};
use crate::tools;
use crate::wire::carried::HostName;
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::tool::Purpose;
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde::Serialize;
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

type Object = Map<String, Value>;

/// The number of bytes at the beginning of a result in which the id of its call stands.
const RESULT_HEAD: usize = 512;

/// The largest step of the clock back for which a file is found that was written after a message, in seconds.
const CLOCK_STEP_SECONDS: f64 = 3600.0;

/// The longest line that is shown in full, in characters.
const LINE_CHARS: usize = 4000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceEvent {
    /// A model called the tool that sends the message.
    Called,
    /// The program sent the message at the end of a turn.
    Reported,
    Sent,
    /// The sender's model got the result of the call.
    Told,
    Waits,
    /// A relay has the message, on its way to the host of its recipient.
    OnItsWay,
    Arrived,
    /// The message is in a batch that its recipient has claimed.
    Claimed,
    /// The message is in a batch that was claimed and processed.
    #[serde(rename = "kept")]
    Processed,
    /// The message is in the recipient's transcript.
    TakenIn,
    /// The recipient's model has replied to the message.
    Read,
    /// The turn in which the message was received has ended.
    TurnEnded,
    Answered,
    /// The message could not be delivered.
    Dead,
    /// A log line names the message.
    Logged,
}

impl TraceEvent {
    /// Returns the stage of the message that this step proves, if any.
    pub(crate) fn stage(self) -> Option<Stage> {
        let stages = [
            (Stage::Sent, &[Self::Called, Self::Reported][..]),
            (Stage::Appended, &[Self::Waits, Self::OnItsWay, Self::Arrived]),
            (Stage::Claimed, &[Self::Claimed, Self::Processed]),
            (Stage::Acknowledged, &[Self::TakenIn]),
            (Stage::Answered, &[Self::Read]),
        ];
        stages.iter().find(|(_, steps)| steps.contains(&self)).map(|(stage, _)| *stage)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// The time of the step; `None` for the present place of the message.
    pub(crate) at: Option<WallTime>,
    /// The agent that acted, or the agent in whose files the line is.
    pub(crate) agent: String,
    pub(crate) what: TraceEvent,
    pub(crate) text: String,
    /// The line that proves the step; `None` if the message itself proves it.
    pub(crate) proof: Option<Proof>,
}

/// A line on disk that proves a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Proof {
    /// The file, relative to the team folder.
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) text: String,
    /// For a line of a transcript: the claim that had the message, and the byte offset there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<(String, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The message as received, if it is in any file.
    pub(crate) message: Option<Object>,
    /// The steps by time; the present place comes last.
    pub(crate) steps: Vec<Step>,
}

/// Returns the ids that `given` may mean: itself if it is the id of a message, else every id that begins with it, with or
/// without the name of the sender.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn ids(team: &TeamDir, given: &str) -> Result<Vec<String>, StoreError> {
    let mut found = BTreeSet::new();
    for Searched { folder, .. } in &all_searched(team)? {
        for name in folder.agents()? {
            // The line of a call has the call's id without the name of its agent.
            let part = match given.split_once(':') {
                Some((_, call)) => call,
                None if name.as_str().starts_with(given) => "",
                None => given,
            };
            each_line(folder, &name, &[Sought::Part(part)], &Cell::default(), |spot, line| {
                // A result names no message; most of a transcript is results.
                if !is_own_result(line) {
                    let ids = ids_in(&name, spot.place, line);
                    found.extend(ids.filter(|id| begins_with(id, given)));
                }
                NextLine::Matching
            })?;
        }
    }
    if found.contains(given) {
        return Ok(vec![given.to_owned()]);
    }
    let is_whole = |id: &&String| id.split_once(':').is_some_and(|(_, rest)| rest == given);
    let whole: Vec<String> = found.iter().filter(is_whole).cloned().collect();
    Ok(if whole.is_empty() { found.into_iter().collect() } else { whole })
}

/// Whether an id begins with a text, with or without the name of the sender before it.
fn begins_with(id: &str, given: &str) -> bool {
    id.starts_with(given) || id.split_once(':').is_some_and(|(_, rest)| rest.starts_with(given))
}

/// Returns the ids of the messages that a line holds, or that its tool calls send.
fn ids_in(name: &AgentName, place: SearchLocation, line: &[u8]) -> impl Iterator<Item = String> {
    let id_of = |message: &Object| word(message, "id").map(str::to_owned);
    let whole = || serde_json::from_slice::<Object>(line).ok();
    let mut calls = Vec::new();
    let id = match place {
        SearchLocation::Inbox | SearchLocation::Claim | SearchLocation::TakenClaim => {
            whole().as_ref().and_then(id_of)
        }
        SearchLocation::Outbox | SearchLocation::Acknowledged => {
            carried(line).as_ref().and_then(id_of)
        }
        SearchLocation::Dead => whole().as_ref().and_then(raw_message).as_ref().and_then(id_of),
        SearchLocation::Transcript => match Line::read(line).map(|line| line.entry) {
            Some(Entry::Mail { message, .. }) => id_of(&message),
            Some(Entry::TurnEnd { report, .. }) => report.map(|report| report.id),
            Some(Entry::Assistant { blocks, .. }) => {
                calls.extend(blocks.into_iter().filter_map(|block| {
                    let Block::ToolUse { id, name: tool, .. } = block else { return None };
                    sends(&tool).then(|| format!("{name}:{id}"))
                }));
                None
            }
            _ => None,
        },
        SearchLocation::Log => None,
    };
    id.into_iter().chain(calls)
}

/// Whether the tool of this name sends messages.
pub(crate) fn sends(tool: &str) -> bool {
    tools::find(tool).is_some_and(|tool| tool.purpose == Purpose::Talk)
}

/// Returns the message in a dead letter, if the letter is one.
fn raw_message(letter: &Object) -> Option<Object> {
    serde_json::from_str(word(letter, "raw")?).ok()
}

/// Whether a text names exactly this id, not a longer one that contains it.
fn names_id(text: &str, id: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ':');
    text.match_indices(id).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + id.len()..));
        let mut after = after.unwrap_or_default().chars();
        let goes_on = match after.next() {
            // A colon may end a phrase; before a recipient it continues the id.
            Some(':') => after.next().is_some_and(is_part),
            next => next.is_some_and(is_part),
        };
        !goes_on && !before.unwrap_or_default().ends_with(is_part)
    })
}

/// Searches all files for a message.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn of(team: &TeamDir, id: &str) -> Result<Trace, StoreError> {
    let since = made_at(id).map(with_clock_step);
    let found = search(team, id, since)?;
    // A larger step of the clock makes files look older than the message.
    if since.is_some() && found.steps.is_empty() { search(team, id, None) } else { Ok(found) }
}

/// Returns the time of a message from its id, if the id tells it.
fn made_at(id: &str) -> Option<WallTime> {
    let mut parts = id.split(':').filter_map(|part| Uuid::try_parse(part).ok());
    let (seconds, nanos) = parts.find_map(|uuid| uuid.get_timestamp())?.to_unix();
    Some(Duration::new(seconds, nanos).as_secs_f64().into())
}

/// Returns a time before which nothing was written about what happened at `at`.
fn with_clock_step(at: WallTime) -> WallTime {
    WallTime::from_secs(at.as_secs() - CLOCK_STEP_SECONDS)
}

/// A folder that is searched.
struct Searched {
    folder: TeamDir,
    /// The path of the folder below that of the team; empty for that itself.
    below: PathBuf,
    /// The host whose files it has; `None` for this one.
    host: Option<HostName>,
}

/// Returns the team folder, and the copies of the files of other hosts.
fn all_searched(team: &TeamDir) -> Result<Vec<Searched>, StoreError> {
    let below = |folder: &TeamDir| {
        folder.root().strip_prefix(team.root()).map(PathBuf::from).unwrap_or_default()
    };
    let copy = |(host, folder): (HostName, TeamDir)| Searched {
        below: below(&folder),
        folder,
        host: Some(host),
    };
    let own = Searched { folder: team.clone(), below: PathBuf::new(), host: None };
    Ok(std::iter::once(own).chain(copies::all(team)?.into_iter().map(copy)).collect())
}

/// Searches all files but the conversations that were written only before `since`.
fn search(team: &TeamDir, id: &str, since: Option<WallTime>) -> Result<Trace, StoreError> {
    let call = id.split_once(':').filter(|(_, call)| !call.is_empty());
    let roster = roster::read(team)?;
    let lead = roster.lead.iter().map(|lead| (lead.name.clone(), lead.host.clone()));
    let members = roster.members.iter().map(|it| (it.name.clone(), it.host.clone()));
    let homes = lead.chain(members).collect();
    let mut search = Search { id, call, since: Cell::new(since), homes, trace: Trace::default() };
    let searched = all_searched(team)?;
    let mut agents: Vec<(&Searched, AgentName)> = Vec::new();
    for place in &searched {
        agents.extend(place.folder.agents()?.into_iter().map(|name| (place, name)));
    }
    // The time of the call tells which of the older files may have the message.
    agents.sort_by_key(|(_, name)| call.is_none_or(|(sender, _)| name.as_str() != sender));
    let called = call.map(|(_, call)| Sought::Call(call_of(call)));
    let words: Vec<Sought<'_>> = called.into_iter().chain([Sought::Part(id)]).collect();
    for (place, name) in &agents {
        let mut reader = AgentScan::of(name, place);
        let since = search.since.clone();
        each_line(&place.folder, name, &words, &since, |spot, line| {
            reader.begin(spot);
            search.meet(&mut reader, spot, line);
            since.set(search.since.get());
            reader.next_line()
        })?;
    }
    search.read_logs(&agents)?;
    let message = search.trace.message.as_ref();
    let request = message.and_then(|message| word(message, "request_id")).map(str::to_owned);
    if let Some(request) = request {
        for (place, name) in &agents {
            search.look_for_answer(place, name, &request)?;
        }
    }
    let time = |step: &Step| step.at.map_or(f64::INFINITY, WallTime::as_secs);
    search.trace.steps.sort_by(|a, b| time(a).total_cmp(&time(b)));
    // A conversation that is archived meanwhile is read twice.
    let words = |step: &Step| (step.at, step.agent.clone(), step.what, step.text.clone());
    search.trace.steps.dedup_by_key(|step| words(step));
    // The files of its host, where they are seen, tell more than that it is there.
    let is_seen = search.trace.steps.iter().any(|step| step.what == TraceEvent::TakenIn);
    search.trace.steps.retain(|step| !is_seen || step.what != TraceEvent::Arrived);
    Ok(search.trace)
}

struct Search<'a> {
    id: &'a str,
    /// The sender, and the id of the call that sent the message, if the message id contains them.
    call: Option<(&'a str, &'a str)>,
    /// The time from which on archived conversations are searched.
    since: Cell<Option<WallTime>>,
    /// The host of each agent of the roster; `None` for this one.
    homes: BTreeMap<String, Option<String>>,
    trace: Trace,
}

/// The state of reading one agent's files.
struct AgentScan<'a> {
    name: &'a AgentName,
    place: &'a Searched,
    /// The file that is read.
    file: PathBuf,
    /// Whether the agent has received the message and its model has not replied since.
    unanswered: bool,
    /// Whether the agent has received the message and the turn has not ended.
    in_turn: bool,
}

impl<'a> AgentScan<'a> {
    fn of(name: &'a AgentName, place: &'a Searched) -> Self {
        Self { name, place, file: PathBuf::new(), unanswered: false, in_turn: false }
    }

    /// Notes the file of a line. A turn is in one file.
    fn begin(&mut self, spot: &LineLocation) {
        if self.file != spot.file {
            *self = Self { file: spot.file.clone(), ..Self::of(self.name, self.place) };
        }
    }

    /// The lines of a turn that answers the message do not name it.
    fn next_line(&self) -> NextLine {
        if self.in_turn { NextLine::Following } else { NextLine::Matching }
    }
}

impl Search<'_> {
    fn meet(&mut self, reader: &mut AgentScan<'_>, spot: &LineLocation, line: &[u8]) {
        let text = searched_part(line);
        let names = |word: &str| text.contains(word);
        let is_transcript = spot.place == SearchLocation::Transcript;
        let is_called = || self.call.is_some_and(|(_, call)| names(call_of(call)));
        if !names(self.id) && !(is_transcript && (reader.in_turn || is_called())) {
            return;
        }
        if is_transcript {
            if let Some(read) = Line::read(line) {
                self.transcript(reader, read, reader.place.proof(spot, line));
            }
            return;
        }
        let is_outbox = spot.place.is_outbox();
        let object = if is_outbox { carried(line) } else { serde_json::from_slice(line).ok() };
        let Some(object) = object else { return };
        let (what, at, text) = match spot.place {
            SearchLocation::Inbox if self.is_for_other_host(reader) => {
                (TraceEvent::OnItsWay, None, reader.place.words())
            }
            SearchLocation::Inbox => (TraceEvent::Waits, None, reader.place.words()),
            SearchLocation::Outbox => (TraceEvent::OnItsWay, None, reader.place.words()),
            SearchLocation::Acknowledged => (TraceEvent::Arrived, None, reader.place.words()),
            SearchLocation::Claim => (TraceEvent::Claimed, None, reader.place.words()),
            SearchLocation::TakenClaim => (TraceEvent::Processed, None, reader.place.words()),
            SearchLocation::Dead => {
                let at = object.get("at").and_then(Value::as_f64).map(WallTime::from_secs);
                (TraceEvent::Dead, at, word(&object, "reason").map(str::to_owned))
            }
            SearchLocation::Log => {
                let at = word(&object, "timestamp").and_then(|at| at.parse().ok());
                let at = at.map(|at: jiff::Timestamp| at.as_duration().as_secs_f64().into());
                (TraceEvent::Logged, at, word(&object, "message").map(str::to_owned))
            }
            SearchLocation::Transcript => return,
        };
        let is_mail = what != TraceEvent::Dead && what != TraceEvent::Logged;
        let is_meant = if what == TraceEvent::Logged {
            names_id(&String::from_utf8_lossy(line), self.id)
        } else if what == TraceEvent::Dead {
            raw_message(&object).is_some_and(|raw| word(&raw, "id") == Some(self.id))
        } else {
            word(&object, "id") == Some(self.id)
        };
        if !is_meant {
            return;
        }
        let (text, proof) = (text.unwrap_or_default(), reader.place.proof(spot, line));
        self.add(reader.name.as_str(), at, what, text, proof);
        if is_mail {
            self.found(object);
        }
    }

    /// Whether the files of an agent that are read are only those with mail for its host.
    fn is_for_other_host(&self, reader: &AgentScan<'_>) -> bool {
        let here = reader.place.host.as_ref().map(HostName::as_str);
        let home = self.homes.get(reader.name.as_str());
        home.is_some_and(|home| home.as_deref() != here)
    }

    fn add(
        &mut self,
        agent: &str,
        at: Option<WallTime>,
        what: TraceEvent,
        text: String,
        proof: impl Into<Option<Proof>>,
    ) {
        let (agent, proof) = (agent.to_string(), proof.into());
        self.trace.steps.push(Step { at, agent, what, text, proof });
    }

    fn transcript(&mut self, reader: &mut AgentScan<'_>, line: Line, proof: Proof) {
        let (name, at) = (reader.name.as_str(), Some(line.at));
        let is_the_call =
            |id: &str| self.call.is_some_and(|(from, call)| from == name && call_of(call) == id);
        match line.entry {
            Entry::Mail { message, claim, offset, verified }
                if word(&message, "id") == Some(self.id) =>
            {
                let proof = Proof { claim: Some((claim, offset)), ..proof };
                let text = if verified { "" } else { "its sender is not verified" };
                self.add(name, at, TraceEvent::TakenIn, text.into(), proof);
                (reader.unanswered, reader.in_turn) = (true, true);
                self.found(message);
            }
            Entry::Assistant { blocks, .. } => {
                let tool = blocks.iter().find_map(|block| {
                    let Block::ToolUse { id, name, .. } = block else { return None };
                    is_the_call(id).then(|| name.clone())
                });
                if let Some(tool) = tool {
                    self.since.set(self.since.get().or(at.map(with_clock_step)));
                    self.add(name, at, TraceEvent::Called, tool, proof.clone());
                }
                if std::mem::take(&mut reader.unanswered) {
                    self.add(name, at, TraceEvent::Read, summary(&blocks), proof);
                }
            }
            Entry::ToolResult { tool_use_id, content, .. } if is_the_call(&tool_use_id) => {
                self.add(name, at, TraceEvent::Told, content, proof);
            }
            Entry::TurnEnd { outcome, report, .. } => {
                if report.as_ref().is_some_and(|report| report.id == self.id) {
                    self.add(name, at, TraceEvent::Reported, String::new(), proof.clone());
                }
                if std::mem::take(&mut reader.in_turn) {
                    let told = report.map_or_else(String::new, |it| format!(", told as {}", it.id));
                    let text = outcome.word().to_owned() + &told;
                    self.add(name, at, TraceEvent::TurnEnded, text, proof);
                }
            }
            Entry::Mail { .. }
            | Entry::ToolResult { .. }
            | Entry::Session { .. }
            | Entry::User { .. }
            | Entry::ToolStart { .. }
            | Entry::Subagent(_)
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::Model { .. }
            | Entry::Compacted { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Interrupt { .. }
            | Entry::HandedOut { .. }
            | Entry::Unknown => {}
        }
    }

    /// Keeps the message, and adds the step at which it was sent.
    fn found(&mut self, object: Object) {
        if self.trace.message.is_some() {
            return;
        }
        if let Ok(message) = Message::read(&object)
            && let Some(at) = sent_at(&object)
        {
            let to = word(&object, "to").unwrap_or_default().to_owned();
            self.add(&message.from, Some(at), TraceEvent::Sent, to, None);
        }
        self.trace.message = Some(object);
    }

    /// Searches the logs, as far as they were written after the message. Without a step elsewhere there is no message.
    fn read_logs(&mut self, agents: &[(&Searched, AgentName)]) -> Result<(), StoreError> {
        if self.trace.steps.is_empty() {
            return Ok(());
        }
        let times = self.trace.steps.iter().filter_map(|step| step.at);
        let first = times.min_by(|a, b| a.as_secs().total_cmp(&b.as_secs()));
        let since = first.map(with_clock_step);
        for (place, name) in agents {
            let mut reader = AgentScan::of(name, place);
            each_log_line(&place.folder, name, since, &[Sought::Part(self.id)], |spot, line| {
                self.meet(&mut reader, spot, line);
                NextLine::Matching
            })?;
        }
        Ok(())
    }

    /// Searches for answers, which carry the request's id.
    fn look_for_answer(
        &mut self,
        place: &Searched,
        name: &AgentName,
        request: &str,
    ) -> Result<(), StoreError> {
        each_line(
            &place.folder,
            name,
            &[Sought::Part(request)],
            &self.since.clone(),
            |spot, line| {
                let object: Option<Object> = match spot.place {
                    SearchLocation::Inbox | SearchLocation::Claim => {
                        serde_json::from_slice(line).ok()
                    }
                    SearchLocation::Transcript => Line::read(line).and_then(|line| {
                        let Entry::Mail { message, .. } = line.entry else { return None };
                        Some(message)
                    }),
                    SearchLocation::Outbox | SearchLocation::Acknowledged => carried(line),
                    SearchLocation::TakenClaim | SearchLocation::Dead | SearchLocation::Log => None,
                };
                let Some(object) = object else { return NextLine::Matching };
                let word = |key: &str| word(&object, key).unwrap_or_default();
                if word("request_id") == request && word("id") != self.id {
                    let text = format!("{} to {name}, {}", word("type"), word("id"));
                    let (at, proof) = (sent_at(&object), place.proof(spot, line));
                    self.add(word("from"), at, TraceEvent::Answered, text, proof);
                }
                NextLine::Matching
            },
        )
    }
}

/// Whether this program wrote the line of a result, so that its kind is known without parsing it.
fn is_own_result(line: &[u8]) -> bool {
    line.starts_with(br#"{"kind":"tool_result","at":"#)
}

/// Returns the part of a line that may name a message or a call: of a result, the beginning, which has the id of its call.
fn searched_part(line: &[u8]) -> &str {
    if !is_own_result(line) {
        return std::str::from_utf8(line).unwrap_or_default();
    }
    let head = line.get(..RESULT_HEAD).unwrap_or(line);
    head.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default()
}

fn word<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// Returns the id of the call, without the recipient that a broadcast adds.
fn call_of(call: &str) -> &str {
    call.split_once(':').map_or(call, |(call, _)| call)
}

impl Searched {
    /// Returns the words for a place of mail on another host.
    fn words(&self) -> Option<String> {
        self.host.as_ref().map(|host| format!("on {host}"))
    }

    fn proof(&self, spot: &LineLocation, line: &[u8]) -> Proof {
        Proof {
            file: self.below.join(&spot.file).display().to_string(),
            offset: spot.offset,
            text: String::from_utf8_lossy(line).trim_end().chars().take(LINE_CHARS).collect(),
            claim: None,
        }
    }
}

fn sent_at(message: &Object) -> Option<WallTime> {
    let at = message.get("timestamp").or_else(|| message.get("ts")).and_then(Value::as_f64);
    at.map(WallTime::from_secs)
}

fn summary(blocks: &[Block]) -> String {
    let part = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolUse { name, .. } => Some(format!("calls {name}")),
        Block::ToolResult { .. } | Block::Image { .. } | Block::Opaque { .. } => None,
    };
    blocks.iter().filter_map(part).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
