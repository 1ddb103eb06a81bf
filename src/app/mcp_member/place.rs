//! The place that the model of a client takes in the team: that of a teammate, or that of the lead.

use super::membership::Membership;
use crate::app::event_loop::SignalStream;
use crate::error::{Exit, Failure};
use crate::tool_server::LocalFuture;
use std::rc::Rc;

/// A place that is free until a client takes it.
pub(in crate::app) trait Place {
    /// Takes the place for a program, by its name for people. Fails if the place is taken, or the team cannot be used.
    fn take<'a>(&'a self, program: &'a str) -> LocalFuture<'a, Result<TakenPlace, Failure>>;
}

pub(in crate::app) struct TakenPlace {
    pub(in crate::app) member: Rc<dyn PlacedMember>,
    /// The signals to this process.
    pub(in crate::app) signals: SignalStream,
}

/// A member in its place.
pub(in crate::app) trait PlacedMember {
    fn membership(&self) -> &Membership;

    /// Returns the instructions for the model, of which some clients show only the beginning.
    fn instructions(&self) -> String;

    /// Leaves the team; if the member is leaving already, waits until it has left.
    fn leave(&self, exit: Exit) -> LocalFuture<'_, ()>;

    /// Makes it leave sooner: a signal came meanwhile.
    fn hurry(&self) {}
}
