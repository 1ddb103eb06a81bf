//! Model providers: each turns a request into a stream of deltas and one complete reply or a typed error.
//!
//! *Invariant:* this layer does not know teams, inboxes or the effects of tools.

pub mod agent;
pub mod anthropic;
mod attempt_error;
mod client;
mod config;
#[cfg(test)]
mod fixtures;
pub mod gemini;
mod http;
pub mod local;
mod model_list;
pub(crate) mod model_table;
pub mod openai;
mod provider;
pub mod registry;
pub mod rehearsal;
pub mod replay;
mod reply_builder;
mod request_checks;
pub mod retry;
mod rpc_status;
pub mod scripted;
pub mod secret;
pub(crate) mod sse;
mod stream_parser;
mod tool_names;
mod written_calls;
mod written_json;

pub use client::Client;
pub use config::{Api, ClientConfig, Credentials};
pub use http::{CallLimits, ConfigError};
pub use model_list::{ListedModel, ModelListAnswer};
pub use provider::{Delta, ModelError, Provider, Sink, TurnFuture};
pub use scripted::Scripted;
pub use secret::{Redactor, Secret, StreamRedactor};

use registry::{ProviderSpec, Variables};

/// All providers. If no model is configured, the first provider with credentials in the environment is used.
pub static PROVIDERS: [&ProviderSpec; 8] = [
    &anthropic::SPEC,
    &openai::SPEC,
    &gemini::SPEC,
    &local::SPEC,
    &rehearsal::SPEC,
    &scripted::SPEC,
    &agent::SPEC,
    &replay::SPEC,
];

/// The environment variables of the providers that take credentials, as [`PROVIDERS`] names them. A program that needs
/// only these gets no code that talks to models.
pub static CREDENTIAL_VARIABLES: [Variables; 3] =
    [anthropic::VARIABLES, openai::VARIABLES, gemini::VARIABLES];

/// The provider that is used when no model is configured.
pub static FALLBACK: &ProviderSpec = &rehearsal::SPEC;
