//! Taking the lead's startup in a folder: ending a lead that is still there, putting the roster in order,
//! and finding out who of the last team comes back.

use super::super::context::store_failure;
use super::super::progress_line::{ProgressLine, still_there};
use super::Start;
use crate::agent::memory::Memory;
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::failpoint::hit;
use crate::os::{Clock, SystemClock};
use crate::protocol::ladder::Urgency;
use crate::protocol::lifecycle;
use crate::store::{Fsync, Liveness, StoreError, TeamDir, liveness, roster, transcript};
use crate::supervise::recover::{self, Before};
use crate::supervise::stop::{StopPlan, StopResult};
use crate::wire::AgentName;
use crate::wire::chat::Block;
use crate::wire::message::Outcome;
use crate::wire::roster::{ExitCause, Lead, Member, StartedBy, Status, UsageCount};
use crate::wire::transcript::{Entry, Line};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// What can be seen of an earlier lead only before its startup is taken.
pub(super) struct Earlier {
    run_id: Option<String>,
    was_damaged: bool,
}

impl Earlier {
    /// Looks.
    pub(super) fn of(team: &TeamDir) -> Result<Self, StoreError> {
        let record = liveness::last_record(team, &AgentName::lead())?;
        let run_id = record.map(|record| record.run_id).filter(|run_id| !run_id.is_empty());
        Ok(Self { run_id, was_damaged: roster::is_damaged(team)? })
    }
}

/// A startup that was taken.
pub(super) struct Startup {
    /// What was found, for the user.
    pub(super) found: Option<String>,
    /// Who comes back.
    pub(super) returning: Vec<AgentName>,
    /// What the lead's model is told about its return.
    pub(super) start_reason: Option<String>,
    /// The life in which the conversation began that goes on.
    pub(super) conversation: Option<String>,
    /// The last words of that conversation.
    pub(super) last_words: String,
    /// What the lead has used before.
    pub(super) usage: UsageCount,
}

/// Ends the lead that runs here, if one does: it sees its own team out.
pub(super) async fn take_over(bus: &Arc<Bus>) -> Result<(), Failure> {
    let lead = AgentName::lead();
    let first = match liveness::probe(bus.dir(), &lead) {
        Ok(Liveness::Alive(Some(record))) => record,
        Ok(_) => return Ok(()),
        Err(why) => return Err(store_failure(why.into())),
    };
    let takedown =
        takedown(bus, AgentName::user(), Urgency::Polite, "another lead takes this startup");
    let work = takedown.stop(lead.clone());
    let waiting = ProgressLine::begin("stopping");
    let departure =
        waiting.during(work, || still_there(bus.dir(), std::slice::from_ref(&lead))).await;
    if departure.result == StopResult::Stuck {
        return Err(Failure::new(
            Exit::InUse,
            "the lead that runs here cannot be ended",
            format!("pid {} {}", first.pid, StopResult::Stuck.words()),
            "look at it with `ps`; a process in state D waits for the kernel",
        ));
    }
    Ok(())
}

fn takedown(bus: &Arc<Bus>, by: AgentName, urgency: Urgency, reason: &str) -> StopPlan {
    let (_patience, urgency) = watch::channel(urgency);
    StopPlan {
        bus: Arc::clone(bus),
        clock: Rc::new(SystemClock),
        by,
        reason: reason.into(),
        cause: ExitCause::LeadLost,
        urgency,
    }
}

/// Enters the lead on the roster, repairs what an earlier team left, and looks who comes back.
pub(super) async fn enter(
    bus: &Arc<Bus>,
    start: &Start,
    incarnation: &str,
    earlier: Earlier,
) -> Result<Startup, Failure> {
    let team = bus.dir();
    let (lead, usage) = write_entry(team, start, incarnation).map_err(store_failure)?;
    hit("lead.entered");
    let Earlier { run_id, was_damaged } = earlier;
    // Whoever is to be ended here was told by the end of its lifeline, and had its time.
    let reason = "your lead is gone and a new one has come";
    let takedown = takedown(bus, AgentName::lead(), Urgency::Now, reason);
    let before = Before { lead, run_id, was_damaged };
    let earlier_team = roster::read(team).map_err(store_failure)?;
    let members = earlier_team.members.iter();
    let members: Vec<AgentName> =
        members.filter_map(|member| AgentName::member(&member.name).ok()).collect();
    let work = recover::recover(bus, &SystemClock, &takedown, before);
    let waiting = ProgressLine::begin("waiting for the last team:");
    let found = waiting.during(work, || still_there(team, &members)).await;
    let mut found = found.map_err(store_failure)?.summary();
    hit("lead.recovered");
    let mut startup = Startup {
        found: None,
        returning: Vec::new(),
        start_reason: None,
        conversation: None,
        last_words: String::new(),
        usage,
    };
    if start.resume {
        let roster = roster::read(team).map_err(store_failure)?;
        let conversation = transcript::first_life(team, &AgentName::lead());
        startup.conversation = conversation.map_err(store_failure)?;
        startup.last_words = last_words(team);
        let (back, gone): (Vec<&Member>, Vec<&Member>) = roster
            .members
            .iter()
            .map(|member| &**member)
            .filter(|member| member.started_by == StartedBy::Lead)
            .partition(|member| comes_back(member));
        let most = start.settings.max_teammates.value;
        let names = back.iter().filter_map(|member| AgentName::member(&member.name).ok());
        startup.returning = names.take(most).collect();
        let text = describe(team, &startup.returning, &gone);
        found = Some(found.map_or_else(|| text.clone(), |found| format!("{found}\n{text}")));
        startup.start_reason = Some(format!("the user goes on with the team. {text}"));
    }
    startup.found = found;
    Ok(startup)
}

