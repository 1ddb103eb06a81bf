//! A record as a whole: its members, the parts of it that are played one after another, and what in it cannot be played.

use super::masks::Names;
use crate::agent::conversation::{BreakCause, break_cause};
use crate::agent::replay::list::RecordedList;
use crate::app::lead::TEAM_STOPS;
use crate::error::{Exit, Failure};
use crate::protocol::timers::is_reminder;
use crate::store::replay::{began_at, each_entry, recorded_agents};
use crate::store::{StoreError, TeamDir, roster};
use crate::wire::chat::Block;
use crate::wire::message::{Body, Message, Outcome};
use crate::wire::permission::{Decision, DecisionOutcome, QuestionKind};
use crate::wire::replay::PlayEnd;
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
    /// The runs of the lead, in order; there is at least one.
    runs: Vec<LeadRun>,
    /// The teammates that ended without being asked to, as they do without a lead, and the times.
    left_alone: Vec<(WallTime, AgentName)>,
    /// The first step that is not played, and the reason.
    barrier: Option<(WallTime, String)>,
    /// The most calls of a model in one turn.
    pub(super) rounds: u32,
    /// Whether members took tasks from the list by themselves.
    pub(super) takes_tasks: bool,
    /// The reason for which it cannot be played at all, and a hint.
    unplayable: Option<(String, &'static str)>,
}

/// A part of the record, from the start of a lead to that of the next one.
#[derive(Debug, Default)]
struct LeadRun {
    /// The time at which the next lead resumed the team.
    resumed_at: Option<WallTime>,
    /// The time at which the lead began to end, and to stop the team; `None` if all processes were killed.
    closing: Option<WallTime>,
    /// The calls of the lead's model, in this run and those before it.
    calls: usize,
}

/// A part of the record that is played by one process of the lead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Act {
    /// The time at which the team ends; `None` if the record has no end.
    pub(super) end: Option<WallTime>,
    pub(super) ending: PlayEnd,
    /// The time at which the next lead resumed the team.
    pub(super) resumed_at: Option<WallTime>,
    /// The calls of the lead's model, in this act and those before it.
    pub(super) calls: usize,
}

