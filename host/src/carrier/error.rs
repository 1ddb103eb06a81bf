//! The errors of the carrier.

use super::timeouts::REQUEST_TIMEOUT;
use crate::trust::NotTrusted;
use agent_team::wire::carried::HostName;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::{RequestError, RequestErrorKind, jetstream};
use std::error::Error;
use std::time::Duration;

/// The reason for which an operation of the carrier failed. The operation may have had its effect in spite of
/// `Disconnected` and `Timeout`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarrierError {
    /// The name of a team or host is not allowed in a subject.
    #[error("{0:?} is not allowed as the name of a team or host")]
    Name(String),
    /// The address of a server cannot be read.
    #[error("the address of the NATS server cannot be used: {0}")]
    Address(String),
    /// There is no connection, or it was lost during the operation.
    #[error("there is no connection to the NATS server")]
    Disconnected,
    /// The server or the other host did not answer in time.
    #[error("{what}: no answer within {} ms", after.as_millis())]
    Timeout {
        /// The operation.
        what: &'static str,
        /// The time that was waited.
        after: Duration,
    },
    /// The stream, consumer or bucket of the team is missing, and was missing again after it was made.
    #[error("the NATS server does not keep the stream or bucket of this team")]
    StorageMissing,
    /// The stream is full, or the server cannot store. A later attempt may succeed.
    #[error("the NATS server stores no more mail at present: {0}")]
    StreamFull(String),
    /// The message is larger than the server takes.
    #[error("a message of {bytes} bytes is larger than the {max} bytes that the NATS server takes")]
    TooLarge {
        /// The size of its body.
        bytes: usize,
        /// The limit for body and headers.
        max: usize,
    },
    /// The other host is not connected to the server.
    #[error("host {0} is not connected to the NATS server")]
    HostAway(String),
    /// A message for a host is encrypted, and nothing that it has signed was seen yet.
    #[error("the key of host {0} is not known yet")]
    KeyUnknown(HostName),
    /// The answer was not signed by the host that was asked.
    #[error("the answer of host {0} is not trusted: {1}")]
    Untrusted(String, NotTrusted),
    /// A key exists already.
    #[error("{0} exists already")]
    AlreadyExists(String),
    /// The value has another revision than the expected one.
    #[error("{0} was changed meanwhile")]
    RevisionChanged(String),
    /// The server or its client library refused the operation.
    #[error("{what}: {why}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The words of the server or of async-nats.
        why: String,
    },
}

impl CarrierError {
    /// Finds the reason in the chain of errors of async-nats.
    pub(super) fn from_nats(what: &'static str, error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(found) = known(what, error) {
                return found;
            }
            cause = error.source();
        }
        Self::Refused { what, why: error.to_string() }
    }
}

fn known(what: &'static str, error: &(dyn Error + 'static)) -> Option<CarrierError> {
    let is_missing = if let Some(error) = error.downcast_ref::<PublishError>() {
        error.kind() == PublishErrorKind::StreamNotFound
    } else if let Some(error) = error.downcast_ref::<RequestError>() {
        error.kind() == RequestErrorKind::NoResponders
    } else if let Some(error) = error.downcast_ref::<jetstream::Error>() {
        let code = error.error_code();
        if code == ErrorCode::STREAM_STORE_FAILED
            || code == ErrorCode::INSUFFICIENT_RESOURCES
            || code == ErrorCode::STORAGE_RESOURCES_EXCEEDED
        {
            return Some(CarrierError::StreamFull(error.to_string()));
        }
        code == ErrorCode::STREAM_NOT_FOUND || code == ErrorCode::CONSUMER_NOT_FOUND
    } else {
        return None;
    };
    if is_missing {
        return Some(CarrierError::StorageMissing);
    }
    let is_late = error
        .downcast_ref::<PublishError>()
        .is_some_and(|error| error.kind() == PublishErrorKind::TimedOut)
        || error
            .downcast_ref::<RequestError>()
            .is_some_and(|error| error.kind() == RequestErrorKind::TimedOut);
    is_late.then_some(CarrierError::Timeout { what, after: REQUEST_TIMEOUT })
}
