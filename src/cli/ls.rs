//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

pub(super) use super::args::Json as Args;
use crate::app::output::{exit_after, print};
use crate::app::{context::Context, roster_view};
use crate::error::{Exit, Failure};
use crate::os::terminal_size;

/// Columns of the table where the width of the terminal is unknown.
const DEFAULT_COLUMNS: usize = 120;

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    let width = terminal_size::columns().unwrap_or(DEFAULT_COLUMNS);
    Ok(exit_after(print(&if args.json {
        roster_view::json(&team)?.to_string()
    } else {
        roster_view::table(&team, context.palette(), width)?
    })))
}
