//! The operations on teammates that the lead's tools are given.

use super::stop::{StopOutcome, StopResult};
use super::supervisor::Supervisor;
use crate::store::roster;
use crate::tools::{SpawnOrder, TeamOps, ToolError, ToolFuture};
use crate::wire::AgentName;
use crate::wire::roster::StartedBy;
use std::rc::Rc;

/// [`TeamOps`] of a lead.
struct SupervisorOps(Rc<Supervisor>);

impl TeamOps for SupervisorOps {
    fn spawn(&self, order: SpawnOrder) -> ToolFuture<'_> {
        let supervisor = Rc::clone(&self.0);
        run_to_completion(async move { supervisor.spawn(order).await })
    }

    fn shutdown(&self, name: AgentName, reason: String) -> ToolFuture<'_> {
        let supervisor = Rc::clone(&self.0);
        run_to_completion(async move { supervisor.shutdown(name, reason).await })
    }
}

/// Runs an operation as a task of its own: an interrupted turn drops the future of its tool, and must not
/// leave a process half started or half stopped.
fn run_to_completion(
    work: impl Future<Output = Result<String, ToolError>> + 'static,
) -> ToolFuture<'static> {
    let task = tokio::task::spawn_local(work);
    Box::pin(async move { task.await.unwrap_or_else(|why| Err(ToolError::Reply(why.to_string()))) })
}

impl Supervisor {
    /// Returns the operations for the lead's tools.
    pub(crate) fn ops(self: &Rc<Self>) -> Rc<dyn TeamOps> {
        Rc::new(SupervisorOps(Rc::clone(self)))
    }

    /// Stops a teammate for the lead's model.
    async fn shutdown(&self, name: AgentName, reason: String) -> Result<String, ToolError> {
        let roster =
            roster::read(self.config.bus.dir()).map_err(|why| ToolError::Reply(why.to_string()))?;
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
        let words = outcome.as_ref().map_or(StopResult::WasGone.words().into(), StopOutcome::words);
        let is_stuck = outcome.is_some_and(|outcome| outcome.result == StopResult::Stuck);
        let text = format!("{name} {words}.");
        if is_stuck { Err(ToolError::Reply(text)) } else { Ok(text) }
    }
}
