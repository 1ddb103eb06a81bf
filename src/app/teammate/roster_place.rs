//! The entry of a teammate on the roster: its process joins the team, and leaves again if it cannot start.

use super::options::TeammateOptions;
use crate::app::context::Context;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::lifecycle;
use crate::store::asynchronous::update_roster;
use crate::store::{Fsync, TeamDir};
use crate::wire::roster::{Member, Roster, StartedBy, UsageCount};
use crate::wire::{AgentName, WithUnknownFields};

/// The place of a member in its team.
pub(super) struct RosterPlace {
    name: AgentName,
    incarnation: String,
    /// The usage of the member so far.
    pub(super) usage: UsageCount,
    starter: Starter,
}

/// The process that wrote the entry, and that undoes it if the start fails.
enum Starter {
    Lead,
    /// This process, with the entry that it has replaced.
    Hand(Option<Box<WithUnknownFields<Member>>>),
}

impl RosterPlace {
    /// Joins the team. Fails if a lead spawned this member and it was stopped or started again since.
    pub(super) async fn join(
        context: &Context,
        team: &TeamDir,
        options: &TeammateOptions,
    ) -> Result<Self, Failure> {
        let (name, incarnation) = (options.name.clone(), options.handshake.incarnation.clone());
        let (usage, starter) = if options.lead.is_some() {
            (check_entry(team, options).await?, Starter::Lead)
        } else {
            let (usage, earlier) = write_entry(context, team, options).await?;
            (usage, Starter::Hand(earlier.map(Box::new)))
        };
        Ok(Self { name, incarnation, usage, starter })
    }

    /// Restores the earlier entry after a failed start, which leaves no trace. The lead does this for its own members.
    pub(super) async fn give_back(self, team: &TeamDir) {
        let Self { name, incarnation, starter: Starter::Hand(earlier), .. } = self else { return };
        let restore = move |roster: &mut WithUnknownFields<Roster>| {
            let is_ours =
                |member: &&mut WithUnknownFields<Member>| member.incarnation == incarnation;
            let Some(member) = roster.member_mut(name.as_str()).filter(is_ours) else { return };
            match earlier {
                Some(earlier) => *member = *earlier,
                None => roster.members.retain(|member| member.name != name.as_str()),
            }
        };
        if let Err(why) = update_roster(team, Fsync::Always, restore).await {
            tracing::warn!(%why, "the roster entry of a teammate that did not start was not removed");
        }
    }
}

/// Returns the usage in the entry that the lead has written. Read under the roster's lock, it shows any stop before
/// the life lock was taken.
async fn check_entry(team: &TeamDir, options: &TeammateOptions) -> Result<UsageCount, Failure> {
    let (name, incarnation) = (options.name.clone(), options.handshake.incarnation.clone());
    let usage = move |roster: &mut WithUnknownFields<Roster>| {
        expected_entry(roster, name.as_str(), &incarnation)
    };
    update_roster(team, Fsync::Never, usage).await?.ok_or_else(|| {
        let what = format!("{} cannot join", options.name);
        let why = "it was stopped, or started again, before it was ready";
        Failure::new(Exit::InUse, what, why, "start it again")
    })
}

/// Returns the usage of a spawned teammate; `None` if its entry is over or belongs to another incarnation.
fn expected_entry(roster: &Roster, name: &str, incarnation: &str) -> Option<UsageCount> {
    let is_ours = |member: &Member| member.incarnation == incarnation && !member.status.is_over();
    roster.member(name).filter(|member| is_ours(member)).map(|member| member.usage)
}

/// Writes the entry of a teammate that was started by hand. Returns its usage so far, and its earlier entry.
async fn write_entry(
    context: &Context,
    team: &TeamDir,
    options: &TeammateOptions,
) -> Result<(UsageCount, Option<WithUnknownFields<Member>>), Failure> {
    let (name, handshake) = (options.name.clone(), &options.handshake);
    let (role, incarnation) = (handshake.role.clone(), handshake.incarnation.clone());
    let role_file = options.role_file.clone();
    let now = SystemClock.now();
    let (model, mode) = (options.model.to_string(), handshake.permissions.mode.word());
    let shared = || context.cwd.display().to_string();
    let cwd = handshake.work.as_ref().map_or_else(shared, |work| work.folder.clone());
    let (team_name, sandbox) = (options.team_name.clone(), handshake.sandbox.entry());
    let enter = move |roster: &mut WithUnknownFields<Roster>| {
        let earlier = roster.member(name.as_str()).cloned();
        roster.begin(now, team_name);
        let member = roster.enter(name.as_str(), now);
        (member.role, member.role_file) = (role, role_file);
        (member.model, member.mode) = (model, mode.into());
        (member.started_by, member.cwd) = (StartedBy::Hand, cwd);
        member.sandbox = Some(sandbox);
        member.incarnation = incarnation;
        member.pid = i32::try_from(std::process::id()).ok();
        let _legal = lifecycle::apply_spawned(&mut member.status);
        member.since = now;
        (member.usage, earlier)
    };
    Ok(update_roster(team, Fsync::Always, enter).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WallTime;
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
