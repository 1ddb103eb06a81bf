//! The first steps of a lead in a folder: takeover, life lock, roster entry, recovery from an earlier team.

use super::conversation::TakenUp;
use super::options::LeadOptions;
use super::past::take_up;
use super::returning::returning;
use crate::app::agent_process::{AgentProcess, fresh_id, reserve_disk_space};
use crate::app::stop_members::{still_alive, stop_plan};
use crate::app::{names::member_names, progress_line::during};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::terminal::terminal_name;
use crate::os::{Clock, SystemClock, failpoint::hit, program};
use crate::protocol::{ladder::Urgency, lifecycle};
use crate::settings::models::KnownModels;
use crate::store::asynchronous::update_roster;
use crate::store::takeover::{self, Takeover};
use crate::store::{Fsync, Liveness, StoreError, TeamDir};
use crate::store::{conversations, liveness, roster, transcript};
use crate::supervise::recover::{self, EarlierTeam};
use crate::supervise::stop::words;
use crate::tools::team::spawned_name;
use crate::wire::log_words;
use crate::wire::roster::{ExitCause, Lead, Roster, StartedBy, UsageCount};
use crate::wire::{AgentName, WithUnknownFields};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time for which the end of a failed start waits for the roster.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(2);

/// The state from which a lead starts, once it is on the roster.
#[derive(Default)]
pub(super) struct Startup {
    /// The findings about an earlier team, for the user.
    pub(super) found: Option<String>,
    pub(super) returning: Vec<AgentName>,
    /// The text that is sent to the model of a resumed lead.
    pub(super) start_reason: Option<String>,
    /// The conversation that the lead has taken up.
    pub(super) taken_up: TakenUp,
    /// The incarnation in which the resumed conversation began.
    pub(super) conversation: Option<String>,
    pub(super) usage: UsageCount,
}

/// The lead's place in the team: its process holds the life lock and is on the roster.
pub(super) struct Place {
    pub(super) process: AgentProcess,
    pub(super) entry: RosterPlace,
    /// The state of the earlier team, for its recovery.
    pub(super) before: EarlierTeam,
    pub(super) taken_up: TakenUp,
    pub(super) usage: UsageCount,
}

/// The lead's entry on the roster, with the entry that it has replaced.
pub(super) struct RosterPlace {
    incarnation: String,
    earlier: Option<WithUnknownFields<Lead>>,
}

impl RosterPlace {
    /// Restores the entry of the earlier lead after a failed start, which leaves no trace.
    pub(super) async fn give_back(self, team: &TeamDir) {
        let Self { incarnation, earlier } = self;
        let restored = update_roster(team, Fsync::Always, move |roster| {
            if roster.lead.as_ref().is_some_and(|lead| lead.incarnation == incarnation) {
                roster.lead = earlier;
            }
        });
        // A lock that made the start fail must not delay its end as well.
        let restored = tokio::time::timeout(GIVE_BACK_WITHIN, restored).await;
        if !matches!(restored, Ok(Ok(()))) {
            let why = log_words::work_done(&restored);
            tracing::warn!(why, "the roster entry of a lead that did not start was not removed");
        }
    }
}

/// Takes the lead's life lock and puts it on the roster, which is only changed with the life lock held. Fails if a
/// lead runs in this folder, or `--takeover` cannot stop it.
pub(super) async fn take_place(bus: &Arc<Bus>, options: &LeadOptions) -> Result<Place, Failure> {
    let (team, lead) = (bus.dir(), AgentName::lead());
    // Taking the lock replaces the earlier lead's record, whose run id finds the processes of its commands.
    let record = liveness::last_record(team, &lead).map_err(StoreError::from)?;
    let run_id = record.map(|record| record.run_id).filter(|id| !id.is_empty());
    let was_damaged = roster::is_damaged(team)?;
    if options.request.takeover {
        stop_running_lead(bus).await?;
    }
    let process =
        AgentProcess::start(team, lead, fresh_id(), "hand", options.credentials.secrets()).await?;
    program::raise_descriptors();
    reserve_disk_space(team);
    let settings = &options.settings;
    let prices = KnownModels::of(settings, &options.credentials).prices();
    let (choice, fsync) = (&options.request.conversation, settings.rules().fsync);
    let (taken_up, used) = take_up(team, choice, fsync, prices).await?;
    let (earlier, usage) = write_entry(team, options, &process.incarnation, used).await?;
    hit("lead.entered");
    let lead = earlier.as_ref().map(|lead| lead.status);
    let before = EarlierTeam { lead, run_id, was_damaged };
    let entry = RosterPlace { incarnation: process.incarnation.clone(), earlier };
    Ok(Place { process, entry, before, taken_up, usage })
}

