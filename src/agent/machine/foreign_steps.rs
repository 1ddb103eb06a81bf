//! The steps of a member whose turns are those of a foreign agent.

use super::turn::{Stepped, Turn};
use super::{Machine, Phase};
use crate::agent::conversation::{HostAction, TurnAction, TurnEffect, TurnEnd, TurnMachine};
use crate::agent::event::{Action, StopCause};
use crate::agent::foreign::ForeignTurn;
use crate::agent::foreign::event::ForeignEvent;
use crate::tools::Call;
use std::collections::VecDeque;
use std::ops::ControlFlow;

impl Machine {
    /// Creates a turn that is taking in its first input. `calls` are those of our model that are still to run.
    pub(super) fn new_turn(&self, calls: VecDeque<Call>) -> Turn {
        match &self.me.foreign {
            None => Turn::Own(Box::new(TurnMachine::new(self.me.max_rounds, calls))),
            Some(agent) => {
                Turn::Foreign(Box::new(ForeignTurn::new(agent.clone(), self.foreign.calls)))
            }
        }
    }

    /// Passes an event of the agent to the turn. Between two turns it has no effect.
    pub(super) fn on_agent(&mut self, phase: Phase, event: ForeignEvent) -> Phase {
        match phase {
            Phase::InTurn(turn, stop) => match self.stepped(turn.on_agent(event)) {
                ControlFlow::Continue(turn) => Phase::InTurn(turn, stop),
                ControlFlow::Break(end) => self.end_turn(end, stop),
            },
            Phase::Leaving(turn) => match self.stepped(turn.on_agent(event)) {
                ControlFlow::Continue(turn) => Phase::Leaving(turn),
                ControlFlow::Break(end) => self.end_turn(end, Some(StopCause::LeadLost)),
            },
            phase @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::TakingMail
            | Phase::Over) => phase,
        }
    }

    /// Adds the actions of a turn, and returns the turn.
    pub(super) fn stepped(&mut self, (next, todo, tally): Stepped) -> ControlFlow<TurnEnd, Turn> {
        if let Some(tally) = tally {
            if tally.has_worked {
                self.exchange_limit.progress();
            }
            self.foreign = tally;
        }
        for action in todo {
            if let Action::Turn(TurnAction::Effect(TurnEffect::RunTools(calls))) = &action {
                self.running = calls.iter().map(|call| call.name.clone()).collect();
            }
            // Both actions publish a status other than idle.
            let is_shown =
                |it: &HostAction| matches!(it, HostAction::Doing(_) | HostAction::Ask(_));
            if matches!(&action, Action::Turn(TurnAction::Host(it)) if is_shown(it)) {
                self.published_idle = false;
            }
            self.todo.push(action);
        }
        next
    }
}
