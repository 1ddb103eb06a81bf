//! The state and the arguments that the task tools of one agent share.

use crate::tasks::{Changed, TaskError, Tasks};
use crate::tools::call::{ToolError, invalid_name};
use crate::tools::team::TeamContext;
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::task::TaskId;
use crate::wire::tool::{Parameter, ParameterType};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

/// The words of all task statuses.
pub(super) const STATUSES: [&str; 5] =
    ["pending", "in_progress", "completed", "failed", "cancelled"];

/// The argument that names a task.
pub(super) const TASK_ID: Parameter =
    Parameter::required("task_id", ParameterType::Text, "the id of the task, such as \"3\"");

/// The arguments of a tool that only needs a task.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnlyTaskId {
    pub(super) task_id: TaskId,
}

/// The shared state of one agent's task tools.
pub(in crate::tools) struct TaskContext {
    team: Rc<TeamContext>,
    tasks: Arc<Tasks>,
}

impl TaskContext {
    /// The context of an agent of this team.
    pub(in crate::tools) fn new(team: Rc<TeamContext>, tasks: Arc<Tasks>) -> Self {
        Self { team, tasks }
    }

    /// The agent's team context.
    pub(super) fn team(&self) -> &TeamContext {
        &self.team
    }

    /// Works on the list on another thread, as this agent.
    ///
    /// # Errors
    /// The error of `work`; fatal if the team folder is gone.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tasks, &AgentName) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (tasks, me) = (Arc::clone(&self.tasks), self.team.me().clone());
        match tokio::task::spawn_blocking(move || work(&tasks, &me)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) if why.is_without_team() => Err(ToolError::Fatal(why.to_string())),
            Ok(Err(why)) => Err(ToolError::Reply(format!("{why}; {}", why.hint()))),
            Err(why) => Err(ToolError::Reply(format!("the task list was not reached: {why}"))),
        }
    }

    /// Asks the user's hooks before a task is completed.
    ///
    /// # Errors
    /// A hook refused, or the task cannot be read.
    pub(super) async fn ask_to_complete(&self, id: TaskId) -> Result<(), ToolError> {
        let hooks = self.team.hooks();
        if !hooks.are_there_for(HookEvent::TaskCompleted) {
            return Ok(());
        }
        let (task, _) = self.work(move |tasks, _| tasks.get(id)).await?;
        hooks.ask(HookEvent::TaskCompleted, json!({ "task_id": id, "task": task })).await
    }
}

/// Reads the name of a task's owner.
///
/// # Errors
/// It is not a valid name.
pub(super) fn owner_name(given: &str) -> Result<AgentName, ToolError> {
    AgentName::mailbox(given).map_err(|why| invalid_name(&why))
}

/// The answer to a change: `done`, then the tasks that became ready and the owners who were not told.
pub(super) fn report(done: String, changed: &Changed) -> String {
    let mut text = done;
    for task in &changed.ready {
        let whose = match &task.owner {
            Some(owner) => format!("{owner}'s, who was told"),
            None => "nobody's: it can be claimed".into(),
        };
        let _infallible = write!(text, "\nTask {} can begin now ({whose}).", task.id);
    }
    for untold in &changed.untold {
        let _infallible = write!(text, "\nNOT told: {untold}. Send a message yourself.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::task::TaskStatus;

    #[test]
    fn every_status_word_is_a_status() {
        let statuses: Vec<TaskStatus> =
            STATUSES.iter().map(|word| serde_json::from_value(json!(word)).unwrap()).collect();
        let words: Vec<&str> = statuses.iter().map(|status| status.word()).collect();
        assert_eq!(words, STATUSES);
    }
}
