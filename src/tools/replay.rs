//! The seam for an agent that plays a record again: it decides on the mail and on the calls of tools.

use super::call::{Call, ToolError, ToolOutput};
use std::pin::Pin;
use std::rc::Rc;

/// The result of a step of the play.
pub(crate) type StageFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The record that an agent plays again.
pub(crate) trait Stage {
    /// Waits until the mail of the next drain is in the inbox.
    fn before_drain(&self) -> StageFuture<'_, ()>;

    /// Ends the process here if it ended here in the record, before it said that it is idle.
    fn after_drain(&self) -> StageFuture<'_, ()>;

    /// Waits until the agent takes its next task from the list, as it did in the record.
    fn before_claim(&self) -> StageFuture<'_, ()>;

    /// Waits until it is the turn of a call. Returns its recorded result if the tool does not run; a tool of the team
    /// always runs.
    fn before_call<'a>(
        &'a self,
        call: &'a Call,
        is_of_team: bool,
    ) -> StageFuture<'a, Option<Result<ToolOutput, ToolError>>>;

    /// Delivers the mail that comes while the agent waits for the answer to a question.
    fn asks(self: Rc<Self>);

    /// Waits for mail that comes before the next call of the same reply.
    fn after_call<'a>(&'a self, call: &'a Call) -> StageFuture<'a, ()>;
}
