//! A model, seen from outside: one request in, a stream of deltas, one whole reply or a typed error.
//!
//! *Invariant:* nothing here knows of teams, inboxes or what a tool does.

pub mod anthropic;
mod calls;
mod client;
mod http;
pub mod local;
mod model_list;
pub mod openai;
mod report;
mod request_checks;
pub mod retry;
pub mod scripted;
pub mod secret;
mod sse;
mod stream_parser;

pub use anthropic::{Anthropic, AnthropicConfig, Credentials};
pub use calls::INVALID_JSON;
pub use http::{ConfigError, Limits, PlainHttp};
pub use model_list::Listing;
pub use openai::{OpenAi, OpenAiConfig};
pub use scripted::Scripted;
pub use secret::{Redactor, Secret, StreamRedactor};
pub mod rehearsal;

use crate::wire::chat::{Reply, Request};
use std::pin::Pin;
use std::time::Duration;

/// Something that answers requests. Dropping the future of [`Provider::turn`] cancels the call and
/// closes its connection at once.
pub trait Provider {
    /// `provider/name`, as it stands in the roster.
    fn label(&self) -> String;

    /// Asks for one reply; `sink` is told what happens meanwhile.
    fn turn<'a>(&'a self, request: &'a Request, sink: &'a mut dyn FnMut(Delta)) -> TurnFuture<'a>;
}

/// The future of one model call; not `Send`, each agent runs on one thread.
pub type TurnFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ModelError>> + 'a>>;

/// What happens while a reply is being made. For the eyes only: the reply itself is what counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// A piece of text.
    Text(String),
    /// The stream broke or an attempt failed: text of this attempt is void, the next one begins after
    /// `wait`.
    Retry {
        /// How long until the next attempt.
        wait: Duration,
        /// Why, for people.
        why: String,
    },
}

/// Why there is no reply. Retries are over when one of these comes out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint refused the credentials (401, 403).
    #[error("the endpoint refused the credentials: {0}")]
    Credentials(String),
    /// The account has no money left for this (billing error, 429 without retry-after).
    #[error("the account's spend cap is reached: {0}")]
    SpendCap(String),
    /// The conversation does not fit the model's context window.
    #[error("the conversation no longer fits the model's context window: {0}")]
    ContextFull(String),
    /// The endpoint rejects this request, and would again.
    #[error("the endpoint rejected the request: {0}")]
    Rejected(String),
    /// The endpoint could not be reached or stayed broken through all retries.
    #[error("the endpoint is unavailable: {0}")]
    Unavailable(String),
    /// A script has no turn left for this request, or is wrong.
    #[error("the script does not fit: {0}")]
    Script(String),
}
