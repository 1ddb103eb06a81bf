//! The entry of a teammate on the roster: its process joins the team, and leaves again if it cannot start.

use super::options::TeammateOptions;
use crate::app::context::Context;
use crate::error::{Exit, Failure};
use crate::os::{Clock, SystemClock};
use crate::protocol::lifecycle;
use crate::store::asynchronous::{offload, update_roster};
use crate::store::{Fsync, TeamDir, roster};
use crate::wire::roster::{Member, Roster, StartedBy, UsageCount};
use crate::wire::sandbox::SandboxEntry;
use crate::wire::{AgentName, WithUnknownFields};

/// The place of a member in its team.
pub(in crate::app) struct RosterPlace {
    name: AgentName,
    incarnation: String,
    /// The usage of the member so far.
    pub(in crate::app) usage: UsageCount,
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
            return Self::enter(team, name, entry_of(context, options)).await;
        };
        Ok(Self { name, incarnation, usage, starter })
    }

    /// Joins the team with the entry of a member that was started by hand.
    pub(in crate::app) async fn enter(
        team: &TeamDir,
        name: AgentName,
        entry: HandEntry,
    ) -> Result<Self, Failure> {
        let incarnation = entry.incarnation.clone();
        let (usage, earlier) = entry.write(team, name.clone()).await?;
        let starter = Starter::Hand(earlier.map(Box::new));
        Ok(Self { name, incarnation, usage, starter })
    }

    /// Restores the earlier entry after a failed start, which leaves no trace. The lead does this for its own members.
    pub(in crate::app) async fn give_back(self, team: &TeamDir) {
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
    let dir = team.clone();
    let usage = move || {
        roster::update_member(&dir, &name, Fsync::Never, |member| {
            expected_entry(member.map(|it| &**it), &incarnation)
        })
    };
    offload(usage).await?.ok_or_else(|| {
        let what = format!("{} cannot join", options.name);
        let why = "it was stopped, or started again, before it was ready";
        Failure::new(Exit::InUse, what, why, "start it again")
    })
}

/// Returns the usage of a spawned teammate; `None` if its entry is over or belongs to another incarnation.
fn expected_entry(member: Option<&Member>, incarnation: &str) -> Option<UsageCount> {
    let is_ours = |member: &&Member| member.incarnation == incarnation && !member.status.is_over();
    member.filter(is_ours).map(|member| member.usage)
}

/// The entry of a member that was started by hand.
pub(in crate::app) struct HandEntry {
    pub(in crate::app) role: String,
    pub(in crate::app) role_file: Option<String>,
    pub(in crate::app) incarnation: String,
    pub(in crate::app) model: String,
    pub(in crate::app) mode: String,
    pub(in crate::app) cwd: String,
    pub(in crate::app) sandbox: Option<SandboxEntry>,
    /// The name of the team, if this process begins it.
    pub(in crate::app) team_name: Option<String>,
}

impl HandEntry {
    /// Writes the entry. Returns the usage of the member so far, and its earlier entry.
    async fn write(
        self,
        team: &TeamDir,
        name: AgentName,
    ) -> Result<(UsageCount, Option<WithUnknownFields<Member>>), Failure> {
        let now = SystemClock.now();
        let enter = move |roster: &mut WithUnknownFields<Roster>| {
            let earlier = roster.member(name.as_str()).cloned();
            roster.begin(now, self.team_name);
            let member = roster.enter(name.as_str(), now);
            (member.role, member.role_file) = (self.role, self.role_file);
            (member.model, member.mode) = (self.model, self.mode);
            (member.started_by, member.cwd) = (StartedBy::Hand, self.cwd);
            member.sandbox = self.sandbox;
            member.incarnation = self.incarnation;
            member.pid = i32::try_from(std::process::id()).ok();
            let _legal = lifecycle::apply_spawned(&mut member.status);
            member.since = now;
            (member.usage, earlier)
        };
        Ok(update_roster(team, Fsync::Always, enter).await?)
    }
}

fn entry_of(context: &Context, options: &TeammateOptions) -> HandEntry {
    let handshake = &options.handshake;
    let shared = || context.cwd.display().to_string();
    HandEntry {
        role: handshake.role.clone(),
        role_file: options.role_file.clone(),
        incarnation: handshake.incarnation.clone(),
        model: options.model.to_string(),
        mode: handshake.permissions.mode.word().into(),
        cwd: handshake.work.as_ref().map_or_else(shared, |work| work.folder.clone()),
        sandbox: Some(handshake.sandbox.entry()),
        team_name: options.settings.team_name.value.clone().map(String::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roster::Status;

    #[test]
    fn a_spawned_teammate_joins_only_while_its_entry_stands() {
        assert_eq!(expected_entry(None, "one"), None);
        let (incarnation, status) = ("one".into(), Status::Starting);
        let mut member = Member { status, incarnation, ..Member::default() };
        assert!(expected_entry(Some(&member), "one").is_some());
        assert_eq!(expected_entry(Some(&member), "two"), None, "another incarnation");
        member.status = Status::Shutdown;
        assert_eq!(expected_entry(Some(&member), "one"), None, "stopped meanwhile");
    }
}
