//! Stopping members from outside the lead, in the user's name.

use super::names::member_name;
use super::progress_line::{ProgressLine, still_alive};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::SystemClock;
use crate::protocol::ladder::Urgency;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::asynchronous::update_roster;
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::supervise::stop::{StopOutcome, StopPlan, stop_in_parallel};
use crate::wire::AgentName;
use crate::wire::roster::ExitCause;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// Reads the names of members.
///
/// # Errors
/// A name is neither in the roster nor held by a process.
pub(crate) fn members_named(team: &TeamDir, given: &[String]) -> Result<Vec<AgentName>, Failure> {
    let roster = roster::read(team)?;
    let mut names = Vec::new();
    for given in given {
        let name = member_name(given)?;
        let is_known = roster.member(name.as_str()).is_some();
        if !is_known && !is_alive(team, &name) {
            let members: Vec<_> = roster.members.iter().map(|m| m.name.as_str()).collect();
            return Err(Failure::new(
                Exit::Failure,
                format!("there is no member {name}"),
                format!("the team is: {}", members.join(", ")),
                "`team ls` shows who is there; nothing was stopped",
            ));
        }
        names.push(name);
    }
    Ok(names)
}

fn is_alive(team: &TeamDir, name: &AgentName) -> bool {
    matches!(liveness::probe(team, name), Ok(Liveness::Alive(_)))
}

/// Stops members and waits until their processes have exited.
pub(crate) async fn stop_members(
    bus: Arc<Bus>,
    cause: ExitCause,
    urgency: Urgency,
    names: Vec<AgentName>,
) -> Vec<StopOutcome> {
    let (_fixed, urgency) = watch::channel(urgency);
    let plan = StopPlan {
        bus,
        clock: Rc::new(SystemClock),
        by: AgentName::user(),
        reason: "the user stops you".into(),
        cause,
        urgency,
    };
    stop_in_parallel(&plan, names).await
}

/// Stops members and shows on stderr which of them are still alive.
pub(crate) async fn stop_with_progress(
    bus: &Arc<Bus>,
    cause: ExitCause,
    urgency: Urgency,
    names: Vec<AgentName>,
) -> Vec<StopOutcome> {
    let stopping = stop_members(Arc::clone(bus), cause, urgency, names.clone());
    ProgressLine::begin("stopping").during(stopping, || still_alive(bus.dir(), &names)).await
}

/// Stops all members, then the lead.
pub(crate) async fn stop_team(
    bus: &Arc<Bus>,
    urgency: Urgency,
    members: Vec<AgentName>,
) -> Result<Vec<StopOutcome>, Failure> {
    let lead = AgentName::lead();
    let has_lead = is_alive(bus.dir(), &lead);
    if has_lead {
        // A lead that is marked as stopping starts no teammate meanwhile.
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

/// Describes how a member ended.
pub(crate) fn outcome_line(outcome: &StopOutcome) -> String {
    format!("{} {}", outcome.name, outcome.words())
}
