//! The failures of a connection.

use crate::rpc::peer::CallError;
use std::time::Duration;

/// The failure of a connection or a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The server has closed the connection; the text is the end of a sentence.
    #[error("the connection ended{0}")]
    Ended(String),
    /// The server has not answered in time.
    #[error("it did not answer within {} s{}", .0.as_secs(), .1)]
    TimedOut(Duration, String),
    /// The server has answered with an error of the protocol.
    #[error("{0}")]
    Refused(String),
    /// The server has answered something that this version does not understand.
    #[error("its answer is not understood: {0}")]
    NotUnderstood(String),
}

impl From<CallError> for ConnectionError {
    fn from(why: CallError) -> Self {
        match why {
            CallError::Answered(why) => Self::Refused(why.message),
            CallError::Closed(why) => Self::Ended(why),
            CallError::Late { within, .. } => Self::TimedOut(within, String::new()),
        }
    }
}
