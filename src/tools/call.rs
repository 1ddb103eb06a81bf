//! Tool calls of a model, and their errors.

use crate::bus::BusError;
use crate::leases::LeaseError;
use crate::store::StoreError;
use crate::tasks::TaskError;
use crate::timers::TimerError;
use crate::wire::NameError;
use crate::wire::file_view::FileView;
use crate::wire::image::ShownImage;
use crate::wire::text_change::TextChange;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::pin::Pin;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The model's id of the call. The ids of messages that the call sends derive from it.
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments as the model gave them.
    pub(crate) input: Value,
}

/// The result of a tool call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolOutput {
    /// The text for the model.
    pub(crate) text: String,
    /// The files that the call read or wrote, as the agent has seen them since.
    pub(crate) files: Vec<FileView>,
    /// The images that the call shows to the model.
    pub(crate) images: Vec<ShownImage>,
    /// Whether a command has sent mail, so that its call does not count as work.
    pub(crate) has_sent_mail: bool,
    /// The changes of text files by the call, for people.
    pub(crate) changes: Vec<TextChange>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        let (files, images, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self { text, files, images, has_sent_mail: false, changes }
    }
}

/// The reason for which a tool call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    /// A reply to the model, which says what to do next.
    #[error("{0}")]
    Reply(String),
    /// The agent cannot continue: its team folder is gone, or its disk is broken.
    #[error("{0}")]
    Fatal(String),
}

impl ToolError {
    /// Creates a reply to the model with the text of an error.
    pub(crate) fn reply(why: impl std::fmt::Display) -> Self {
        Self::Reply(why.to_string())
    }
}

impl From<NameError> for ToolError {
    fn from(why: NameError) -> Self {
        Self::Reply(format!("{why}; {}", why.hint()))
    }
}

impl From<BusError> for ToolError {
    fn from(why: BusError) -> Self {
        if why.store_error().is_some_and(StoreError::is_without_team) {
            return Self::Fatal(why.to_string());
        }
        // The hints of other errors name shell commands.
        if let BusError::Name(why) = why { why.into() } else { Self::reply(why) }
    }
}

impl From<TaskError> for ToolError {
    fn from(why: TaskError) -> Self {
        if why.store_error().is_some_and(StoreError::is_without_team) {
            return Self::Fatal(why.to_string());
        }
        Self::Reply(format!("{why}; {}", why.hint()))
    }
}

impl From<TimerError> for ToolError {
    fn from(why: TimerError) -> Self {
        if why.store_error().is_some_and(StoreError::is_without_team) {
            return Self::Fatal(why.to_string());
        }
        Self::Reply(format!("{why}; {}", why.hint()))
    }
}

impl From<LeaseError> for ToolError {
    fn from(why: LeaseError) -> Self {
        if why.store_error().is_some_and(StoreError::is_without_team) {
            return Self::Fatal(why.to_string());
        }
        Self::Reply(format!("{why}; {}", why.hint()))
    }
}

/// The future of one call, which resolves to the answer to the model. Dropping it cancels everything that the call
/// started.
pub(crate) type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + 'a>>;

/// Deserializes the arguments of a call into the tool's struct. If they do not fit, the error names the field.
pub(super) fn arguments<T: DeserializeOwned>(call: &Call) -> Result<T, ToolError> {
    serde_json::from_value(call.input.clone()).map_err(|why| {
        ToolError::Reply(format!("the arguments of {} are invalid: {why}; correct them", call.name))
    })
}
