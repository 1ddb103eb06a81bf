//! `team stop`: the stop ladder from outside the lead.

use super::args::Json;
use crate::app::context::Context;
use crate::app::event_loop::block_on;
use crate::app::names::member_names;
use crate::app::output::print_result;
use crate::app::stop_members::{members_named, outcome_line, stop_team, stop_with_progress};
use crate::error::{Exit, Failure};
use crate::protocol::ladder::Urgency;
use crate::store::roster;
use crate::supervise::stop::StopOutcome;
use crate::wire::roster::ExitCause;
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(override_usage = "team stop [OPTIONS] <NAME>...\n       team stop [OPTIONS] --all")]
pub(super) struct Args {
    /// Whom to stop
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,
    /// Everybody, members started by hand too, the lead last
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Skip the polite request: SIGTERM at once
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
        let roster = roster::read(bus.dir())?;
        let mut members = member_names(&roster);
        members.reverse();
        block_on(async { stop_team(&bus, urgency, members).await })??
    } else {
        let names = members_named(bus.dir(), &args.names)?;
        block_on(async { stop_with_progress(&bus, ExitCause::Stopped, urgency, names).await })?
    };
    let exit = print_result(
        args.json.json,
        || {
            let stopped = outcomes
                .iter()
                .map(|outcome| json!({ "name": outcome.name.as_str(), "how": outcome.words() }));
            json!({ "schema": 1, "stopped": stopped.collect::<Vec<_>>() })
        },
        || match outcomes.as_slice() {
            [] => "nobody was running".into(),
            outcomes => outcomes.iter().map(outcome_line).collect::<Vec<_>>().join("\n"),
        },
    );
    if outcomes.iter().any(StopOutcome::is_stuck) {
        let hint = "look at it with `ps`; a process in state D waits for the kernel";
        let why = "a process is still there after SIGKILL";
        return Err(Failure::new(Exit::Failure, "not everybody could be stopped", why, hint));
    }
    Ok(exit)
}
