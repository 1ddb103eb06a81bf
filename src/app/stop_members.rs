//! Stops members from outside the lead, in the user's name.

use super::names::{did_you_mean, member_name, member_names};
use super::progress_line::during;
use crate::bus::{Bus, names};
use crate::error::{Exit, Failure};
use crate::os::SystemClock;
use crate::protocol::ladder::Urgency;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::asynchronous::update_roster;
use crate::store::{TeamDir, liveness, roster};
use crate::supervise::stop::{StopOutcome, StopPlan, stop_in_parallel};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, StartedBy};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) fn is_alive(team: &TeamDir, name: &AgentName) -> bool {
    liveness::probe(team, name).is_ok_and(|liveness| liveness.is_alive())
}

/// Parses the names of members. Fails if a name is neither on the roster nor held by a process.
pub(crate) fn members_named(team: &TeamDir, given: &[String]) -> Result<Vec<AgentName>, Failure> {
    let roster = roster::read(team)?;
    let known = |given: &String| {
        if matches!(given.as_str(), "lead" | "user" | "all" | "team") {
            let what = format!("{given} cannot be stopped by name");
            let why = "`team stop` ends single teammates, or the whole team with its lead";
            return Err(Failure::new(Exit::Usage, what, why, "`team stop --all` ends the team"));
        }
        let name = member_name(given)?;
        if roster.member(name.as_str()).is_some() || is_alive(team, &name) {
            return Ok(name);
        }
        let members = member_names(&roster);
        let what = format!("there is no member {name}");
        let why = match members.as_slice() {
            [] => "the team has no members".into(),
            members => format!("the team is: {}", names(members)),
        };
        let near = did_you_mean(&name, &members);
        let hint = format!("{near}`team ls` lists the members; nothing was stopped");
        Err(Failure::new(Exit::Failure, what, why, hint))
    };
    given.iter().map(known).collect()
}

/// Returns the living teammates that a lead has started on another host.
pub(crate) fn ordered_on(team: &TeamDir, host: &str) -> Result<Vec<AgentName>, Failure> {
    let roster = roster::read(team)?;
    let ordered = roster.members.iter().filter(|member| {
        member.host.as_deref() == Some(host)
            && (member.alive == Some(true) || !member.status.is_over())
            && member.started_by == StartedBy::Lead
    });
    Ok(ordered.filter_map(|member| AgentName::member(&member.name).ok()).collect())
}

/// Plans a stop of fixed urgency in the name of `by`.
pub(super) fn stop_plan(
    bus: &Arc<Bus>,
    by: AgentName,
    reason: &str,
    cause: ExitCause,
    urgency: Urgency,
) -> StopPlan {
    let (_fixed, urgency) = watch::channel(urgency);
    let (bus, clock) = (Arc::clone(bus), Rc::new(SystemClock));
    StopPlan { bus, clock, by, reason: reason.into(), cause, urgency }
}

pub(super) async fn stop_members(
    bus: &Arc<Bus>,
    cause: ExitCause,
    urgency: Urgency,
    names: Vec<AgentName>,
) -> Vec<StopOutcome> {
    let plan = stop_plan(bus, AgentName::user(), "the user stops you", cause, urgency);
    stop_in_parallel(&plan, names).await
}

/// Stops members and shows on stderr which of them are still alive.
pub(crate) async fn stop_with_progress(
    bus: &Arc<Bus>,
    cause: ExitCause,
    urgency: Urgency,
    names: Vec<AgentName>,
) -> Vec<StopOutcome> {
    let stopping = stop_members(bus, cause, urgency, names.clone());
    during("stopping", stopping, || still_alive(bus.dir(), &names)).await
}

pub(super) fn still_alive(team: &TeamDir, names: &[AgentName]) -> String {
    let alive = names.iter().filter(|name| is_alive(team, name));
    alive.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) async fn stop_team(
    bus: &Arc<Bus>,
    urgency: Urgency,
    members: Vec<AgentName>,
) -> Result<Vec<StopOutcome>, Failure> {
    let lead = AgentName::lead();
    if let Some(home) = roster::read(bus.dir())?.home_of(lead.as_str()).filter(|it| it.is_alive) {
        let why = format!("its lead runs on host {}", home.host);
        let hint = format!("run `team stop --all` on {}", home.host);
        return Err(Failure::new(Exit::Usage, "the team is not stopped from here", why, hint));
    }
    let has_lead = is_alive(bus.dir(), &lead);
    if has_lead {
        // The roster shows the lead as stopping while its teammates are stopped, before it is stopped itself.
        update_roster(bus.dir(), bus.fsync(), |roster| {
            if let Some(lead) = roster.lead.as_mut() {
                let _refused = lifecycle::apply(&mut lead.status, LifecycleEvent::StopAsked);
            }
        })
        .await?;
    }
    let cause = ExitCause::TeamStopped;
    let mut outcomes = stop_with_progress(bus, cause, urgency, members).await;
    if has_lead {
        outcomes.extend(stop_with_progress(bus, cause, urgency, vec![lead]).await);
    }
    Ok(outcomes)
}

pub(crate) fn outcome_lines(outcomes: &[StopOutcome]) -> String {
    let line = |outcome: &StopOutcome| format!("{} {}", outcome.name, outcome.words());
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}
