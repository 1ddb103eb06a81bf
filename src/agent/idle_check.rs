//! The check whether a member may be idle after a turn: it must have no open task, and the hooks of the user may keep
//! it at work.
//!
//! An open task is told to the model once. If the next turn leaves it open as well, it goes back to the list.

use super::event::{Event, Events};
use super::identity::MemberContext;
use crate::agent::conversation::{WorkId, WorkSet};
use crate::protocol::tasks::TaskEdit;
use crate::store::asynchronous::offload;
use crate::tasks::TaskError;
use crate::wire::hook::HookEvent;
use crate::wire::message::IdleReason;
use crate::wire::task::{TaskId, TaskStatus};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

pub(super) struct IdleCheck {
    context: Rc<MemberContext>,
    work: WorkSet<Result<(), String>>,
    told: Rc<RefCell<Told>>,
}

/// The open tasks of which the model knows.
#[derive(Debug, Default)]
struct Told {
    tasks: BTreeSet<TaskId>,
    /// Those that the check names. The model is told of them only if the check is not cancelled.
    next: Vec<TaskId>,
}

/// The state of the member for one check.
pub(super) struct IdleQuestion {
    pub(super) reason: IdleReason,
    pub(super) role: String,
    /// The number of refusals in a row.
    pub(super) refused: u32,
    pub(super) may_refuse: bool,
}

impl IdleCheck {
    pub(super) fn new(context: Rc<MemberContext>, events: Events) -> Self {
        let work = WorkSet::new(move |id, answer| {
            let _ended = events.send(Event::IdleCheckEnded(id, answer));
        });
        Self { context, work, told: Rc::default() }
    }

    /// Starts a check. Its end is sent as [`Event::IdleCheckEnded`].
    pub(super) fn start(&mut self, question: IdleQuestion) {
        let (context, told) = (Rc::clone(&self.context), Rc::clone(&self.told));
        self.work.start(async move {
            let has_finished = question.reason == IdleReason::Available && question.may_refuse;
            check_tasks(&context, &told, has_finished).await?;
            if !has_finished {
                return Ok(());
            }
            let IdleQuestion { role, refused, .. } = question;
            let fields = serde_json::json!({ "role": role, "refused": refused });
            let hooks = &context.team_context.hooks;
            hooks.ask(HookEvent::TeammateIdle, fields).await.map_err(|why| why.to_string())
        });
    }

    /// Ends a check; `false` if it was cancelled before.
    pub(super) fn end(&mut self, id: WorkId) -> bool {
        let is_current = self.work.end(id);
        if is_current {
            let told = &mut *self.told.borrow_mut();
            told.tasks.extend(told.next.drain(..));
        }
        is_current
    }

    pub(super) fn cancel(&mut self) {
        self.work.cancel_all();
        self.told.borrow_mut().next.clear();
    }
}

/// Fails with a text for the model if it has an open task of which it was not told. Gives the others back.
async fn check_tasks(
    context: &MemberContext,
    told: &RefCell<Told>,
    may_tell: bool,
) -> Result<(), String> {
    let (tasks, me) = (Arc::clone(&context.tasks), context.me.name.clone());
    let open = match offload(move || tasks.in_progress_of(&me)).await {
        Ok(open) => open,
        Err(why) => {
            tracing::warn!(%why, "the open tasks of this member are not known");
            return Ok(());
        }
    };
    let (mut new, mut known) = (Vec::new(), Vec::new());
    {
        let mut told = told.borrow_mut();
        told.tasks.retain(|id| open.iter().any(|task| task.id == *id));
        for task in open {
            let is_new = may_tell && !told.tasks.contains(&task.id);
            if is_new { &mut new } else { &mut known }.push(task.id);
        }
        told.next.clone_from(&new);
        if new.is_empty() {
            told.tasks.clear();
        }
    }
    if new.is_empty() {
        give_back(context, known).await;
        return Ok(());
    }
    // Not the subjects: the model takes this text for the program's, and a subject is the text of a colleague.
    let list: Vec<String> = new.iter().map(|id| format!("task {id}")).collect();
    Err(format!(
        "your turn has ended, and {} is still in progress and yours. Complete it if it is done, set its \
         status to failed if it cannot be done, or go on with it. If you end your turn now, it goes back \
         to the list, for everybody",
        list.join(", ")
    ))
}

async fn give_back(context: &MemberContext, ids: Vec<TaskId>) {
    let (tasks, me) = (Arc::clone(&context.tasks), context.me.name.clone());
    let given_back = move || {
        for id in ids {
            let note = format!("{me} ended a turn without completing it");
            tasks.update(id, TaskEdit::status(TaskStatus::Pending, Some(note)), &me)?;
            tracing::info!(%id, "gave back a task that was left open");
        }
        Ok::<_, TaskError>(())
    };
    if let Err(why) = offload(given_back).await {
        tracing::warn!(%why, "an open task could not be given back");
    }
}