/// The state of a member while its transcript is read.
struct Reader<'a> {
    seen: &'a mut Seen,
    name: AgentName,
    /// Whether the process was asked to end.
    was_asked_to_end: bool,
    /// The calls of the model in this turn.
    rounds: u32,
    /// The first entry that was left because the turn is cut short, with the cause.
    break_cause: Option<(WallTime, BreakCause)>,
    /// The questions that are open, with their times.
    asked: BTreeMap<String, (WallTime, QuestionKind)>,
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
        seen.refuse_earlier(record)?;
        seen.runs = lead_runs(record)?;
        for name in seen.agents.clone() {
            let mut reader = Reader {
                seen: &mut seen,
                name: name.clone(),
                was_asked_to_end: false,
                rounds: 0,
                break_cause: None,
                asked: BTreeMap::new(),
                open_reply: None,
            };
            each_entry(record, &name, |line| reader.read(line))?;
            let Reader { asked, .. } = reader;
            for (at, _) in asked.into_values() {
                seen.stop_before(at, || format!("a question of {name} is not answered there"));
            }
        }
        if let Some((at, id)) = RecordedList::read(record)?.changed_by_person {
            seen.stop_before(at, || format!("the person changes task {id} there"));
        }
        for (at, name) in std::mem::take(&mut seen.left_alone) {
            let run = seen.runs.get(seen.run_number(at));
            // The last lead may be alive, or its end is not recorded.
            if run.is_some_and(|run| run.closing.is_none() && run.resumed_at.is_some()) {
                seen.stop_before(at, || format!("{name} goes on there after the lead was killed"));
            }
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

    /// Notes a member that has worked in an earlier conversation of the lead, too, which is not in the record.
    fn refuse_earlier(&mut self, record: &TeamDir) -> Result<(), StoreError> {
        let began = began_at(record, &AgentName::lead())?;
        for name in &self.agents {
            if began_at(record, name)? < began {
                let why =
                    format!("{name} began before the conversation that the lead had at the end");
                let hint = "play a record of teammates that worked in one conversation of the lead";
                self.unplayable.get_or_insert((why, hint));
            }
        }
        Ok(())
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

    fn run_number(&self, at: WallTime) -> usize {
        let is_over = |run: &LeadRun| run.resumed_at.is_some_and(|resumed| resumed <= at);
        self.runs.partition_point(is_over)
    }

    fn close_at(&mut self, at: WallTime) {
        let number = self.run_number(at);
        if let Some(run) = self.runs.get_mut(number) {
            run.closing = Some(run.closing.filter(|first| *first < at).unwrap_or(at));
        }
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

    /// Returns the parts that are played, up to this turn of the lead, and the reason if they are not the whole record.
    pub(super) fn acts(&self, until: Option<u64>) -> Result<(Vec<Act>, Option<String>), Failure> {
        let mut stop = self.barrier.clone();
        if let Some((_, why)) = &mut stop {
            why.push_str(", which is not played");
        }
        if let Some(turn) = until {
            let at = usize::try_from(turn).unwrap_or(usize::MAX).checked_sub(1);
            let Some(time) = at.and_then(|at| self.turns.get(at)) else {
                let what = format!("the record has no turn {turn} of the lead");
                let why = format!("its lead has ended {} turns", self.turns.len());
                return Err(Failure::new(
                    Exit::Usage,
                    what,
                    why,
                    "name one of these after --until",
                ));
            };
            if stop.as_ref().is_none_or(|(first, _)| time < first) {
                let time = WallTime::from_secs(time.as_secs() + NEXT);
                stop = Some((time, format!("turn {turn} of the lead ends there")));
            }
        }
        let mut acts = Vec::new();
        for LeadRun { resumed_at, closing, calls } in &self.runs {
            let (resumed_at, calls) = (*resumed_at, *calls);
            let end = closing.or(resumed_at);
            let ending =
                if closing.is_none() && end.is_some() { PlayEnd::Killed } else { PlayEnd::Ended };
            let act = Act { end, ending, resumed_at, calls };
            let is_here = |time: &WallTime| resumed_at.is_none_or(|resumed| *time < resumed);
            if let Some((time, why)) = stop.take_if(|(time, _)| is_here(time)) {
                let is_before_end = end.is_none_or(|end| time < end);
                // The end of the team is played as well, if nobody stops it there.
                let is_whole = !is_before_end && until.is_some() && self.barrier.is_none();
                let end = if is_before_end { Some(time) } else { end };
                acts.push(if is_whole { act } else { Act { end, ending: PlayEnd::Cut, ..act } });
                let is_last = resumed_at.is_none();
                return Ok((acts, (!is_whole || !is_last).then_some(why)));
            }
            acts.push(act);
        }
        Ok((acts, None))
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

/// Reads the runs of the lead.
fn lead_runs(record: &TeamDir) -> Result<Vec<LeadRun>, StoreError> {
    let mut runs: Vec<LeadRun> = Vec::new();
    let mut calls = 0;
    each_entry(record, &AgentName::lead(), |Line { at, entry }| {
        if let Entry::Session { .. } = entry {
            if let Some(last) = runs.last_mut() {
                last.resumed_at = Some(at);
            }
            runs.push(LeadRun { calls, ..LeadRun::default() });
        }
        calls += usize::from(matches!(entry, Entry::Assistant { .. } | Entry::Compacted { .. }));
        if let Some(last) = runs.last_mut() {
            last.calls = calls;
        }
    })?;
    if runs.is_empty() {
        runs.push(LeadRun::default());
    }
    Ok(runs)
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
                self.asked.insert(question.request_id, (at, question.about));
            }
            Entry::Decision(decision) => self.read_decision(&decision),
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
        self.seen.note_model(&self.name, model, is_foreign);
        let open_reply = self.open_reply.take();
        self.was_asked_to_end = false;
        for (asked_at, _) in std::mem::take(&mut self.asked).into_values() {
            let name = &self.name;
            self.seen
                .stop_before(asked_at, || format!("a question of {name} is not answered there"));
        }
        let Some(OpenReply { at: replied_at, calls }) = open_reply else { return };
        // All processes are killed at once, so none begins a call meanwhile.
        let is_of_kill = self.seen.run_number(at) != self.seen.run_number(replied_at);
        if !is_of_kill || calls.is_empty() {
            let name = &self.name;
            self.seen
                .stop_before(replied_at, || format!("{name} is killed there between two steps"));
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
        } else if cut_off && !self.was_asked_to_end {
            self.seen.left_alone.push((began, self.name.clone()));
        }
        if outcome == Outcome::Interrupted && cause == Some(BreakCause::Interrupted) {
            let name = &self.name;
            self.seen.stop_before(began, || format!("{name} is interrupted there"));
        }
    }

    /// An answer of the person is given again, unless the mode of the lead depends on it, which the record has no start of.
    fn read_decision(&mut self, decision: &Decision) {
        let Some((at, about)) = self.asked.remove(&decision.request_id) else { return };
        let name = &self.name;
        match decision.outcome {
            DecisionOutcome::Approved | DecisionOutcome::Rejected => {
                let is_of_person = decision.by == AgentName::user().as_str();
                if is_of_person && about == QuestionKind::Plan {
                    self.seen.stop_before(at, || {
                        format!("the person decides on a plan of {name} there")
                    });
                }
            }
            DecisionOutcome::Expired | DecisionOutcome::Withdrawn => {
                self.seen.stop_before(at, || format!("a question of {name} is not answered there"));
            }
        }
    }

    fn read_mail(&mut self, at: WallTime, message: &Message) {
        let is_of = |name: AgentName| message.from == name.as_str();
        self.was_asked_to_end |= matches!(message.body, Body::ShutdownRequest { .. });
        if let Body::TaskAssignment { .. } = &message.body {
            self.seen.takes_tasks |= is_of(AgentName::system());
        } else if let Body::ShutdownRequest { reason: Some(reason), .. } = &message.body
            && reason == TEAM_STOPS
            && is_of(AgentName::lead())
            && let Some(sent_at) = message.timestamp
        {
            self.seen.close_at(sent_at);
        } else if let Body::ModeSetRequest { .. } = &message.body {
            self.seen.stop_before(at, || "the person changes the mode there".to_owned());
        } else if is_reminder(message) {
            let name = &self.name;
            self.seen.stop_before(at, || format!("a reminder comes to {name} there"));
        }
    }
}