/// Recovers from an earlier team, and selects the returning teammates.
pub(super) async fn recover_team(
    bus: &Arc<Bus>,
    options: &LeadOptions,
    before: EarlierTeam,
    taken_up: TakenUp,
    usage: UsageCount,
) -> Result<Startup, Failure> {
    let team = bus.dir();
    // A teammate that is still alive has lost its lifeline and had time to exit, so it gets no polite request.
    let (reason, cause) = ("your lead is gone and a new one has started", ExitCause::LeadLost);
    let plan = stop_plan(bus, AgentName::lead(), reason, cause, Urgency::Now);
    let names = member_names(&*roster::read(team)?);
    let recovery = recover::recover(&plan, before);
    let what = "waiting for the last team:";
    let recovered = during(what, recovery, || still_alive(team, &names)).await?;
    hit("lead.recovered");
    let found = recovered.summary();
    let mut startup = Startup { found, taken_up, usage, ..Startup::default() };
    if options.request.resumes()
        && let Some(path) = startup.taken_up.transcript(team)
    {
        startup.resume(team, &path, options.settings.max_teammates.value)?;
    }
    Ok(startup)
}

impl Startup {
    fn resume(&mut self, team: &TeamDir, path: &Path, max_teammates: usize) -> Result<(), Failure> {
        let is_archived = matches!(self.taken_up, TakenUp::Archived(_));
        let own = is_archived.then(|| conversations::teammates(path, spawned_name)).transpose()?;
        let (names, text) = returning(team, &*roster::read(team)?, max_teammates, own.as_ref());
        self.returning = names;
        // The note about the start may go on after it.
        let text_within = text.trim_end_matches('.');
        self.start_reason = Some(format!("the user has resumed the team. {text_within}"));
        let found = self.found.take().map(|found| found + "\n").unwrap_or_default();
        self.found = Some(found + &text);
        self.conversation = transcript::first_incarnation_in(path)?;
        Ok(())
    }
}

/// Stops the lead that runs in this folder, if there is one. That lead stops its own team.
async fn stop_running_lead(bus: &Arc<Bus>) -> Result<(), Failure> {
    let (team, lead) = (bus.dir(), AgentName::lead());
    let Liveness::Alive(Some(record)) = liveness::probe(team, &lead).map_err(StoreError::from)?
    else {
        return Ok(());
    };
    let note = Takeover {
        of: record.incarnation.clone(),
        pid: std::process::id().cast_signed(),
        user: program::user_name().unwrap_or_default(),
        terminal: terminal_name().unwrap_or_default(),
        at: SystemClock.now(),
    };
    if let Err(why) = takeover::leave(team, &note) {
        tracing::warn!(%why, "the running lead cannot be told who replaces it");
    }
    let (reason, cause) = ("another lead takes over", ExitCause::LeadLost);
    let plan = stop_plan(bus, AgentName::user(), reason, cause, Urgency::Polite);
    let names = [lead.clone()];
    let outcome = during("stopping", plan.stop(lead), || still_alive(team, &names)).await;
    if outcome.is_stuck() {
        let why = format!("pid {} {}", record.pid, words(outcome.rung));
        let hint = "look at it with `ps`; a process in state D waits for the kernel";
        return Err(Failure::new(Exit::InUse, "the running lead cannot be stopped", why, hint));
    }
    Ok(())
}

