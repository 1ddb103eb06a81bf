//! The roster entry of a teammate that joins its team.

use super::options::TeammateOptions;
use crate::app::context::Context;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::lifecycle;
use crate::store::{Fsync, TeamDir, roster};
use crate::wire::WallTime;
use crate::wire::roster::{Member, Roster, StartedBy, UsageCount};

/// Joins the team. Returns what the name has used in earlier incarnations.
///
/// # Errors
/// The teammate was stopped or started again before it was ready.
pub(super) fn join(
    context: &Context,
    team: &TeamDir,
    options: &TeammateOptions,
) -> Result<UsageCount, Failure> {
    let usage = if options.lead.is_some() {
        // The lead has written the entry; the first status report completes it.
        // Read under the lock: a stop that came before the life lock was taken is in the entry by then.
        let (name, incarnation) = (options.name.as_str(), &options.hello.incarnation);
        roster::update(team, Fsync::Never, |roster| expected_entry(roster, name, incarnation))?
    } else {
        Some(write_entry(context, team, options)?)
    };
    usage.ok_or_else(|| {
        let why = "it was stopped, or started again, before it was ready";
        Failure::new(Exit::InUse, format!("{} cannot join", options.name), why, "start it again")
    })
}

fn write_entry(
    context: &Context,
    team: &TeamDir,
    options: &TeammateOptions,
) -> Result<UsageCount, Failure> {
    let now = SystemClock.now();
    Ok(roster::update(team, Fsync::Always, |roster| {
        if roster.created_at == WallTime::default() {
            roster.created_at = now;
        }
        let member = roster.enter(options.name.as_str(), now);
        member.role.clone_from(&options.hello.role);
        member.model = options.model.to_string();
        member.mode = options.hello.permissions.mode.word().into();
        (member.started_by, member.cwd) = (StartedBy::Hand, context.cwd.display().to_string());
        member.incarnation.clone_from(&options.hello.incarnation);
        member.pid = i32::try_from(std::process::id()).ok();
        let _legal = lifecycle::apply_spawned(&mut member.status);
        member.since = now;
        member.usage
    })?)
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
