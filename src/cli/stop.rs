//! `team stop`: the shutdown ladder from outside.

use super::args::StopArgs;
use super::build_agent::block_on;
use super::context::{Context, member_name, store_failure};
use super::out;
use super::progress_line::{ProgressLine, still_there};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::SystemClock;
use crate::protocol::ladder::Urgency;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::{Liveness, TeamDir, liveness, roster};
use crate::supervise::stop::{StopOutcome, StopPlan, StopResult, stop_in_parallel};
use crate::wire::AgentName;
use crate::wire::roster::ExitCause;
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) fn run(context: &Context, args: &StopArgs) -> Result<Exit, Failure> {
    context.refuse_inside("stop")?;
    let team = context.team()?;
    let bus = context.bus(team.clone())?;
    let names = if args.all {
        let roster = roster::read(&team).map_err(store_failure)?;
        let members = roster.members.iter().rev();
        members.filter_map(|member| AgentName::member(&member.name).ok()).collect()
    } else {
        named(&team, &args.names)?
    };
    let urgency = if args.now { Urgency::Now } else { Urgency::Polite };
    let cause = if args.all { ExitCause::TeamStopped } else { ExitCause::Stopped };
    let fsync = bus.fsync();
    let end = |names| end_members(Arc::clone(&bus), cause, urgency, names);
    let with_lead =
        args.all && matches!(liveness::probe(&team, &AgentName::lead()), Ok(Liveness::Alive(_)));
    let departures = block_on(async {
        if with_lead {
            // A lead that knows it is being stopped starts nobody new meanwhile.
            let marked = roster::update(&team, fsync, |roster| {
                if let Some(lead) = roster.lead.as_mut() {
                    let _refused = lifecycle::apply(&mut lead.status, LifecycleEvent::StopAsked);
                }
            });
            marked.map_err(store_failure)?;
        }
        let stopping = names.clone();
        let mut departures = ProgressLine::begin("stopping")
            .during(end(names), || still_there(&team, &stopping))
            .await;
        if with_lead {
            let lead = vec![AgentName::lead()];
            let waiting = ProgressLine::begin("stopping");
            departures
                .extend(waiting.during(end(lead.clone()), || still_there(&team, &lead)).await);
        }
        Ok::<_, Failure>(departures)
    })??;
    report(&departures, args.show.json)
}

/// The members of these names, if there are such.
pub(super) fn named(team: &TeamDir, given: &[String]) -> Result<Vec<AgentName>, Failure> {
    let roster = roster::read(team).map_err(store_failure)?;
    let mut names = Vec::new();
    for given in given {
        let name = member_name(given)?;
        let known = roster.member(name.as_str()).is_some();
        if !known && !matches!(liveness::probe(team, &name), Ok(Liveness::Alive(_))) {
            let members: Vec<_> = roster.members.iter().map(|m| m.name.as_str()).collect();
            let why = format!("the team is: {}", members.join(", "));
            let what = format!("there is no member {name}");
            let hint = "`team ls` shows who is there; nothing was stopped";
            return Err(Failure::new(Exit::Failure, what, why, hint));
        }
        names.push(name);
    }
    Ok(names)
}

/// Ends members in the person's name; waits until they are gone.
pub(super) async fn end_members(
    bus: Arc<Bus>,
    cause: ExitCause,
    urgency: Urgency,
    names: Vec<AgentName>,
) -> Vec<StopOutcome> {
    let (_patience, urgency) = watch::channel(urgency);
    let takedown = StopPlan {
        bus,
        clock: Rc::new(SystemClock),
        by: AgentName::user(),
        reason: "the user stops you".into(),
        cause,
        urgency,
    };
    stop_in_parallel(&takedown, names).await
}

/// What became of a member.
pub(super) fn told(departure: &StopOutcome) -> String {
    format!("{} {}", departure.name, departure.words())
}

fn report(departures: &[StopOutcome], json: bool) -> Result<Exit, Failure> {
    let stuck = departures.iter().any(|departure| departure.result == StopResult::Stuck);
    let printed = if json {
        let stopped: Vec<_> = departures
            .iter()
            .map(|departure| json!({ "name": departure.name.as_str(), "how": departure.words() }))
            .collect();
        out::say_json(&json!({ "schema": 1, "stopped": stopped }))
    } else {
        let lines: Vec<String> = departures.iter().map(told).collect();
        let text = if lines.is_empty() { "nobody was running".into() } else { lines.join("\n") };
        out::say(&text)
    };
    if stuck {
        let hint = "look at it with `ps`; a process in state D waits for the kernel";
        let why = "a process is still there after SIGKILL";
        return Err(Failure::new(Exit::Failure, "not everybody could be stopped", why, hint));
    }
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}
