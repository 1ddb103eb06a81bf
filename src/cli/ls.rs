//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

use super::args::Json;
use crate::app::output::{exit_after, print};
use crate::app::{context::Context, names::mailbox_name, roster_view};
use crate::error::{Exit, Failure};
use crate::os::terminal_size;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Agents to show (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let names =
        args.names.iter().map(|given| mailbox_name(given)).collect::<Result<Vec<_>, _>>()?;
    Ok(exit_after(print(&if args.json.json {
        roster_view::json(&team, &names)?.to_string()
    } else {
        roster_view::table(&team, &names, context.palette(), terminal_size::columns())?
    })))
}
