//! Decides which signatures and which wish for thinking a request has, from the refusals of the endpoint so far.

use super::reply::is_bad_signature;
use crate::llm::attempt_error::{AttemptError, ErrorReport};
use crate::wire::chat::Request;
use std::cell::Cell;

/// The signatures that a request repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Signatures {
    /// Those of all messages.
    #[default]
    All,
    /// None of the first messages, of which the API has refused one.
    After(usize),
}

impl Signatures {
    pub(super) fn has(self, message: usize) -> bool {
        match self {
            Self::All => true,
            Self::After(first) => message >= first,
        }
    }
}

/// The refusals of an endpoint to a client: none at first.
#[derive(Debug, Default)]
pub(in crate::llm) struct Refusals {
    signatures: Cell<Signatures>,
    thinking: Cell<bool>,
}

impl Refusals {
    /// Learns from the error of a request; returns true if the request is to be sent again without what was refused.
    pub(in crate::llm) fn learn(&self, error: &AttemptError, request: &Request) -> bool {
        if is_bad_signature(error) {
            let without = Signatures::After(request.messages.len());
            return self.signatures.replace(without) != without;
        }
        // The name of a model need not tell which fields it has.
        is_about_thinking(error) && !self.thinking.replace(true)
    }

    /// Returns the signatures that a request repeats. The messages of a shorter conversation than the refused one are
    /// others, as after a summary: all of their signatures are tried.
    pub(super) fn signatures(&self, request: &Request) -> Signatures {
        if let Signatures::After(first) = self.signatures.get()
            && request.messages.len() < first
        {
            self.signatures.set(Signatures::All);
        }
        self.signatures.get()
    }

    /// Whether a request may say how the model is to think.
    pub(super) fn permits_thinking(&self) -> bool {
        !self.thinking.get()
    }
}

/// Whether the API refuses a field of the wish for thinking.
fn is_about_thinking(error: &AttemptError) -> bool {
    let AttemptError::Reported(ErrorReport { status: 400, message, .. }) = error else {
        return false;
    };
    message.to_lowercase().contains("thinking")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{request, text};

    fn refusal(message: &str) -> AttemptError {
        let (status, message) = (400, message.into());
        AttemptError::Reported(ErrorReport { status, message, ..ErrorReport::default() })
    }

    fn conversation(messages: usize) -> Request {
        request(vec![vec![text("hi")]; messages])
    }

    #[test]
    fn a_shorter_conversation_has_all_signatures_again() {
        let refusals = Refusals::default();
        let bad = refusal("Corrupted thought signature.");
        assert!(refusals.learn(&bad, &conversation(5)) && !refusals.learn(&bad, &conversation(5)));
        for (messages, signatures) in [
            (5, Signatures::After(5)),
            (7, Signatures::After(5)),
            (3, Signatures::All),
            (7, Signatures::All),
        ] {
            assert_eq!(refusals.signatures(&conversation(messages)), signatures, "{messages}");
        }
        assert!(refusals.permits_thinking());
    }
}
