//! How a lead stops its teammates: all of them, or one by name.

use super::members::raise;
use super::stop::{StopOutcome, StopPlan, stop_in_parallel, words};
use super::supervisor::Supervisor;
use crate::protocol::ladder::Urgency;
use crate::store::roster;
use crate::tools::ToolError;
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::roster::{ExitCause, StartedBy};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the end of a lead waits for the hooks that are told of its teammates' ends.
const LAST_HOOKS_WITHIN: Duration = Duration::from_secs(10);

/// How long a stop waits for the cleanup after the processes: guards get two seconds, and what has escaped
/// them gets two more.
const REAPED_WITHIN: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Raises the urgency of all stops: ladders under way skip to its rung.
    pub(crate) fn hurry(&self, urgency: Urgency) {
        raise(&self.urgency, urgency);
        self.members.raise_stops(None, urgency);
    }

    /// Makes SIGTERM the next step of a stop by name that is under way. Returns whether there is one.
    pub(crate) fn hurry_member(&self, name: &AgentName) -> bool {
        self.members.raise_stops(Some(name), Urgency::Now)
    }

    /// Stops all teammates that this lead has started, in parallel, and starts no more.
    pub(crate) async fn stop_all(&self, reason: &str, cause: ExitCause) -> Vec<StopOutcome> {
        self.is_closing.set(true);
        let names: Vec<AgentName> = self.members.with_process().into_iter().collect();
        let mut outcomes = self.stop(names, reason, cause, None).await;
        outcomes.retain(|outcome| outcome.rung.is_some());
        self.wait_for_hooks().await;
        outcomes
    }

    /// Stops one member by its name.
    pub(crate) async fn stop_named(&self, name: AgentName, reason: &str) -> Option<StopOutcome> {
        let urgency = watch::Sender::new(*self.urgency.borrow());
        if self.hurry_member(&name) {
            raise(&urgency, Urgency::Now);
        }
        self.stop(vec![name], reason, ExitCause::Stopped, Some(urgency)).await.pop()
    }

    /// Stops a teammate for the lead's model.
    pub(super) async fn stop_ordered(
        &self,
        name: AgentName,
        reason: String,
    ) -> Result<String, ToolError> {
        let roster = roster::read(self.config.bus.dir()).map_err(ToolError::reply)?;
        let Some(member) = roster.member(name.as_str()) else {
            let names: Vec<&str> = roster.members.iter().map(|member| &*member.name).collect();
            return Err(ToolError::Reply(format!(
                "there is no teammate {name}; the team is: {}",
                if names.is_empty() { "nobody".into() } else { names.join(", ") }
            )));
        };
        if member.started_by == StartedBy::Hand {
            return Err(ToolError::Reply(format!(
                "{name} was started by hand and is the user's to stop (`team stop {name}`)"
            )));
        }
        let outcome = self.stop_named(name.clone(), &reason).await;
        let how = outcome.as_ref().map_or_else(|| words(None).into(), StopOutcome::words);
        let text = format!("{name} {how}.");
        let is_stuck = outcome.is_some_and(|outcome| outcome.is_stuck());
        if is_stuck { Err(ToolError::Reply(text)) } else { Ok(text) }
    }

    /// Stops some members. `by_name` is the urgency of a stop of one member alone.
    async fn stop(
        &self,
        names: Vec<AgentName>,
        reason: &str,
        cause: ExitCause,
        by_name: Option<watch::Sender<Urgency>>,
    ) -> Vec<StopOutcome> {
        let stop = self.members.begin_stop(&names, by_name);
        for name in &names {
            self.members.wait_started(name).await;
        }
        let plan = StopPlan {
            bus: Arc::clone(&self.config.bus),
            clock: Rc::clone(&self.config.clock),
            by: AgentName::lead(),
            reason: reason.into(),
            cause,
            urgency: (*stop).as_ref().unwrap_or(&self.urgency).subscribe(),
        };
        let outcomes = stop_in_parallel(&plan, names.clone()).await;
        // A lead that exits in the middle of the cleanup would leave processes behind.
        let gone = outcomes.iter().filter(|outcome| !outcome.is_stuck());
        let gone: Vec<AgentName> = gone.map(|outcome| outcome.name.clone()).collect();
        if tokio::time::timeout(REAPED_WITHIN, self.members.wait_reaped(&gone)).await.is_err() {
            tracing::warn!(?gone, "the cleanup after them takes too long to wait for");
        }
        self.members.end_stop(&names, &stop);
        outcomes
    }

    /// Waits until the hooks have been told of every end, up to a limit.
    async fn wait_for_hooks(&self) {
        if !self.config.hooks.are_there_for(HookEvent::TeammateExited) {
            return;
        }
        let mut hooks = self.exit_hooks.subscribe();
        let told = tokio::time::timeout(LAST_HOOKS_WITHIN, hooks.wait_for(|count| *count == 0));
        if told.await.is_err() {
            tracing::warn!("the lead ends before a hook for the end of a teammate has finished");
        }
    }
}
