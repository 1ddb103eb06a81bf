//! The turn of a member: one of its own model, or one of a foreign agent.

use crate::agent::conversation::{TurnEnd, TurnEvent, TurnMachine};
use crate::agent::event::Action;
use crate::agent::foreign::ForeignTurn;
use crate::agent::foreign::event::{ForeignEvent, ForeignTurnEvent};
use std::ops::ControlFlow;

#[derive(Debug)]
pub(super) enum Turn {
    Own(Box<TurnMachine>),
    Foreign(Box<ForeignTurn>),
}

/// The turn after a step, or its end, and the actions to perform. A foreign turn has a tally.
pub(super) type Stepped = (ControlFlow<TurnEnd, Turn>, Vec<Action>, Option<Tally>);

/// The facts about a foreign turn that the machine keeps.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Whether the agent has done work in this step.
    pub(super) has_worked: bool,
    /// Whether mail was taken in that the agent has not seen.
    pub(super) has_unseen: bool,
    /// The number of calls up to now.
    pub(super) calls: u64,
}

impl Turn {
    pub(super) fn takes_prompts(&self) -> bool {
        match self {
            Self::Own(turn) => turn.takes_prompts(),
            Self::Foreign(turn) => turn.takes_prompts(),
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        match self {
            Self::Own(turn) => turn.is_asking(),
            Self::Foreign(turn) => turn.is_asking(),
        }
    }

    pub(super) fn is_acting(&self) -> bool {
        match self {
            Self::Own(turn) => turn.is_acting(),
            Self::Foreign(turn) => turn.is_acting(),
        }
    }

    pub(super) fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    pub(super) fn step(self, event: TurnEvent) -> Stepped {
        match self {
            Self::Own(turn) => {
                let (next, todo) = turn.step(event);
                (
                    next.map_continue(|turn| Self::Own(Box::new(turn))),
                    todo.into_iter().map(Action::Turn).collect(),
                    None,
                )
            }
            Self::Foreign(turn) => step_foreign(turn, ForeignTurnEvent::Turn(event)),
        }
    }

    /// Passes an event of a foreign agent on. A turn of an own model has none.
    pub(super) fn on_agent(self, event: ForeignEvent) -> Stepped {
        match self {
            Self::Own(turn) => (ControlFlow::Continue(Self::Own(turn)), Vec::new(), None),
            Self::Foreign(turn) => step_foreign(turn, ForeignTurnEvent::Agent(event)),
        }
    }
}

fn step_foreign(mut turn: Box<ForeignTurn>, event: ForeignTurnEvent) -> Stepped {
    let (end, todo) = turn.step(event);
    let tally = Tally {
        has_worked: turn.take_worked(),
        has_unseen: turn.has_unseen(),
        calls: turn.calls(),
    };
    let next = end.map_or(ControlFlow::Continue(Turn::Foreign(turn)), ControlFlow::Break);
    (next, todo, Some(tally))
}
