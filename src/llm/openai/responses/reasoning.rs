//! Decides which reasoning a request has, from the refusals of the endpoint so far.

use crate::llm::attempt_error::AttemptError;
use crate::llm::openai::api_error::{cannot_read_reasoning, refuses_reasoning};
use crate::wire::chat::Request;
use std::cell::Cell;

/// The reasoning that a client sends and asks for: all of it, until the endpoint refuses that.
#[derive(Debug, Default)]
pub(in crate::llm) struct ReasoningUse {
    is_refused: Cell<bool>,
    unreadable: Cell<usize>,
}

impl ReasoningUse {
    /// Learns from the error of a request; returns true if the request is to be sent again without the reasoning that
    /// was refused.
    pub(in crate::llm) fn learn(&self, error: &AttemptError, request: &Request) -> bool {
        let sent = request.messages.len();
        if refuses_reasoning(error) {
            return !self.is_refused.replace(true);
        }
        // The reasoning of later replies can be read.
        cannot_read_reasoning(error) && self.unreadable.replace(sent) < sent
    }

    /// Whether reasoning is asked for.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.is_refused.get()
    }

    /// Prepares for a request. The messages of a shorter conversation than the refused one are others, as after a summary:
    /// their reasoning is tried.
    pub(super) fn begin(&self, request: &Request) {
        if request.messages.len() < self.unreadable.get() {
            self.unreadable.set(0);
        }
    }

    /// Whether the reasoning of the message at this place is sent back.
    pub(super) fn is_kept(&self, place: usize) -> bool {
        self.is_asked_for() && place >= self.unreadable.get()
    }
}
