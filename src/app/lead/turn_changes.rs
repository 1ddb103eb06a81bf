//! The files that agents have changed in a turn, found in the journals of undo when the turn has ended.

use crate::os::spawn::spawn_local;
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::undo::session_diff::{AgentDiff, turn_diff};
use crate::wire::{AgentName, WallTime};
use std::collections::BTreeMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) struct TurnChanges {
    /// Turns that began before this time belong to an earlier session.
    since: WallTime,
    /// The numbers of the last turns that were shown, by agent.
    shown: BTreeMap<AgentName, u64>,
    found: UnboundedSender<(u64, AgentDiff)>,
    unread: UnboundedReceiver<(u64, AgentDiff)>,
}

impl TurnChanges {
    pub(super) fn new(since: WallTime) -> Self {
        let (found, unread) = unbounded_channel();
        Self { since, shown: BTreeMap::new(), found, unread }
    }

    /// Looks in the background for the changes of the turn of an agent that has ended.
    pub(super) fn turn_ended(&self, team: &TeamDir, agent: &AgentName) {
        let (team, agent, since) = (team.clone(), agent.clone(), self.since);
        let (after, found) = (self.shown.get(&agent).copied(), self.found.clone());
        spawn_local(async move {
            let look = move || turn_diff(&team, &agent, since, after.unwrap_or_default());
            match offload(look).await {
                // A session that has ended shows no changes.
                Ok(Some(change)) => found.send(change).unwrap_or_default(),
                Ok(None) => {}
                Err(why) => tracing::warn!(%why, "the changes of a turn are not known"),
            }
        });
    }

    /// Waits for the changes of a turn that were not shown before.
    pub(super) async fn next(&mut self) -> AgentDiff {
        while let Some((turn, diff)) = self.unread.recv().await {
            let shown = self.shown.entry(diff.agent.clone()).or_default();
            if turn > *shown {
                *shown = turn;
                return diff;
            }
        }
        std::future::pending().await
    }
}
