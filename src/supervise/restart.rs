//! Restarting: crashed teammates after a pause, and the members of a resumed team.

use super::handshake::StartReason;
use super::reap::StartedLife;
use super::roster_updates::{self, is_expected_back};
use super::start::{SpawnSpec, StartError};
use super::supervisor::Supervisor;
use crate::os::failpoint::hit;
use crate::protocol::restart::ProcessEnd;
use crate::store::{StoreError, roster};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use std::rc::Rc;
use std::time::Duration;

impl Supervisor {
    /// Starts a member after the pause, and again as often as the policy allows, unless the restart is
    /// cancelled.
    pub(super) async fn restart(
        self: &Rc<Self>,
        name: AgentName,
        mut after: String,
        start_reason: StartReason,
        mut pause: Duration,
    ) {
        loop {
            tokio::time::sleep(pause).await;
            hit("reap.restart");
            if !self.members.take_restart(&name, &after) {
                return;
            }
            let Some(spec) = self.respawn_spec(&name, &after, start_reason) else { return };
            let Err(why) = self.launch(&spec).await else {
                tracing::info!(%name, ?start_reason, "teammate restarted");
                return;
            };
            if matches!(why, StartError::Cancelled) {
                return;
            }
            tracing::error!(%name, %why, "the teammate could not be restarted");
            let dir = self.config.bus.dir();
            let entry = roster::read(dir).ok().and_then(|r| r.member(name.as_str()).cloned());
            let Some(entry) = entry else { return };
            after.clone_from(&entry.incarnation);
            let since = self.config.clock.monotonic();
            let life = StartedLife { name: name.clone(), incarnation: after.clone(), since };
            match self.record_exit(&life, ProcessEnd::NotStarted, None).await {
                Some((next, _)) => pause = next,
                None => return,
            }
        }
    }

    /// Brings back members of an earlier team, each with its memory. Mail to them is accepted when this
    /// returns; their processes start in the background.
    pub(crate) async fn resume(self: &Rc<Self>, names: &[AgentName]) -> Result<(), StoreError> {
        let (at, wanted) = (self.config.clock.now(), names.to_vec());
        let lives = self.write(move |roster| roster_updates::resumed(roster, &wanted, at)).await?;
        for (name, life) in lives {
            self.members.plan_restart(&name, &life);
            let supervisor = Rc::clone(self);
            tokio::task::spawn_local(async move {
                supervisor.restart(name, life, StartReason::Resumed, Duration::ZERO).await;
            });
        }
        Ok(())
    }

    /// Describes the teammate from its entry; `None` if its restart was cancelled.
    fn respawn_spec(
        &self,
        name: &AgentName,
        after: &str,
        start_reason: StartReason,
    ) -> Option<SpawnSpec> {
        let roster = roster::read(self.config.bus.dir()).ok()?;
        let member =
            roster.member(name.as_str()).filter(|member| is_expected_back(member, after))?;
        // It keeps its mode, unless the lead has become stricter.
        let lead_mode = self.config.permissions.borrow().mode;
        let mode = PermissionMode::parse(&member.mode).unwrap_or_default().min(lead_mode);
        Some(SpawnSpec {
            name: name.clone(),
            role: member.role.clone(),
            model: member.model.clone(),
            mode,
            start_reason,
            after: Some(after.to_owned()),
        })
    }
}
