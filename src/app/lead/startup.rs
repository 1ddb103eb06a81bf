//! Taking the lead's place in a folder: stopping a lead that is still there, entering the roster,
//! recovering what an earlier team left.
//!
//! The stages are types: [`LeadPlace::take`] gives the place only with the life lock held, and
//! [`LeadPlace::enter`] consumes it, so that the roster is never changed without the lock.

use super::options::LeadOptions;
use super::returning::{Returning, last_text};
use crate::app::agent_process::{AgentProcess, fresh_id, reserve_disk_space};
use crate::app::names::member_names;
use crate::app::progress_line::{ProgressLine, still_alive};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::failpoint::hit;
use crate::os::{Clock, SystemClock, limits};
use crate::protocol::ladder::Urgency;
use crate::protocol::lifecycle;
use crate::store::asynchronous::update_roster;
use crate::store::{Fsync, Liveness, StoreError, TeamDir, liveness, roster, transcript};
use crate::supervise::recover::{self, Before};
use crate::supervise::stop::{StopPlan, StopResult};
use crate::wire::roster::{ExitCause, Lead, Roster, Status, UsageCount};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// The lead's place in a folder, held by this process.
pub(super) struct LeadPlace {
    process: AgentProcess,
    /// Run id of the earlier lead, by which processes of its commands are found.
    earlier_run_id: Option<String>,
    roster_was_damaged: bool,
}

/// What the lead starts from once it stands in the roster.
pub(super) struct Startup {
    /// What was found of an earlier team, for the user.
    pub(super) found: Option<String>,
    /// The teammates that are started again.
    pub(super) returning: Vec<AgentName>,
    /// What the model of a resumed lead is told.
    pub(super) start_reason: Option<String>,
    /// The incarnation in which the resumed conversation began.
    pub(super) conversation: Option<String>,
    /// The last text of the resumed conversation.
    pub(super) last_text: String,
    /// What the lead has used in the resumed conversation.
    pub(super) usage: UsageCount,
}

impl LeadPlace {
    /// Stops the lead that runs here if `--takeover` was given, then takes the life lock.
    ///
    /// # Errors
    /// A lead runs in this folder, or cannot be stopped.
    pub(super) async fn take(bus: &Arc<Bus>, options: &LeadOptions) -> Result<Self, Failure> {
        let (team, lead) = (bus.dir(), AgentName::lead());
        // Taking the lock replaces the life record of the earlier lead, so read it before.
        let record = liveness::last_record(team, &lead).map_err(StoreError::from)?;
        let earlier_run_id = record.map(|record| record.run_id).filter(|id| !id.is_empty());
        let roster_was_damaged = roster::is_damaged(team)?;
        if options.takeover {
            stop_running_lead(bus).await?;
        }
        let process = AgentProcess::start(team, &lead, &fresh_id(), "hand", &options.credentials)?;
        limits::raise_descriptors();
        reserve_disk_space(team);
        Ok(Self { process, earlier_run_id, roster_was_damaged })
    }

    /// Enters the lead on the roster, recovers what an earlier team left, and decides who comes back.
    pub(super) async fn enter(
        self,
        bus: &Arc<Bus>,
        options: &LeadOptions,
    ) -> Result<(AgentProcess, Startup), Failure> {
        let Self { process, earlier_run_id, roster_was_damaged } = self;
        let team = bus.dir();
        let (lead, usage) = write_entry(team, options, &process.incarnation).await?;
        hit("lead.entered");
        let before = Before { lead, run_id: earlier_run_id, was_damaged: roster_was_damaged };
        let found = recover_team(bus, before).await?;
        hit("lead.recovered");
        let startup = Startup {
            found,
            returning: Vec::new(),
            start_reason: None,
            conversation: None,
            last_text: String::new(),
            usage,
        };
        let startup = if options.resume {
            startup.resume(team, options.settings.max_teammates.value)?
        } else {
            startup
        };
        Ok((process, startup))
    }
}

