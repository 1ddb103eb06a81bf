//! The messages of a client, and the lines that are written to it.

use crate::rpc::lines::MAX_MESSAGE_BYTES;
use crate::rpc::message::{Message, MethodCall, number_of};
use serde_json::{Value, json};

pub(crate) use crate::rpc::lines::{Line, LineReader};
pub(crate) use crate::rpc::message::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError,
};

/// The code of the error for a session that does not exist, as the protocol defines it.
pub(crate) const NOT_FOUND: i64 = -32_002;

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
        result: Result<Value, RpcError>,
    },
    /// The line is no message: the error goes to the client, with the id if there was one.
    Invalid {
        id: Value,
        error: RpcError,
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
        match Message::read(line) {
            Ok(Message::Call(MethodCall { id: Some(id), method, params })) => {
                Self::Request(ClientRequest { id, method, params })
            }
            Ok(Message::Call(MethodCall { id: None, method, params })) => {
                Self::Notification { method, params }
            }
            Ok(Message::Response { id, result }) => {
                number_of(&id).map_or(Self::ForeignAnswer, |id| Self::Answer { id, result })
            }
            Err(invalid) => Self::Invalid { id: invalid.id, error: invalid.error },
        }
    }

    /// Returns the answer to a line that was too long to be read.
    pub(crate) fn too_long() -> Self {
        let most = MAX_MESSAGE_BYTES >> 20;
        let why = format!("the line is longer than {most} MiB and was not read; send less at once");
        Self::Invalid { id: Value::Null, error: RpcError::new(INVALID_REQUEST, why) }
    }
}

/// Returns the line that answers a request.
pub(crate) fn answer_line(id: &Value, result: Result<Value, RpcError>) -> String {
    Message::Response { id: id.clone(), result }.into_line()
}

/// Returns the line of a request of this process.
pub(crate) fn request_line(id: u64, method: &str, params: &Value) -> String {
    call_line(Some(id), method, params.clone())
}

/// Returns the line of a report about a session.
pub(crate) fn update_line(session: &str, update: &Value) -> String {
    call_line(None, "session/update", json!({ "sessionId": session, "update": update }))
}

/// Returns the line that takes a request of this process back.
pub(crate) fn cancel_line(id: u64) -> String {
    call_line(None, "$/cancel_request", json!({ "requestId": id }))
}

fn call_line(id: Option<u64>, method: &str, params: Value) -> String {
    let (id, method) = (id.map(Value::from), method.to_owned());
    Message::Call(MethodCall { id, method, params }).into_line()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::PARSE_ERROR;

    #[test]
    fn a_line_that_is_no_message_is_answered_and_a_foreign_answer_is_not() {
        for (line, code, id) in [
            ("warning: x", PARSE_ERROR, json!(null)),
            ("", PARSE_ERROR, json!(null)),
            ("{\"id\":1,", PARSE_ERROR, json!(null)),
            ("[]", INVALID_REQUEST, json!(null)),
            ("7", INVALID_REQUEST, json!(null)),
            (r#"{"id":4,"method":[]}"#, INVALID_REQUEST, json!(4)),
            (r#"{"id":"a","method":7}"#, INVALID_REQUEST, json!("a")),
            (r#"{"id":{},"method":7}"#, INVALID_REQUEST, json!(null)),
        ] {
            let ClientMessage::Invalid { id: told, error } = ClientMessage::read(line.as_bytes())
            else {
                panic!("{line} was taken");
            };
            assert_eq!((error.code, told), (code, id), "{line}");
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
