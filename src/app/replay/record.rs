//! A record as a whole: its members, the place at which its play ends, and what in it cannot be played.

use super::masks::Names;
use crate::agent::conversation::{BreakCause, break_cause};
use crate::agent::replay::list::RecordedList;
use crate::app::lead::TEAM_STOPS;
use crate::error::{Exit, Failure};
use crate::protocol::timers::is_reminder;
use crate::store::replay::{each_entry, recorded_agents};
use crate::store::{StoreError, TeamDir, roster};
use crate::wire::chat::Block;
use crate::wire::message::{Body, Message, Outcome};
use crate::wire::roster::{Roster, StartedBy};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use std::collections::{BTreeMap, BTreeSet};

/// A time after any other one of the record, in seconds.
const NEXT: f64 = 1e-6;

/// The record, as far as it concerns the whole team.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) agents: Vec<AgentName>,
    models: Vec<String>,
    /// The times at which the turns of the lead ended.
    turns: Vec<WallTime>,
    /// The time at which the lead began to end, and to stop the team.
    closing: Option<WallTime>,
    /// The first step that is not played, and the reason.
    barrier: Option<(WallTime, String)>,
    /// The most calls of a model in one turn.
    pub(super) rounds: u32,
    /// Whether members took tasks from the list by themselves.
    pub(super) takes_tasks: bool,
    /// The reason for which it cannot be played at all, and a hint.
    unplayable: Option<(String, &'static str)>,
}

/// The state of a member while its transcript is read.
struct Reader<'a> {
    seen: &'a mut Seen,
    name: AgentName,
    sessions: u32,
    /// The calls of the model in this turn.
    rounds: u32,
    /// The first entry that was left because the turn is cut short, with the cause.
    break_cause: Option<(WallTime, BreakCause)>,
    /// The questions that are open, with their times.
    asked: BTreeMap<String, WallTime>,
    /// The last reply, while a step that follows from it has not begun.
    open_reply: Option<OpenReply>,
}

/// A reply whose turn has not ended, or whose calls have not all begun.
struct OpenReply {
    at: WallTime,
    /// The calls that have not begun.
    calls: BTreeSet<String>,
}

impl Seen {
    pub(super) fn read(record: &TeamDir) -> Result<Self, StoreError> {
        let mut seen = Self { agents: recorded_agents(record)?, ..Self::default() };
        seen.read_roster(&*roster::read(record)?);
        for name in seen.agents.clone() {
            let mut reader = Reader {
                seen: &mut seen,
                name: name.clone(),
                sessions: 0,
                rounds: 0,
                break_cause: None,
                asked: BTreeMap::new(),
                open_reply: None,
            };
            each_entry(record, &name, |line| reader.read(line))?;
            let Reader { asked, .. } = reader;
            for at in asked.into_values() {
                seen.stop_before(at, || format!("a question of {name} is not answered there"));
            }
        }
        if let Some((at, id)) = RecordedList::read(record)?.changed_by_person {
            seen.stop_before(at, || format!("the person changes task {id} there"));
        }
        Ok(seen)
    }

    fn read_roster(&mut self, roster: &Roster) {
        let members = roster.members.iter().map(|member| member.model.clone());
        self.models.extend(roster.lead.iter().map(|lead| lead.model.clone()).chain(members));
        for member in &roster.members {
            if member.work.is_some() {
                let why = format!("{} worked in a clone of a repository", member.name);
                let hint = "play a record whose members all worked in the folder of the team";
                self.unplayable.get_or_insert((why, hint));
            }
            if member.started_by == StartedBy::Hand {
                let why = format!("{} was started by hand, which no replay does", member.name);
                let hint = "play a record whose members were all started by the lead";
                self.unplayable.get_or_insert((why, hint));
            }
        }
    }

    /// Fails if nothing of the record can be played.
    pub(super) fn refuse_unplayable(&self, record: &TeamDir) -> Result<(), Failure> {
        let Some((why, hint)) = &self.unplayable else { return Ok(()) };
        let what = format!("{} cannot be played again", record.root().display());
        Err(Failure::new(Exit::Usage, what, why.as_str(), *hint))
    }

    /// Notes a step that is not played.
    fn stop_before(&mut self, at: WallTime, why: impl FnOnce() -> String) {
        if self.barrier.as_ref().is_none_or(|(first, _)| at < *first) {
            self.barrier = Some((at, why()));
        }
    }

    fn close_at(&mut self, at: WallTime) {
        self.closing = Some(self.closing.filter(|first| *first < at).unwrap_or(at));
    }

    fn note_model(&mut self, name: &AgentName, model: String, is_foreign: bool) {
        let is_foreign = is_foreign || ["acp/", "mcp/"].iter().any(|kind| model.starts_with(kind));
        if is_foreign {
            let why = format!("{name} ran {model}, whose replies are not in the record");
            let hint = "play a record whose members all ran a model of this program";
            self.unplayable.get_or_insert((why, hint));
        }
        if !self.models.contains(&model) {
            self.models.push(model);
        }
    }

    /// Returns the time in the record at which the play ends, and the reason if that is not the end of the record.
    pub(super) fn end(
        &self,
        until: Option<u64>,
    ) -> Result<(Option<WallTime>, Option<String>), Failure> {
        let mut end = (self.closing, None);
        let is_before = |time: WallTime, end: Option<WallTime>| end.is_none_or(|end| time < end);
        if let Some((time, why)) = &self.barrier {
            // A lead that is resumed comes after the end of the first one.
            let time = if is_before(*time, end.0) { Some(*time) } else { end.0 };
            end = (time, Some(format!("{why}, which is not played")));
        }
        let Some(turn) = until else { return Ok(end) };
        let at = usize::try_from(turn).unwrap_or(usize::MAX).checked_sub(1);
        let Some(time) = at.and_then(|at| self.turns.get(at)) else {
            let what = format!("the record has no turn {turn} of the lead");
            let why = format!("its lead has ended {} turns", self.turns.len());
            return Err(Failure::new(Exit::Usage, what, why, "name one of these after --until"));
        };
        if is_before(*time, end.0) {
            let time = WallTime::from_secs(time.as_secs() + NEXT);
            end = (Some(time), Some(format!("turn {turn} of the lead ends there")));
        }
        Ok(end)
    }