impl Startup {
    /// Continues with the last team.
    fn resume(self, team: &TeamDir, max_teammates: usize) -> Result<Self, Failure> {
        let roster = roster::read(team)?;
        let Returning { names, text } = Returning::of(team, &roster, max_teammates);
        let found = self.found.map_or_else(|| text.clone(), |found| format!("{found}\n{text}"));
        Ok(Self {
            found: Some(found),
            returning: names,
            start_reason: Some(format!("the user goes on with the team. {text}")),
            conversation: transcript::first_life(team, &AgentName::lead())?,
            last_text: last_text(team),
            ..self
        })
    }
}

/// Stops the lead that runs here, if there is one; it stops its own team.
async fn stop_running_lead(bus: &Arc<Bus>) -> Result<(), Failure> {
    let lead = AgentName::lead();
    let pid = match liveness::probe(bus.dir(), &lead) {
        Ok(Liveness::Alive(Some(record))) => record.pid,
        Ok(_) => return Ok(()),
        Err(why) => return Err(StoreError::from(why).into()),
    };
    let plan = stop_plan(bus, AgentName::user(), Urgency::Polite, "another lead takes over");
    let line = ProgressLine::begin("stopping");
    let names = [lead.clone()];
    let outcome = line.during(plan.stop(lead), || still_alive(bus.dir(), &names)).await;
    if outcome.result == StopResult::Stuck {
        return Err(Failure::new(
            Exit::InUse,
            "the lead that runs here cannot be ended",
            format!("pid {pid} {}", StopResult::Stuck.words()),
            "look at it with `ps`; a process in state D waits for the kernel",
        ));
    }
    Ok(())
}

/// Ends or adopts what an earlier team left; returns a summary for the user.
async fn recover_team(bus: &Arc<Bus>, before: Before) -> Result<Option<String>, Failure> {
    let team = bus.dir();
    // A teammate that is still alive has lost its lifeline and had its time: no polite request.
    let reason = "your lead is gone and a new one has come";
    let plan = stop_plan(bus, AgentName::lead(), Urgency::Now, reason);
    let roster = roster::read(team)?;
    let names = member_names(&roster);
    let line = ProgressLine::begin("waiting for the last team:");
    let work = recover::recover(bus, &SystemClock, &plan, before);
    Ok(line.during(work, || still_alive(team, &names)).await?.summary())
}

fn stop_plan(bus: &Arc<Bus>, by: AgentName, urgency: Urgency, reason: &str) -> StopPlan {
    let (_fixed, urgency) = watch::channel(urgency);
    StopPlan {
        bus: Arc::clone(bus),
        clock: Rc::new(SystemClock),
        by,
        reason: reason.into(),
        cause: ExitCause::LeadLost,
        urgency,
    }
}

/// Puts this lead on the roster. Returns the status of the earlier lead, and what this one has used.
async fn write_entry(
    team: &TeamDir,
    options: &LeadOptions,
    incarnation: &str,
) -> Result<(Option<Status>, UsageCount), StoreError> {
    let pid = i32::try_from(std::process::id()).ok();
    let now = SystemClock.now();
    let (incarnation, resume) = (incarnation.to_owned(), options.resume);
    let (model, mode) = (options.model.to_string(), options.permissions.mode.word());
    let enter = move |roster: &mut WithUnknownFields<Roster>| {
        if roster.created_at == WallTime::default() {
            roster.created_at = now;
        }
        let earlier = roster.lead.as_ref().map(|lead| lead.status);
        let lead = roster.lead.get_or_insert_with(|| Lead::default().into());
        lead.pid = pid;
        lead.incarnation = incarnation;
        let _legal = lifecycle::apply_spawned(&mut lead.status);
        (lead.since, lead.activity) = (now, None);
        lead.model = model;
        lead.mode = mode.into();
        let usage = lead.usage;
        if resume {
            return (earlier, usage);
        }
        // A new conversation starts a new account.
        let used_before = roster.used_by_members();
        if let Some(lead) = roster.lead.as_mut() {
            (lead.usage, lead.used_before) = (UsageCount::default(), used_before);
        }
        (earlier, UsageCount::default())
    };
    update_roster(team, Fsync::Always, enter).await
}
