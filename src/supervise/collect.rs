//! Brings the saved work of teammates on other hosts here: whenever one is idle or has ended, before it is taken, and when the
//! team is stopped.

use super::clones_elsewhere::{CollectedAt, TransferError};
use super::stop::StopOutcome;
use super::supervisor::Supervisor;
use crate::tools::ToolError;
use crate::wire::AgentName;
use crate::wire::isolation::ClonePlace;
use crate::wire::roster::{Member, StartedBy, Status};
use std::rc::Rc;
use std::time::Duration;

/// The time that a lead which ends waits for the work of its teammates.
const LAST_WITHIN: Duration = Duration::from_secs(30);

impl Supervisor {
    /// Collects the work of a teammate on another host if it has become idle or ended since the last time.
    pub(super) fn collect_when_idle(self: &Rc<Self>, member: &Member) {
        let at_rest = member.status == Status::Idle || member.status.is_over();
        if member.host.is_none() || member.started_by != StartedBy::Lead || !at_rest {
            return;
        }
        let Member { incarnation, status, since, .. } = member;
        let state =
            CollectedAt { incarnation: incarnation.clone(), status: *status, since: *since };
        if self.collected.borrow().get(&member.name) == Some(&state) {
            return;
        }
        let Ok(name) = AgentName::member(&member.name) else { return };
        if member.away_since.is_some() || self.clone_elsewhere(&name).is_none() {
            return;
        }
        self.collected.borrow_mut().insert(member.name.clone(), state);
        let supervisor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(why) = supervisor.collect(&name).await {
                tracing::warn!(%name, %why, "the work of a teammate on another host has not come");
                // It is tried again with its next change, and before it is taken.
            }
        });
    }

    async fn collect(&self, name: &AgentName) -> Result<Option<ClonePlace>, TransferError> {
        let Some(clones) = self.clones_elsewhere() else { return Ok(None) };
        let Some((place, host)) = clones.known(name) else { return Ok(None) };
        clones.collect(name, (&place, &host)).await?;
        Ok(Some(place))
    }

    /// Collects the work of a teammate that is about to be taken.
    pub(super) async fn collect_ordered(&self, name: &AgentName) -> Result<ClonePlace, ToolError> {
        let collected = self.collect(name).await.map_err(|why| {
            ToolError::Reply(format!(
                "the work of {name} has not come from its host: {why}; try again later"
            ))
        })?;
        collected.ok_or_else(|| {
            ToolError::Reply(format!(
                "{name} works in a folder of another host, without a clone: ask it for the text of its changes"
            ))
        })
    }

    /// Sends the files of the workspace to the host of a teammate.
    pub(super) async fn send_files_ordered(&self, name: &AgentName) -> Result<String, ToolError> {
        let Some(clones) = self.clones_elsewhere() else { return Ok(String::new()) };
        clones.send_files(name).await.map_err(ToolError::reply)?;
        Ok(format!("the files are on the host of {name}"))
    }

    /// Collects the work of teammates on other hosts that were stopped.
    pub(super) async fn collect_last(&self, outcomes: &[StopOutcome]) {
        let stopped = outcomes.iter().filter(|it| it.host.is_some() && it.unreached.is_none());
        let collected = futures_util::future::join_all(
            stopped.map(|outcome| async { (&outcome.name, self.collect(&outcome.name).await) }),
        );
        match tokio::time::timeout(LAST_WITHIN, collected).await {
            Ok(collected) => {
                for (name, why) in
                    collected.iter().filter_map(|(name, it)| Some((name, it.as_ref().err()?)))
                {
                    tracing::warn!(%name, %why, "the work of a teammate on another host has not come");
                }
            }
            Err(_) => {
                tracing::warn!("the work of teammates on other hosts takes too long to wait for");
            }
        }
    }
}
