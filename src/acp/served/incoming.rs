//! The messages of a client, and the lines that are written to it.

use crate::acp::message::{self, Received};
use serde_json::{Value, json};

pub(crate) use crate::acp::message::AnswerError;

/// The longest line of a client, in bytes.
pub(crate) const LINE_BYTES: usize = 16 * 1024 * 1024;

/// The error codes of JSON-RPC and of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    Parse = -32_700,
    InvalidRequest = -32_600,
    NoSuchMethod = -32_601,
    InvalidParams = -32_602,
    Internal = -32_603,
    /// There is no such session.
    NotFound = -32_002,
}

/// Creates the error of an answer.
pub(crate) fn error(code: ErrorCode, message: impl Into<String>) -> AnswerError {
    AnswerError { code: code as i64, message: message.into() }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientMessage {
    Request(ClientRequest),
    Notification {
        method: String,
        params: Value,
    },
    /// The answer to the request of this process that has the id.
    Answer {
        id: u64,
        result: Result<Value, AnswerError>,
    },
    /// The line is no message: the error goes to the client, with the id if there was one.
    Invalid {
        id: Value,
        error: AnswerError,
    },
    /// An answer to a request that this process cannot have made.
    ForeignAnswer,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientRequest {
    /// The id as the client wrote it; the answer repeats it.
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl ClientMessage {
    /// Reads a line.
    pub(crate) fn read(line: &[u8]) -> Self {
        match Received::read(line) {
            Some(Received::Request { id, method, params }) => {
                Self::Request(ClientRequest { id, method, params })
            }
            Some(Received::Notification { method, params }) => {
                Self::Notification { method, params }
            }
            Some(Received::Response { id, result }) => Self::Answer { id, result },
            None => Self::refuse(line),
        }
    }

    /// Returns the answer to a line that was too long to be read.
    pub(crate) fn too_long() -> Self {
        let most = LINE_BYTES / 1024 / 1024;
        let why = format!("the line is longer than {most} MiB and was not read; send less at once");
        Self::Invalid { id: Value::Null, error: error(ErrorCode::InvalidRequest, why) }
    }

    fn refuse(line: &[u8]) -> Self {
        let found: Value = match serde_json::from_slice(line) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("the line is not JSON: {why}; send one JSON-RPC message a line");
                return Self::Invalid { id: Value::Null, error: error(ErrorCode::Parse, why) };
            }
        };
        let is_answer = found.get("method").is_none()
            && found.get("id").is_some()
            && (found.get("result").is_some() || found.get("error").is_some());
        if is_answer {
            return Self::ForeignAnswer;
        }
        let why = if found.is_array() {
            "a batch of messages is not taken; send one JSON-RPC message a line"
        } else {
            "this is no JSON-RPC message: it has no text in `method`"
        };
        let id = found.get("id").filter(|id| id.is_string() || id.is_number());
        let id = id.cloned().unwrap_or_default();
        Self::Invalid { id, error: error(ErrorCode::InvalidRequest, why) }
    }
}

/// Returns the line that answers a request.
pub(crate) fn answer_line(id: &Value, result: Result<Value, AnswerError>) -> String {
    message::answer(id, result)
}

/// Returns the line of a request of this process.
pub(crate) fn request_line(id: u64, method: &str, params: &Value) -> String {
    message::call(Some(id), method, params)
}

/// Returns the line of a report about a session.
pub(crate) fn update_line(session: &str, update: &Value) -> String {
    message::call(None, "session/update", &json!({ "sessionId": session, "update": update }))
}

/// Returns the line that takes a request of this process back.
pub(crate) fn cancel_line(id: u64) -> String {
    message::call(None, "$/cancel_request", &json!({ "requestId": id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_message_is_answered_and_a_foreign_answer_is_not() {
        for (line, code, id) in [
            ("warning: x", ErrorCode::Parse, json!(null)),
            ("", ErrorCode::Parse, json!(null)),
            ("{\"id\":1,", ErrorCode::Parse, json!(null)),
            ("[]", ErrorCode::InvalidRequest, json!(null)),
            ("7", ErrorCode::InvalidRequest, json!(null)),
            (r#"{"id":4,"method":[]}"#, ErrorCode::InvalidRequest, json!(4)),
            (r#"{"id":"a","method":7}"#, ErrorCode::InvalidRequest, json!("a")),
            (r#"{"id":{},"method":7}"#, ErrorCode::InvalidRequest, json!(null)),
        ] {
            let ClientMessage::Invalid { id: told, error } = ClientMessage::read(line.as_bytes())
            else {
                panic!("{line} was taken");
            };
            assert_eq!((error.code, told), (code as i64, id), "{line}");
        }
        for line in [r#"{"id":"x","result":{}}"#, r#"{"id":-3,"error":{"code":1,"message":"m"}}"#] {
            assert_eq!(
                ClientMessage::read(line.as_bytes()),
                ClientMessage::ForeignAnswer,
                "{line}"
            );
        }
        let answer = ClientMessage::Answer { id: 3, result: Ok(json!({})) };
        assert_eq!(ClientMessage::read(br#"{"id":3,"result":{}}"#), answer);
    }
}
