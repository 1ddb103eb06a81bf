//! Coming to rest after a turn: who is asked first, and what is said about it.

use super::{AutoClaim, IdleHook, Machine, Phase, Turn};
use crate::agent::event::Action;
use crate::agent::progress::Progress;
use crate::wire::message::IdleReason;
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;

/// How often in a row an agent may be kept from resting: whoever never lets it rest would spend tokens
/// for ever.
const MOST_KEPT: u32 = 5;

impl Machine {
    /// Nothing to do: idle, if nobody objects.
    pub(super) fn rest(&mut self, todo: &mut Vec<Action>) {
        let has_worked = self.finished == Some(IdleReason::Available);
        if self.me.idle_hook == IdleHook::Asked && has_worked && self.kept < MOST_KEPT {
            todo.push(Action::AskIdleHook(self.kept));
            self.phase = Phase::Resting;
            return;
        }
        if self.me.idle_hook == IdleHook::Asked && has_worked {
            let told = format!("the hooks refused to let it rest {MOST_KEPT} times: it rests now");
            todo.push(Action::Log(told.clone()));
            todo.push(Action::Show(Progress::Note(told)));
        }
        self.be_idle(todo);
    }

    /// Whoever was asked has answered.
    pub(super) fn on_idle_hook(&mut self, leave: Result<(), String>, todo: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Resting) {
            return;
        }
        match leave {
            Err(content) => {
                self.kept += 1;
                self.finished = None;
                todo.push(Action::Record(Entry::Note { content }));
                todo.push(Action::Show(Progress::TurnStarted { by_mail: true }));
                self.think(Turn::default(), todo);
            }
            Ok(()) => self.be_idle(todo),
        }
    }

    /// Something has come while it was asked whether it may rest.
    pub(super) fn leave_idle(&mut self, todo: &mut Vec<Action>) {
        todo.push(Action::Cancel);
        todo.push(Action::Drain);
        self.phase = Phase::Taking(None);
    }

    /// Idle, and said so once.
    fn be_idle(&mut self, todo: &mut Vec<Action>) {
        if !self.published_idle {
            todo.push(Action::Publish(Status::Idle, None));
            self.published_idle = true;
        }
        if let Some(reason) = self.finished.take() {
            todo.push(Action::NotifyIdle(reason));
        }
        todo.push(Action::Show(Progress::Idle));
        self.phase = Phase::Idle;
        if self.me.auto_claim == AutoClaim::TakesTasks {
            todo.push(Action::FindTask);
        }
    }
}