/// Puts this lead on the roster. `used` is the usage of a resumed conversation that was not the last one. Returns the entry
/// of the earlier lead and the usage of this one.
async fn write_entry(
    team: &TeamDir,
    options: &LeadOptions,
    incarnation: &str,
    used: Option<UsageCount>,
) -> Result<(Option<WithUnknownFields<Lead>>, UsageCount), StoreError> {
    let fresh = Lead {
        name: AgentName::lead().to_string(),
        pid: i32::try_from(std::process::id()).ok(),
        incarnation: incarnation.to_owned(),
        model: options.model_on_roster(),
        mode: options.permissions.mode.word().into(),
        since: SystemClock.now(),
        sandbox: Some(options.sandbox.entry()),
        person: options.has_person(),
        ..Lead::default()
    };
    let resume = options.request.resumes();
    let team_name = options.settings.team_name.value.clone().map(String::from);
    let change = move |roster: &mut WithUnknownFields<Roster>| {
        roster.begin(fresh.since, team_name);
        enter(roster, fresh, resume, used)
    };
    update_roster(team, Fsync::Always, change).await
}

fn enter(
    roster: &mut Roster,
    fresh: Lead,
    resume: bool,
    used: Option<UsageCount>,
) -> (Option<WithUnknownFields<Lead>>, UsageCount) {
    let used_by_members = roster.used_by_members();
    let earlier = roster.lead.clone();
    if let Some(earlier) = earlier.as_ref().filter(|_| resume) {
        // As with `/mode`: the members in the lead's mode follow it.
        let followers = roster
            .members
            .iter_mut()
            .filter(|member| member.started_by == StartedBy::Lead && member.host.is_none())
            .filter(|member| member.mode == earlier.mode);
        followers.for_each(|member| member.mode.clone_from(&fresh.mode));
    }
    let lead = roster.lead.get_or_insert_with(|| fresh.clone().into());
    let Lead { pid, incarnation, model, mode, since, sandbox, person, .. } = fresh;
    (lead.sandbox, lead.person) = (sandbox, person);
    (lead.pid, lead.incarnation, lead.model, lead.mode) = (pid, incarnation, model, mode);
    (lead.since, lead.activity) = (since, None);
    let _legal = lifecycle::apply_spawned(&mut lead.status);
    if !resume || used.is_some() {
        // The usage of a new conversation is counted from zero, and that of the teammates from here on.
        (lead.usage, lead.used_before) = (used.unwrap_or_default(), used_by_members);
    }
    (earlier, lead.usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WallTime;
    use crate::wire::roster::Status;

    #[test]
    fn a_new_conversation_counts_from_zero_and_a_resumed_one_goes_on() {
        let turns = |turns| UsageCount { turns, ..UsageCount::default() };
        let lead = |name: &str| Lead { incarnation: name.into(), ..Lead::default() };
        for (resume, used, used_before) in [(false, 0, 5), (true, 3, 0)] {
            let mut roster = Roster::default();
            assert_eq!(enter(&mut roster, lead("one"), false, None), (None, turns(0)));
            let earlier = roster.lead.as_mut().unwrap();
            (earlier.usage, earlier.status) = (turns(3), Status::Idle);
            roster.enter("alice", WallTime::default()).usage = turns(5);
            let entered = enter(&mut roster, lead("two"), resume, None);
            assert_eq!((entered.0.unwrap().status, entered.1), (Status::Idle, turns(used)));
            let now = roster.lead.as_ref().unwrap();
            assert_eq!((&*now.incarnation, now.status), ("two", Status::Starting));
            assert_eq!(now.used_before, turns(used_before));
            let of_another = enter(&mut roster, lead("three"), true, Some(turns(9)));
            let now = roster.lead.as_ref().unwrap();
            assert_eq!((of_another.1, now.usage, now.used_before), (turns(9), turns(9), turns(5)));
        }
    }

    #[test]
    fn the_members_in_the_mode_of_the_lead_follow_a_resumed_one() {
        let in_mode = |mode: &str| Lead { mode: mode.into(), ..Lead::default() };
        for (resume, modes) in [(false, ["default", "plan"]), (true, ["bypass", "plan"])] {
            let mut roster = Roster { lead: Some(in_mode("default").into()), ..Roster::default() };
            for (name, mode) in [("alice", "default"), ("bob", "plan")] {
                roster.enter(name, WallTime::default()).mode = mode.into();
            }
            enter(&mut roster, in_mode("bypass"), resume, None);
            assert_eq!(["alice", "bob"].map(|name| &*roster.member(name).unwrap().mode), modes);
        }
    }
}
