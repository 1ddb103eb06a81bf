//! The interface of a model provider, which answers one request with progress and one reply or a typed error.

use crate::wire::chat::{Reply, Request};
use std::pin::Pin;
use std::time::Duration;

/// A model endpoint. Dropping the future of [`Provider::turn`] cancels the call and closes its connection
/// at once.
pub trait Provider {
    /// Returns `provider/name`, as the roster shows it.
    fn label(&self) -> String;

    /// Requests one reply. `sink` receives the progress.
    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a>;
}

/// The future of one model call. It is not `Send`: each agent runs on one thread.
pub type TurnFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ModelError>> + 'a>>;

/// The receiver of the progress of a model call.
pub type Sink<'a> = &'a mut dyn FnMut(Delta);

/// Progress of a model call, for display only: the agent acts on the complete reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// A piece of text.
    Text(String),
    /// The next attempt starts after `wait`, because an attempt failed or the endpoint asked another caller to wait.
    /// The text that a failed attempt streamed is invalid.
    Retry {
        /// The time until the next attempt.
        wait: Duration,
        /// The reason, as a text for the user.
        why: String,
    },
}

/// The reason for which a call gave no reply, after all retries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint refused the credentials (401, 403).
    #[error("the endpoint refused the credentials: {0}")]
    Credentials(String),
    /// The account has reached its spend cap (a billing error, or a 429 without retry-after).
    #[error("the account's spend cap is reached: {0}")]
    SpendCap(String),
    /// The conversation does not fit the model's context window.
    #[error("the conversation no longer fits the model's context window: {0}")]
    ContextFull(String),
    /// The endpoint rejected this request and would reject it again.
    #[error("the endpoint rejected the request: {0}")]
    Rejected(String),
    /// The endpoint was unreachable or failed through all retries.
    #[error("the endpoint is unavailable: {0}")]
    Unavailable(String),
    /// The script does not match the request, or has an error.
    #[error("the script does not fit: {0}")]
    Script(String),
}
