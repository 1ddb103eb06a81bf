//! Looking out for tasks: an idle agent waits for one that it would take, and takes it.
//!
//! Waits for file events, with a slow look as the safety net (a file written by hand, a dead owner).
//! Which task suits is decided by the list.

use super::Events;
use super::event::Event;
use crate::os::async_fd::ReadableFd;
use crate::store::tasks::TaskListWatch;
use crate::tasks::Tasks;
use crate::wire::AgentName;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the list is looked at while no event comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An agent's way to its next task.
pub(super) struct TaskClaimer {
    tasks: Arc<Tasks>,
    me: AgentName,
    events: Events,
    /// The look-out under way.
    out: Option<JoinHandle<()>>,
    /// The last task could not be taken: the next try comes later.
    failed: Rc<Cell<bool>>,
}

impl Drop for TaskClaimer {
    fn drop(&mut self) {
        self.come_back();
    }
}

impl TaskClaimer {
    pub(super) fn new(tasks: Arc<Tasks>, me: AgentName, events: Events) -> Self {
        Self { tasks, me, events, out: None, failed: Rc::default() }
    }

    /// Says so once a task is in sight.
    pub(super) fn seek(&mut self) {
        self.come_back();
        let (tasks, me, events) = (Arc::clone(&self.tasks), self.me.clone(), self.events.clone());
        let has_failed = self.failed.take();
        self.out = Some(tokio::task::spawn_local(async move {
            if has_failed {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // Armed before the first look: what comes meanwhile is not missed.
            let fifo = TaskListWatch::listen(tasks.dir()).and_then(|fifo| {
                let ready = ReadableFd::to_read(&fifo)?;
                Ok((fifo, ready))
            });
            let fifo = fifo
                .inspect_err(|why| tracing::warn!(%why, "no file events; tasks are polled for"))
                .ok();
            while !is_in_sight(&tasks, &me).await {
                tokio::select! {
                    () = rung(fifo.as_ref()) => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
            let _gone = events.send(Event::TaskInSight);
        }));
    }

    /// Takes the next task and says when that is over.
    pub(super) fn take(&mut self) {
        self.come_back();
        let (tasks, me, events) = (Arc::clone(&self.tasks), self.me.clone(), self.events.clone());
        let failed = Rc::clone(&self.failed);
        tokio::task::spawn_local(async move {
            match tokio::task::spawn_blocking(move || tasks.take_next(&me)).await {
                Ok(Ok(Some(task))) => tracing::info!(id = %task.id, "took a task"),
                Ok(Ok(None)) => {}
                refused => {
                    tracing::warn!(?refused, "a task could not be taken");
                    failed.set(true);
                }
            }
            let _gone = events.send(Event::TaskTaken);
        });
    }

    fn come_back(&mut self) {
        if let Some(out) = self.out.take() {
            out.abort();
        }
    }
}

async fn is_in_sight(tasks: &Arc<Tasks>, me: &AgentName) -> bool {
    let (tasks, me) = (Arc::clone(tasks), me.clone());
    match tokio::task::spawn_blocking(move || tasks.next_for(&me)).await {
        Ok(Ok(next)) => next.is_some(),
        failed => {
            tracing::warn!(?failed, "the task list could not be looked at");
            false
        }
    }
}

async fn rung(fifo: Option<&(TaskListWatch, ReadableFd)>) {
    let Some((fifo, ready)) = fifo else { return std::future::pending().await };
    let heard = ready.woken().await.is_ok() && fifo.acknowledge().is_ok();
    if !heard {
        std::future::pending::<()>().await;
    }
}
