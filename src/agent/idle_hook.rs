//! Asks the hooks whether a member may be idle.

use super::conversation::{WorkId, WorkSet};
use super::event::{Event, Events};
use crate::tools::team::TeamContext;
use crate::wire::hook::HookEvent;
use std::rc::Rc;

/// The question to the hooks.
pub(super) struct IdleHookRunner {
    team_context: Rc<TeamContext>,
    work: WorkSet<Result<(), String>>,
}

impl IdleHookRunner {
    /// Creates a runner; the answers are events.
    pub(super) fn new(team_context: Rc<TeamContext>, events: Events) -> Self {
        let work = WorkSet::new(move |id, answer| {
            let _ended = events.send(Event::IdleHookEnded(id, answer));
        });
        Self { team_context, work }
    }

    /// Asks the hooks, which have refused `refused` times in a row.
    pub(super) fn ask(&mut self, role: &str, refused: u32) {
        let team_context = Rc::clone(&self.team_context);
        let fields = serde_json::json!({ "role": role, "refused": refused });
        self.work.start(async move {
            let asked = team_context.hooks.ask(HookEvent::TeammateIdle, fields).await;
            asked.map_err(|why| why.to_string())
        });
    }

    /// Whether an answer still counts: it does not once the question was cancelled.
    pub(super) fn end(&mut self, id: WorkId) -> bool {
        self.work.end(id)
    }

    /// Cancels the question.
    pub(super) fn cancel(&mut self) {
        self.work.cancel_all();
    }
}
