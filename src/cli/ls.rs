//! `team ls`: the roster with liveness, activity, unread mail, age and tokens.

pub(super) use super::args::Json as Args;
use crate::app::output::{exit_after, print};
use crate::app::{context::Context, roster_view};
use crate::error::{Exit, Failure};
use crate::os::terminal_size;

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let team = context.team_to_view()?;
    Ok(exit_after(print(&if args.json {
        roster_view::json(&team)?.to_string()
    } else {
        roster_view::table(&team, context.palette(), terminal_size::columns())?
    })))
}
