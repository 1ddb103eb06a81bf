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
    /// A piece of the model's reasoning.
    Thought(String),
    /// A piece of the arguments of a tool call, as JSON; empty when the call begins. A stream that sends whole calls has none.
    ToolInput {
        /// The name of the tool.
        tool: String,
        /// The piece.
        piece: String,
    },
    /// The next attempt starts after `wait`, because an attempt failed or the endpoint asked another caller to wait.
    /// What a failed attempt streamed is invalid.
    Retry {
        /// The time until the next attempt.
        wait: Duration,
        /// The longest time for which the call is tried from now on.
        left: Duration,
        /// The reason, as a text for the user. It is the same for attempts that fail in the same way.
        why: String,
    },
    /// The endpoint has not begun to answer. The attempt goes on.
    Silent {
        /// The time after which the attempt fails.
        left: Duration,
        /// The endpoint and the time so far, as a text for the user.
        why: String,
    },
}

/// The reason for which a call gave no reply, after all retries. [`ModelError::report`] adds the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint refused the credentials (401, 403).
    #[error("the endpoint refused the credentials: {0}")]
    Credentials(String),
    /// The account has reached its spend cap: the endpoint reports a billing error or names the cap.
    #[error("the account's spend cap is reached: {0}")]
    SpendCap(String),
    /// The conversation does not fit the model's context window.
    #[error("the conversation no longer fits the model's context window: {0}")]
    ContextFull(String),
    /// The endpoint does not have the model, or no longer.
    #[error("the endpoint does not have the model: {0}")]
    NoModel(String),
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

impl ModelError {
    /// Returns what failed, why, and the remedy, each on a line, as a text for the user.
    pub fn report(&self) -> String {
        // The text before the first colon is the kind of the error.
        let parts = self.to_string().replacen(": ", "\n  why: ", 1);
        format!("{parts}\n  now: {}", self.remedy())
    }

    /// Whether another model may do what this one cannot: it is unavailable or gone, or its account is used up. Refused
    /// credentials are a fault that the person must see, and other requests would be refused by any model.
    pub fn is_of_the_model(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::NoModel(_) | Self::SpendCap(_) => true,
            Self::Credentials(_) | Self::ContextFull(_) | Self::Rejected(_) | Self::Script(_) => {
                false
            }
        }
    }

    /// Returns the error with another reason.
    #[must_use]
    pub fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Credentials(why) => Self::Credentials(change(why)),
            Self::SpendCap(why) => Self::SpendCap(change(why)),
            Self::ContextFull(why) => Self::ContextFull(change(why)),
            Self::NoModel(why) => Self::NoModel(change(why)),
            Self::Rejected(why) => Self::Rejected(change(why)),
            Self::Unavailable(why) => Self::Unavailable(change(why)),
            Self::Script(why) => Self::Script(change(why)),
        }
    }

    /// Returns the next step for the person.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Credentials(_) => {
                "set a key that this endpoint accepts, or the base URL that the key is for; \
                 `team config` shows the source of each"
            }
            Self::SpendCap(_) => {
                "pay or raise the cap at the provider, or name another --model; \
                 `team lead --resume` continues"
            }
            Self::ContextFull(_) => "start a new conversation: `team lead` without --resume",
            Self::NoModel(_) => {
                "name another --model: `team models` lists those of each endpoint; \
                 `team lead --resume` continues"
            }
            Self::Rejected(_) => {
                "check the model's name and the base URL; `team doctor --call` shows the answer"
            }
            Self::Unavailable(_) => {
                "start the endpoint or wait for it, then continue with `team lead --resume`; \
                 `team doctor --call` shows what it answers"
            }
            Self::Script(_) => "correct the script; docs/script.md describes the format",
        }
    }
}
