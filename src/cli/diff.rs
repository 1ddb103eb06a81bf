//! `team diff`: shows what the agents have changed since the session began.

use super::args::Json;
use crate::app::context::Context;
use crate::app::output::print_result;
use crate::app::undo;
use crate::error::{Exit, Failure};
use crate::ui;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agents (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let names: Vec<_> =
        args.names.iter().map(|name| undo::agent(&team, name)).collect::<Result<_, _>>()?;
    let diffs = undo::session_diff(&team, &names)?;
    let since = undo::session_start(&team)?;
    let json = || undo::diff_json(since, &diffs);
    Ok(print_result(args.json.json, json, || {
        ui::undo::diff(&diffs, &undo::clone_folders(&team), context.palette())
    }))
}
