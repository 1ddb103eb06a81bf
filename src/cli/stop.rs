//! `team stop`: the shutdown ladder from outside.

use super::args::StopArgs;
use super::assemble::block_on;
use super::context::{Context, member_name, store_failure};
use super::out;
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::os::SystemClock;
use crate::protocol::ladder::Haste;
use crate::store::{Life, life, roster};
use crate::supervise::takedown::{Departure, How, Takedown, take_down_all};
use crate::wire::AgentName;
use crate::wire::roster::{ExitCause, Status};
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) fn run(context: &Context, args: &StopArgs) -> Result<Exit, Failure> {
    context.refuse_inside("stop")?;
    let team = context.team()?;
    let bus = context.bus(team.clone())?;
    let roster = roster::read(&team).map_err(store_failure)?;
    let names = if args.all {
        let members = roster.members.iter().rev();
        members.filter_map(|member| AgentName::member(&member.name).ok()).collect()
    } else {
        let mut names = Vec::new();
        for given in &args.names {
            let name = member_name(given)?;
            let known = roster.member(name.as_str()).is_some();
            if !known && !matches!(life::probe(&team, &name), Ok(Life::Alive(_))) {
                let members: Vec<_> = roster.members.iter().map(|m| m.name.as_str()).collect();
                let why = format!("the team is: {}", members.join(", "));
                let what = format!("there is no member {name}");
                let hint = "`team ls` shows who is there; nothing was stopped";
                return Err(Failure::new(Exit::Failure, what, why, hint));
            }
            names.push(name);
        }
        names
    };
    let haste = if args.now { Haste::Now } else { Haste::Polite };
    let cause = if args.all { ExitCause::TeamStopped } else { ExitCause::Stopped };
    let fsync = bus.fsync();
    let takedown = takedown(bus, haste, cause);
    let with_lead =
        args.all && matches!(life::probe(&team, &AgentName::lead()), Ok(Life::Alive(_)));
    let departures = block_on(async {
        if with_lead {
            // A lead that knows it is being stopped starts nobody new meanwhile.
            let marked = roster::update(&team, fsync, |roster| {
                if let Some(lead) = roster.lead.as_mut() {
                    lead.status = Status::Stopping;
                }
            });
            marked.map_err(store_failure)?;
        }
        let mut departures = take_down_all(&takedown, names).await;
        if with_lead {
            departures.extend(take_down_all(&takedown, vec![AgentName::lead()]).await);
        }
        Ok::<_, Failure>(departures)
    })??;
    report(&departures, args.show.json)
}

/// Ends members by the whole ladder, as a person who stops them by name.
pub(super) async fn polite(bus: Arc<Bus>, names: Vec<AgentName>) -> Vec<Departure> {
    take_down_all(&takedown(bus, Haste::Polite, ExitCause::Stopped), names).await
}

fn takedown(bus: Arc<Bus>, haste: Haste, cause: ExitCause) -> Takedown {
    let (_patience, haste) = watch::channel(haste);
    Takedown {
        bus,
        clock: Rc::new(SystemClock),
        by: AgentName::user(),
        reason: "the user stops you".into(),
        cause,
        haste,
    }
}

fn report(departures: &[Departure], json: bool) -> Result<Exit, Failure> {
    let stuck = departures.iter().any(|departure| departure.how == How::Stuck);
    let printed = if json {
        let stopped: Vec<_> = departures
            .iter()
            .map(|departure| json!({ "name": departure.name.as_str(), "how": departure.how.words() }))
            .collect();
        out::say_json(&json!({ "schema": 1, "stopped": stopped }))
    } else {
        let line = |departure: &Departure| format!("{} {}", departure.name, departure.how.words());
        let lines: Vec<String> = departures.iter().map(line).collect();
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
