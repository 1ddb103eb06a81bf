//! `team interrupt`: ends the running turns of teammates; their processes go on.

use super::args::Json;
use crate::app::interrupt::{Interrupted, interrupt, interruptible};
use crate::app::output::{print_result, warn};
use crate::app::{context::Context, event_loop::block_on};
use crate::error::{Exit, Failure};
use crate::wire::AgentName;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Teammates whose running turns end
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Reason that the teammates are told with their next message
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    context.refuse_inside_agent("interrupt")?;
    let bus = context.team_bus()?;
    let names = args.names.iter().map(|given| interruptible(bus.dir(), given));
    let names = names.collect::<Result<Vec<AgentName>, Failure>>()?;
    // One that does not answer keeps no other from its end.
    let (outcomes, failures) = block_on(async {
        let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
        for name in names {
            match interrupt(&bus, &name, args.reason.clone()).await {
                Ok(outcome) => outcomes.push((name, outcome)),
                Err(why) => failures.push(why),
            }
        }
        (outcomes, failures)
    })?;
    let as_json = || {
        let outcomes = outcomes.iter();
        let outcomes =
            outcomes.map(|(name, it)| json!({ "name": name.as_str(), "outcome": it.word() }));
        json!({ "schema": 1, "interrupted": outcomes.collect::<Vec<_>>() })
    };
    let as_text = || {
        let lines = outcomes.iter().map(|(name, it)| format!("{name} {}", it.words()));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut failures = failures.into_iter();
    if let Some(first) = failures.next() {
        if !outcomes.is_empty() {
            print_result(args.json.json, as_json, as_text);
        }
        failures.for_each(|why| warn(&why.to_string()));
        return Err(first);
    }
    let exit = print_result(args.json.json, as_json, as_text);
    let is_all = outcomes.iter().all(|(_, outcome)| *outcome == Interrupted::Turn);
    Ok(if is_all { exit } else { Exit::Failure })
}