/// What the lead last said.
fn last_words(team: &TeamDir) -> String {
    let lines = transcript::read_all(team, &AgentName::lead()).unwrap_or_default();
    let said = lines.into_iter().rev().find_map(|line| {
        let Entry::Assistant { blocks, .. } = line.entry else { return None };
        blocks.into_iter().rev().find_map(|block| match block {
            Block::Text { text } => Some(text),
            Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        })
    });
    said.unwrap_or_default()
}

/// Whoever was not stopped by name belongs to the team that goes on.
fn comes_back(member: &Member) -> bool {
    let cause = member.last_exit.as_ref().map(|exit| exit.cause);
    member.status.is_over() && cause != Some(ExitCause::Stopped)
}

fn describe(team: &TeamDir, returning: &[AgentName], gone: &[&Member]) -> String {
    if returning.is_empty() && gone.is_empty() {
        return "No teammate comes back: there was none.".into();
    }
    let back: Vec<String> =
        returning.iter().map(|name| format!("{name} ({})", left_off(team, name))).collect();
    let mut text = if back.is_empty() {
        "No teammate comes back".to_owned()
    } else {
        format!("Back: {}", back.join(", "))
    };
    if !gone.is_empty() {
        let names: Vec<&str> = gone.iter().map(|member| member.name.as_str()).collect();
        text.push_str("; not back, for they were stopped: ");
        text.push_str(&names.join(", "));
    }
    text.push('.');
    text
}

/// Where a teammate was when it ended.
fn left_off(team: &TeamDir, name: &AgentName) -> String {
    let lines = transcript::read_all(team, name).unwrap_or_default();
    let mut memory = Memory::default();
    for Line { entry, .. } in &lines {
        memory.push(entry);
    }
    if memory.in_turn() {
        let running = memory.open_calls().iter().find(|call| call.started);
        return match running {
            Some(call) => format!("in the middle of a turn, during {}", call.name),
            None => "in the middle of a turn".into(),
        };
    }
    let last = lines.iter().rev().find_map(|line| {
        let Entry::TurnEnd { outcome, .. } = &line.entry else { return None };
        Some(*outcome)
    });
    match last {
        Some(Outcome::Interrupted) => "its last turn was interrupted".into(),
        Some(Outcome::Failed) => "its last turn failed".into(),
        Some(Outcome::Done) | None => "it was idle".into(),
    }
}

/// Puts this lead on the roster. Gives how an earlier one stood there, and what this one has used.
fn write_entry(
    team: &TeamDir,
    start: &Start,
    incarnation: &str,
) -> Result<(Option<Status>, UsageCount), StoreError> {
    let pid = i32::try_from(std::process::id()).ok();
    let now = SystemClock.now();
    roster::update(team, Fsync::Always, |roster| {
        if roster.created_at == crate::wire::WallTime::default() {
            roster.created_at = now;
        }
        let earlier = roster.lead.as_ref().map(|lead| lead.status);
        let lead = roster.lead.get_or_insert_with(|| Lead::default().into());
        lead.pid = pid;
        lead.incarnation = incarnation.into();
        let _legal = lifecycle::apply_spawned(&mut lead.status);
        (lead.since, lead.activity) = (now, None);
        lead.model = start.model.to_string();
        lead.mode = start.permissions.mode.word().into();
        let usage = lead.usage;
        if start.resume {
            return (earlier, usage);
        }
        // A new conversation is a new account.
        let used_before = roster.used_by_members();
        if let Some(lead) = roster.lead.as_mut() {
            (lead.usage, lead.used_before) = (UsageCount::default(), used_before);
        }
        (earlier, UsageCount::default())
    })
}
