//! Tool calls: the [`Tool`] trait, the call of a model, and how a call fails.

use crate::protocol::permission::PermissionSubject;
use crate::wire::{AgentName, NameError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::pin::Pin;

/// One tool call of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The model's id of the call. The ids of messages that the call sends derive from it.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// The arguments as the model gave them.
    pub(crate) input: Value,
}

/// Why a tool call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    /// Goes to the model; says what to do next.
    #[error("{0}")]
    Reply(String),
    /// The agent cannot go on: its team folder is gone, or its disk is broken.
    #[error("{0}")]
    Fatal(String),
}

impl ToolError {
    /// An answer to the model with the text of an error.
    pub(crate) fn reply(why: impl std::fmt::Display) -> Self {
        Self::Reply(why.to_string())
    }
}

/// The future of one call; dropping it cancels the call and everything it started.
pub(crate) type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + 'a>>;

/// The behaviour of a tool. Everything else about it is in its
/// [`ToolSpec`](crate::wire::tool::ToolSpec).
pub(crate) trait Tool {
    /// The part of a call that permission rules match.
    ///
    /// # Errors
    /// The call cannot run at all, so there is nothing to ask about.
    fn subject(&self, _call: &Call) -> Result<PermissionSubject, ToolError> {
        Ok(PermissionSubject::Nothing)
    }

    /// Runs one call.
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a>;
}

/// Reads the arguments of a call into the tool's own struct, which denies unknown fields.
///
/// # Errors
/// They do not fit; the message names the field.
pub(super) fn arguments<T: DeserializeOwned>(call: &Call) -> Result<T, ToolError> {
    serde_json::from_value(call.input.clone()).map_err(|why| {
        ToolError::Reply(format!("the arguments of {} do not fit: {why}; correct them", call.name))
    })
}

/// The arguments of a tool that has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}

/// Reads the name of a teammate.
///
/// # Errors
/// It is not a valid name.
pub(super) fn member_name(given: &str) -> Result<AgentName, ToolError> {
    AgentName::member(given).map_err(|why| invalid_name(&why))
}

/// The error for a name that is not valid, with advice.
pub(super) fn invalid_name(why: &NameError) -> ToolError {
    ToolError::Reply(format!("{why}; {}", why.hint()))
}
