//! Brings the saved work of teammates on other hosts here: whenever one is idle or has ended, before it is taken, and when the
//! team is stopped.

use super::clones_elsewhere::{CollectedAt, TransferError};
use super::stop::StopOutcome;
use super::supervisor::Supervisor;
use crate::os::spawn::spawn_local;
use crate::protocol::ladder::Urgency;
use crate::tools::ToolError;
use crate::wire::AgentName;
use crate::wire::isolation::ClonePlace;
use crate::wire::roster::{Member, StartedBy, Status};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The time that a lead which ends waits for the work of its teammates.
const LAST_WITHIN: Duration = Duration::from_secs(30);

/// The pause before work is collected again that has not come.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);

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
        spawn_local(async move {
            if let Err(why) = supervisor.collect(&name).await {
                tracing::warn!(%name, %why, "the work of a teammate on another host has not come");
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                supervisor.collected.borrow_mut().remove(name.as_str());
            }
        });
    }

    async fn collect(&self, name: &AgentName) -> Result<Option<ClonePlace>, TransferError> {
        let Some(clones) = self.clones_elsewhere() else { return Ok(None) };
        let Some((place, host)) = clones.known(name) else { return Ok(None) };
        clones.collect(name, (&place, &host)).await?;
        Ok(Some(place))
    }

    /// Collects the work of a teammate that is about to be taken. Returns its clone, and the reason if what is here may not be all.
    pub(super) async fn collect_ordered(
        &self,
        name: &AgentName,
    ) -> Result<(ClonePlace, Option<String>), ToolError> {
        let Some(place) = self.clone_elsewhere(name) else {
            return Err(ToolError::Reply(format!(
                "{name} works in a folder of another host, without a clone: ask it for the text of its changes"
            )));
        };
        let collected = self.collect(name).await;
        let why = collected.err().map(|why| {
            format!("the work of {name} is that which {} has sent before: {why}", place.host)
        });
        Ok((place, why))
    }

    /// Sends the files of the workspace to the host of a teammate.
    pub(super) async fn send_files_ordered(&self, name: &AgentName) -> Result<String, ToolError> {
        let Some(clones) = self.clones_elsewhere() else { return Ok(String::new()) };
        clones.send_files(name).await.map_err(ToolError::reply)?;
        Ok(format!("the files are on the host of {name}"))
    }

    /// Collects the work of teammates on other hosts that were stopped, unless the person is in a hurry. Returns the names of
    /// those whose work has not come.
    pub(crate) async fn collect_last(&self, outcomes: &[StopOutcome]) -> Vec<AgentName> {
        let stopped = outcomes.iter().filter(|it| it.host.is_some() && it.unreached.is_none());
        let names: Vec<AgentName> = stopped.map(|it| it.name.clone()).collect();
        let mut left: BTreeSet<AgentName> = names.iter().cloned().collect();
        let mut collecting: FuturesUnordered<_> = names
            .into_iter()
            .map(|name| async move { (self.collect(&name).await, name) })
            .collect();
        let mut urgency = self.urgency.subscribe();
        let until = tokio::time::Instant::now() + LAST_WITHIN;
        while !left.is_empty() {
            tokio::select! {
                Some((collected, name)) = collecting.next() => match collected {
                    Ok(_) => {
                        left.remove(&name);
                    }
                    Err(why) => {
                        tracing::warn!(%name, %why, "the work of a teammate on another host has not come");
                    }
                },
                _ = urgency.wait_for(|urgency| *urgency > Urgency::Polite) => break,
                () = tokio::time::sleep_until(until) => break,
                else => break,
            }
        }
        left.into_iter().collect()
    }
}