    /// Returns the names that are masked in the transcripts of a team.
    pub(super) fn names(&self, team: &TeamDir) -> Names {
        let mut names = Names::default();
        let workspace = team.workspace();
        names.add(workspace.display().to_string(), "<folder>");
        if let Ok(real) = std::fs::canonicalize(workspace) {
            names.add(real.display().to_string(), "<folder>");
        }
        for model in self.models.iter().map(String::as_str).chain(["replay"]) {
            names.add(model, "<model>");
        }
        names
    }
}

impl Reader<'_> {
    fn read(&mut self, Line { at, entry }: Line) {
        match break_cause(&entry) {
            Some(cause) => drop(self.break_cause.get_or_insert((at, cause))),
            None if !matches!(entry, Entry::TurnEnd { .. }) => self.break_cause = None,
            None => {}
        }
        self.follow_reply(at, &entry);
        match entry {
            Entry::Session { model, foreign, .. } => {
                self.begin_session(at, model, foreign.is_some());
            }
            Entry::Assistant { .. } => {
                self.rounds += 1;
                self.seen.rounds = self.seen.rounds.max(self.rounds);
            }
            Entry::TurnEnd { outcome, cut_off, .. } => self.end_turn(at, outcome, cut_off),
            Entry::Mail { message, .. } => {
                if let Ok(message) = Message::read(&message) {
                    self.read_mail(at, &message);
                }
            }
            Entry::Request { question, .. } => {
                self.asked.insert(question.request_id, at);
            }
            Entry::Decision(decision) => {
                let asked = self.asked.remove(&decision.request_id);
                if decision.by == AgentName::user().as_str() {
                    let name = &self.name;
                    let why = || format!("the person answers a question of {name} there");
                    self.seen.stop_before(asked.unwrap_or(at), why);
                }
            }
            Entry::Subagent(start) => {
                let why =
                    format!("it has the subagent {}, and no subagent is played yet", start.id);
                let hint = "play a record without subagents";
                self.seen.unplayable.get_or_insert((why, hint));
            }
            Entry::User { .. }
            | Entry::ToolStart { .. }
            | Entry::ToolResult { .. }
            | Entry::Interrupt { .. }
            | Entry::Model { .. }
            | Entry::Note { .. }
            | Entry::Instructions { .. }
            | Entry::Compacted { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::HandedOut { .. }
            | Entry::Unknown => {}
        }
    }

    fn begin_session(&mut self, at: WallTime, model: String, is_foreign: bool) {
        self.sessions += 1;
        self.seen.note_model(&self.name, model, is_foreign);
        let open_reply = self.open_reply.take();
        if self.name.is_lead() {
            if self.sessions > 1 {
                self.seen.stop_before(at, || "the lead is resumed there".to_owned());
            }
        } else if let Some(OpenReply { at, .. }) = open_reply {
            let name = &self.name;
            self.seen.stop_before(at, || format!("{name} is killed there between two steps"));
        }
    }

    /// Follows the steps after a reply. A member crashes again in a call, or while it waits for its model or for mail.
    fn follow_reply(&mut self, at: WallTime, entry: &Entry) {
        if let Entry::Assistant { blocks, .. } = entry {
            let id = |block: &Block| {
                if let Block::ToolUse { id, .. } = block { Some(id.clone()) } else { None }
            };
            self.open_reply = Some(OpenReply { at, calls: blocks.iter().filter_map(id).collect() });
            return;
        }
        let Some(OpenReply { calls, .. }) = &mut self.open_reply else { return };
        let is_followed = if let Entry::ToolStart { tool_use_id, .. }
        | Entry::ToolResult { tool_use_id, .. } = entry
        {
            calls.remove(tool_use_id);
            calls.is_empty()
        } else if let Entry::Mail { .. } | Entry::User { .. } = entry {
            // After a reply without calls, mail keeps the turn going.
            calls.is_empty()
        } else {
            matches!(entry, Entry::TurnEnd { .. })
        };
        if is_followed {
            self.open_reply = None;
        }
    }

    fn end_turn(&mut self, at: WallTime, outcome: Outcome, cut_off: bool) {
        self.rounds = 0;
        let (began, cause) = self.break_cause.take().unzip();
        let began = began.unwrap_or(at);
        if self.name.is_lead() {
            self.seen.turns.push(at);
            if cut_off {
                self.seen.close_at(began);
            }
        }
        if outcome == Outcome::Interrupted && cause == Some(BreakCause::Interrupted) {
            let name = &self.name;
            self.seen.stop_before(began, || format!("{name} is interrupted there"));
        }
    }

    fn read_mail(&mut self, at: WallTime, message: &Message) {
        let is_of = |name: AgentName| message.from == name.as_str();
        if let Body::TaskAssignment { .. } = &message.body {
            self.seen.takes_tasks |= is_of(AgentName::system());
        } else if let Body::ShutdownRequest { reason: Some(reason), .. } = &message.body
            && reason == TEAM_STOPS
            && is_of(AgentName::lead())
            && let Some(sent_at) = message.timestamp
        {
            self.seen.close_at(sent_at);
        } else if is_reminder(message) {
            let name = &self.name;
            self.seen.stop_before(at, || format!("a reminder comes to {name} there"));
        }
    }
}
