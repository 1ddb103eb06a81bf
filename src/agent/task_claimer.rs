//! Watches the task list for an idle agent, and claims the next task for it. Also claims the tasks that are
//! assigned to it.
//!
//! It waits for file events, with a slow poll as a fallback (a file written by hand, a dead owner). [`Tasks`]
//! decides which task is suitable. On a host that does not keep the list, the files are a copy, and a claim is an order, which
//! fails while the other host is away.

use super::event::MachineEvent;
use super::identity::MemberContext;
use crate::os::async_fd::ReadableFd;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::store::asynchronous::offload;
use crate::store::change_watcher::ChangeWatcher;
use crate::tasks::{TaskError, Tasks};
use crate::wire::AgentName;
use crate::wire::log_words;
use crate::wire::message::{Body, Message};
use crate::wire::task::TaskId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The period in which the list is read without a file event.
const POLL_EVERY: Duration = Duration::from_secs(1);

pub(super) struct TaskClaimer {
    pub(super) context: Rc<MemberContext>,
    pub(super) watch: Option<AbortOnDrop>,
    /// The outcome of the last attempt.
    pub(super) last: Rc<LastAttempt>,
}

/// The outcome of the last attempt to claim a task.
#[derive(Debug, Default)]
pub(super) struct LastAttempt {
    /// Whether the next watch begins with a wait: the task that is in sight could not be claimed.
    waits: Cell<bool>,
    /// The reason for which it has failed, which is logged once; empty if it has not.
    cause: RefCell<String>,
}

impl LastAttempt {
    fn has_ended(&self, taken: &Result<Option<TaskId>, TaskError>, is_kept_here: bool) {
        let cause = taken.as_ref().err().map(TaskError::cause).unwrap_or_default();
        match taken {
            Ok(Some(id)) => tracing::info!(%id, "took a task"),
            Err(why) if *self.cause.borrow() != cause => {
                tracing::warn!(%why, "a task could not be taken");
            }
            Ok(None) | Err(_) => {}
        }
        // A copy of the list may show a task still that is taken.
        self.waits.set(taken.is_err() || matches!(taken, Ok(None)) && !is_kept_here);
        self.cause.replace(cause);
    }
}

/// A task that is aborted when this value is dropped.
pub(super) struct AbortOnDrop(pub(super) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TaskClaimer {
    /// Claims the tasks whose assignment is in the mail: from now on the member works on them.
    pub(super) async fn begin_assigned(&self, mail: &[Message]) {
        let id = |message: &Message| {
            let Body::TaskAssignment { task_id, .. } = &message.body else { return None };
            TaskId::parse(task_id).ok()
        };
        let ids: Vec<TaskId> = mail.iter().filter_map(id).collect();
        if ids.is_empty() {
            return;
        }
        let (tasks, me) = (Arc::clone(&self.context.tasks), self.context.me.name.clone());
        if let Err(why) = offload(move || tasks.begin_assigned(&ids, &me)).await {
            tracing::warn!(%why, "an assigned task could not be claimed");
        }
    }

    /// Starts to watch for a task. [`MachineEvent::TaskInSight`] is sent once.
    pub(super) fn watch(&mut self) {
        let context = Rc::clone(&self.context);
        let waits = self.last.waits.take();
        self.watch = Some(AbortOnDrop(spawn_local(async move {
            if let Some(stage) = &context.team_context.stage {
                stage.before_claim().await;
            }
            if waits {
                tokio::time::sleep(POLL_EVERY).await;
            }
            // The watcher is created before the first read of the list, so that no change is missed.
            let fifo = ChangeWatcher::of_tasks(context.tasks.dir()).and_then(|fifo| {
                let ready = ReadableFd::to_read(&fifo)?;
                Ok((fifo, ready))
            });
            let fifo = fifo
                .inspect_err(|why| tracing::warn!(%why, "no file events; the task list is polled"))
                .ok();
            while !is_in_sight(&context.tasks, &context.me.name).await {
                tokio::select! {
                    () = touched(fifo.as_ref()) => {}
                    () = tokio::time::sleep(POLL_EVERY) => {}
                }
            }
            let _gone = context.events.send(MachineEvent::TaskInSight.into());
        })));
    }

    /// Claims the next task. [`MachineEvent::TaskTaken`] is sent when the attempt is over.
    pub(super) fn take(&mut self) {
        self.watch = None;
        let (context, last) = (Rc::clone(&self.context), Rc::clone(&self.last));
        spawn_local(async move {
            let (tasks, me) = (Arc::clone(&context.tasks), context.me.name.clone());
            let take = move || {
                let taken = tasks.take_next(&me).map(|task| task.map(|task| task.id));
                (taken, matches!(tasks.kept_on(), Ok(None)))
            };
            let (taken, is_kept_here) = offload(take).await;
            last.has_ended(&taken, is_kept_here);
            let _gone = context.events.send(MachineEvent::TaskTaken.into());
        });
    }
}

/// Whether the list has a task that this agent would claim.
async fn is_in_sight(tasks: &Arc<Tasks>, me: &AgentName) -> bool {
    let (tasks, me) = (Arc::clone(tasks), me.clone());
    match spawn_blocking(move || tasks.next_for(&me)).await {
        Ok(Ok(next)) => next.is_some(),
        failed => {
            tracing::warn!(why = log_words::work_done(&failed), "the task list could not be read");
            false
        }
    }
}

/// Waits until the list is touched, or forever without file events.
async fn touched(fifo: Option<&(ChangeWatcher, ReadableFd)>) {
    let Some((fifo, ready)) = fifo else { return std::future::pending().await };
    let heard = ready.woken().await.is_ok() && fifo.acknowledge().is_ok();
    if !heard {
        std::future::pending::<()>().await;
    }
}
