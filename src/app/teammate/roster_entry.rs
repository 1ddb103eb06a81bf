//! The roster entry of a teammate that joins its team.

use super::options::TeammateOptions;
use crate::app::context::Context;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::lifecycle;
use crate::store::asynchronous::update_roster;
use crate::store::{Fsync, TeamDir};
use crate::wire::roster::{Member, Roster, StartedBy, UsageCount};
use crate::wire::{WallTime, WithUnknownFields};

/// Joins the team. Returns what the name has used in earlier incarnations.
///
/// # Errors
/// The teammate was stopped or started again before it was ready.
pub(super) async fn join(
    context: &Context,
    team: &TeamDir,
    options: &TeammateOptions,
) -> Result<UsageCount, Failure> {
    let usage = if options.lead.is_some() {
        // The lead has written the entry; the first status report completes it.
        // Read under the lock: a stop that came before the life lock was taken is in the entry by then.
        let (name, incarnation) = (options.name.clone(), options.hello.incarnation.clone());
        update_roster(team, Fsync::Never, move |roster| {
            expected_entry(roster, name.as_str(), &incarnation)
        })
        .await?
    } else {
        Some(write_entry(context, team, options).await?)
    };
    usage.ok_or_else(|| {
        let why = "it was stopped, or started again, before it was ready";
        Failure::new(Exit::InUse, format!("{} cannot join", options.name), why, "start it again")
    })
}

async fn write_entry(
    context: &Context,
    team: &TeamDir,
    options: &TeammateOptions,
) -> Result<UsageCount, Failure> {
    let now = SystemClock.now();
    let (name, hello) = (options.name.clone(), &options.hello);
    let (role, incarnation) = (hello.role.clone(), hello.incarnation.clone());
    let (model, mode) = (options.model.to_string(), hello.permissions.mode.word());
    let cwd = context.cwd.display().to_string();
    let enter = move |roster: &mut WithUnknownFields<Roster>| {
        if roster.created_at == WallTime::default() {
            roster.created_at = now;
        }
        let member = roster.enter(name.as_str(), now);
        (member.role, member.model, member.mode) = (role, model, mode.into());
        (member.started_by, member.cwd) = (StartedBy::Hand, cwd);
        member.incarnation = incarnation;
        member.pid = i32::try_from(std::process::id()).ok();
        let _legal = lifecycle::apply_spawned(&mut member.status);
        member.since = now;
        member.usage
    };
    Ok(update_roster(team, Fsync::Always, enter).await?)
}

/// The usage of a spawned teammate whose entry is still that of this incarnation.
fn expected_entry(roster: &Roster, name: &str, incarnation: &str) -> Option<UsageCount> {
    let is_ours = |member: &Member| member.incarnation == incarnation && !member.status.is_over();
    roster.member(name).filter(|member| is_ours(member)).map(|member| member.usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roster::Status;

    #[test]
    fn a_spawned_teammate_joins_only_while_its_entry_stands() {
        let mut roster = Roster::default();
        assert_eq!(expected_entry(&roster, "alice", "one"), None);
        let member = roster.enter("alice", WallTime::default());
        (member.incarnation, member.status) = ("one".into(), Status::Starting);
        assert!(expected_entry(&roster, "alice", "one").is_some());
        assert_eq!(expected_entry(&roster, "alice", "two"), None, "another incarnation");
        roster.enter("alice", WallTime::default()).status = Status::Shutdown;
        assert_eq!(expected_entry(&roster, "alice", "one"), None, "stopped meanwhile");
    }
}
