//! `team permissions`: the rules in force, and the way to take back those of answers.

use super::args::Json;
use crate::app::permissions::{RuleInForce, in_force, revoke, table};
use crate::app::{context::Context, event_loop::block_on, output::print_result};
use crate::error::{Exit, Failure};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Revoke rules that answers have made: their calls ask again, in every running agent
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// The numbers of the rules
    #[arg(value_name = "NUMBER", required = true)]
    numbers: Vec<u64>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let json_of =
        |rules: &[RuleInForce]| rules.iter().map(RuleInForce::json).collect::<Vec<Value>>();
    let Some(Action::Revoke(asked)) = args.action else {
        let rules = in_force(context, &context.team_to_view()?)?;
        let as_json = || json!({ "schema": 1, "rules": json_of(&rules) });
        let as_text = || table(&rules, context.palette());
        return Ok(print_result(args.json.json, as_json, as_text));
    };
    context.refuse_inside_agent("permissions")?;
    let bus = context.team_bus()?;
    let gone = block_on(revoke(context, &bus, &asked.numbers))??;
    let as_json = || json!({ "schema": 1, "revoked": json_of(&gone) });
    let as_text = || {
        let lines = gone.iter().map(|it| format!("{} asks again", it.rule));
        lines.collect::<Vec<_>>().join("\n")
    };
    Ok(print_result(asked.json.json, as_json, as_text))
}
