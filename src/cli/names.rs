//! `team __names`: the names that can be completed.

pub(super) use super::args::None as Args;
use crate::app::output::{exit_after, print};
use crate::app::{context::Context, names::member_names};
use crate::error::{Exit, Failure};
use crate::store::{liveness, roster};

/// Prints the lead, the user and the living members; without a team only the first two.
pub(super) fn run(context: &Context, _: Args) -> Result<Exit, Failure> {
    let mut names = vec!["lead".to_owned(), "user".to_owned()];
    if let Ok(team) = context.team_to_view()
        && let Ok(roster) = roster::read(&team)
    {
        let mut members = member_names(&roster);
        members.retain(|name| liveness::probe(&team, name).is_ok_and(|it| it.is_alive()));
        names.extend(members.iter().map(ToString::to_string));
    }
    Ok(exit_after(print(&names.join("\n"))))
}
