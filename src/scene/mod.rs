//! What the team looks like at this moment, told from the files alone: who is there, what is said, what
//! is to be done, what waits for an answer.
//!
//! [`Scene`] is plain data for whoever shows it; [`Observer`] keeps one up to date by reading only what
//! is new. *Invariant:* looking changes nothing in the team folder, asks no model and takes no mail. It
//! does not know how anything is shown.

mod letters;
mod observer;
mod seats;

pub(crate) use letters::{Letter, Letters, Standing};
pub(crate) use observer::Observer;
pub(crate) use seats::{Seat, seats};

use crate::store::transcript::OpenQuestion;
use crate::wire::Open;
use crate::wire::task::{Task, TaskId};
use crate::wire::transcript::Line;
use std::collections::VecDeque;

/// The team as it was at the last look.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    /// The team's name.
    pub(crate) team_name: String,
    /// The lead, then the members in the order they joined.
    pub(crate) seats: Vec<Seat>,
    /// What was said between them, oldest first.
    pub(crate) letters: Letters,
    /// The task list, and what each task still waits for.
    pub(crate) tasks: Vec<(Open<Task>, Vec<TaskId>)>,
    /// What waits for a decision, by name of who asks.
    pub(crate) requests: Vec<(String, OpenQuestion)>,
    /// The end of one agent's conversation.
    pub(crate) conversation: Conversation,
    /// Why something could not be read at the last look.
    pub(crate) trouble: Option<String>,
}

/// The last lines of a conversation that is followed.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Whose it is; empty when nobody's is followed.
    pub(crate) name: String,
    /// Its lines, oldest first.
    pub(crate) lines: VecDeque<Line>,
}

impl Scene {
    /// The agent of that name.
    pub(crate) fn seat(&self, name: &str) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.name == name)
    }
}
