//! `team stop`: the stop ladder from outside the lead.

use super::args::Json;
use crate::app::stop_members::{members_named, outcome_lines, stop_team, stop_with_progress};
use crate::app::{
    context::Context, event_loop::block_on, names::member_names, output::print_result,
};
use crate::error::{Exit, Failure};
use crate::protocol::ladder::Urgency;
use crate::store::roster;
use crate::supervise::stop::StopOutcome;
use crate::wire::roster::ExitCause;
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(override_usage = "team stop [OPTIONS] <NAME>...\n       team stop [OPTIONS] --all")]
pub(super) struct Args {
    /// Members to stop
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,
    /// Stop all members, also those started by hand, and the lead last
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Skip the shutdown request: send SIGTERM at once
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("stop")?;
    let bus = context.team_bus()?;
    let urgency = if args.now { Urgency::Now } else { Urgency::Polite };
    let outcomes = if args.all {
        let mut members = member_names(&*roster::read(bus.dir())?);
        members.reverse();
        block_on(stop_team(&bus, urgency, members))??
    } else {
        let names = members_named(bus.dir(), &args.names)?;
        block_on(stop_with_progress(&bus, ExitCause::Stopped, urgency, names))?
    };
    let as_json = || {
        let how = |it: &StopOutcome| json!({ "name": it.name.as_str(), "how": it.words() });
        json!({ "schema": 1, "stopped": outcomes.iter().map(how).collect::<Vec<_>>() })
    };
    let as_text = || match outcomes.as_slice() {
        [] => "no member was running".into(),
        outcomes => outcome_lines(outcomes),
    };
    let exit = print_result(args.json.json, as_json, as_text);
    if let Some(away) = outcomes.iter().find(|it| it.is_stuck() && it.host.is_some()) {
        let host = away.host.as_deref().unwrap_or_default();
        let hint = format!("run `team stop {} --now` on {host}", away.name);
        let why = format!("{} is on {host}, and has not ended", away.name);
        return Err(Failure::new(Exit::Failure, "not all members could be stopped", why, hint));
    }
    if outcomes.iter().any(StopOutcome::is_stuck) {
        let hint = "look at it with `ps`; a process in state D waits for the kernel";
        let why = "a process is still there after SIGKILL";
        return Err(Failure::new(Exit::Failure, "not all members could be stopped", why, hint));
    }
    Ok(exit)
}
