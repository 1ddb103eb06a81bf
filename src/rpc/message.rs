//! The messages of JSON-RPC 2.0. Readers are tolerant: unknown fields, and a missing version, are no errors.

use serde_json::{Map, Value, json};

/// The codes of errors, as JSON-RPC defines them.
pub(crate) const PARSE_ERROR: i64 = -32_700;
pub(crate) const INVALID_REQUEST: i64 = -32_600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32_601;
pub(crate) const INVALID_PARAMS: i64 = -32_602;
pub(crate) const INTERNAL_ERROR: i64 = -32_603;

/// The maximum length of the text of an error of the other side, in characters.
const MAX_ERROR_CHARS: usize = 4_000;

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// A request or a notification.
    Call(MethodCall),
    /// The answer to a request.
    Response {
        /// The id of the request; null if the other side could not read it.
        id: Value,
        result: Result<Value, RpcError>,
    },
}

/// A request or, without an id, a notification.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MethodCall {
    /// The id as its sender wrote it; the answer repeats it.
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    /// The parameters: an object, or null if there are none.
    pub(crate) params: Value,
}

/// The error with which a request is answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    /// The text of the error; that of a received one has its details.
    pub(crate) message: String,
    /// The details of an error that is sent.
    pub(crate) data: Option<Value>,
}

/// A text that is no message, with the error that answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidMessage {
    /// The id, if the text has one; else null.
    pub(crate) id: Value,
    pub(crate) error: RpcError,
}

impl Message {
    /// Reads the text of one message.
    ///
    /// # Errors
    /// It is no JSON, a batch, or another value that is no message.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Box<InvalidMessage>> {
        let value = serde_json::from_slice(text).map_err(|why| {
            let error = RpcError::new(PARSE_ERROR, format!("this is not JSON: {why}"));
            Box::new(InvalidMessage { id: Value::Null, error })
        })?;
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Array(_) => {
                let why = "batches are not supported: send each message by itself";
                return Err(InvalidMessage::of(Value::Null, why));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(InvalidMessage::of(Value::Null, InvalidMessage::OTHER));
            }
        };
        Self::of(fields)
    }

    fn of(mut fields: Map<String, Value>) -> Result<Self, Box<InvalidMessage>> {
        let mut take = |key: &str| fields.remove(key).filter(|value| !value.is_null());
        let (id, method, params) = (take("id"), take("method"), take("params"));
        let (error, result) = (take("error"), fields.remove("result"));
        let is_id = id.as_ref().is_none_or(|id| id.is_string() || id.is_number());
        let is_response = error.is_some() || result.is_some();
        match method {
            Some(Value::String(method))
                if is_id && params.as_ref().is_none_or(Value::is_object) =>
            {
                Ok(Self::Call(MethodCall { id, method, params: params.unwrap_or_default() }))
            }
            None if is_id && is_response => {
                let result = error.map_or(Ok(result.unwrap_or_default()), |error| {
                    Err(RpcError::received(&error))
                });
                Ok(Self::Response { id: id.unwrap_or_default(), result })
            }
            _ => {
                let id = id.filter(|_| is_id).unwrap_or_default();
                Err(InvalidMessage::of(id, InvalidMessage::OTHER))
            }
        }
    }

    pub(crate) fn into_json(self) -> Value {
        match self {
            Self::Call(MethodCall { id, method, params }) => {
                let mut fields = Map::new();
                fields.insert("jsonrpc".into(), "2.0".into());
                fields.extend(id.map(|id| ("id".into(), id)));
                fields.insert("method".into(), method.into());
                if !params.is_null() {
                    fields.insert("params".into(), params);
                }
                fields.into()
            }
            Self::Response { id, result: Ok(result) } => {
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            }
            Self::Response { id, result: Err(RpcError { code, message, data }) } => {
                let mut error = json!({ "code": code, "message": message });
                if let (Some(data), Some(fields)) = (data, error.as_object_mut()) {
                    fields.insert("data".into(), data);
                }
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        }
    }

    /// Returns the line of the message, with its end.
    pub(crate) fn into_line(self) -> String {
        format!("{}\n", self.into_json())
    }
}

/// Returns the number of a request of this program, by the id of its answer. Some programs repeat the id as text.
pub(crate) fn number_of(id: &Value) -> Option<u64> {
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}

impl InvalidMessage {
    const OTHER: &str = "this is not a message of JSON-RPC 2.0";

    fn of(id: Value, why: &str) -> Box<Self> {
        Box::new(Self { id, error: RpcError::new(INVALID_REQUEST, why) })
    }
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the error for a request whose method is not offered.
    pub(crate) fn not_offered(method: &str) -> Self {
        let method: String = method.chars().take(64).collect();
        Self::new(METHOD_NOT_FOUND, format!("the method {method:?} is not supported"))
    }

    fn received(error: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Object(fields) => {
                let told = ["details", "message"].iter().find_map(|key| fields.get(*key)?.as_str());
                told.map_or_else(|| value.to_string(), ToOwned::to_owned)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
        };
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason given");
        let details = error.get("data").filter(|data| !data.is_null()).map(text);
        let message = match details {
            Some(details) if details != message => format!("{message} ({details})"),
            _ => message.to_owned(),
        };
        Self::new(code, message.chars().take(MAX_ERROR_CHARS).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Message, (Value, i64)> {
        Message::read(text.as_bytes()).map_err(|why| (why.id, why.error.code))
    }

    fn call(id: Option<Value>, params: Value) -> Message {
        Message::Call(MethodCall { id, method: "m".into(), params })
    }

    #[test]
    fn messages_are_told_apart_and_other_texts_are_none() {
        let params = json!({ "a": 1 });
        let request = call(Some(json!("x")), params);
        assert_eq!(read(r#"{"id":"x","method":"m","params":{"a":1}}"#), Ok(request));
        assert_eq!(read(r#"{"id":null,"method":"m"}"#), Ok(call(None, Value::Null)));
        let response = |result| Ok(Message::Response { id: 3.into(), result });
        assert_eq!(read(r#"{"id":3,"result":null}"#), response(Ok(Value::Null)));
        assert_eq!(read(r#"{"id":3,"error":null,"result":1}"#), response(Ok(json!(1))));
        let error = RpcError::new(-32_000, "no (why)");
        let line = r#"{"id":3,"error":{"code":-32000,"message":"no","data":{"details":"why"}}}"#;
        assert_eq!(read(line), response(Err(error)));
        for (none, id, code) in [
            ("", Value::Null, PARSE_ERROR),
            ("warning: x", Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            ("1", Value::Null, INVALID_REQUEST),
            ("{}", Value::Null, INVALID_REQUEST),
            (r#"{"id":7}"#, 7.into(), INVALID_REQUEST),
            (r#"{"id":[],"method":"m"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"id":7,"method":1}"#, 7.into(), INVALID_REQUEST),
            (r#"{"id":7,"method":"m","params":[]}"#, 7.into(), INVALID_REQUEST),
        ] {
            assert_eq!(read(none), Err((id, code)), "{none}");
        }
    }

    #[test]
    fn a_message_is_one_line_that_is_read_as_it_was() {
        let error = RpcError::new(METHOD_NOT_FOUND, "no");
        for message in [
            call(Some(1.into()), json!({ "text": "a\nb" })),
            call(None, Value::Null),
            Message::Response { id: "x".into(), result: Ok(json!({})) },
            Message::Response { id: Value::Null, result: Err(error) },
        ] {
            let line = message.clone().into_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(read(&line), Ok(message));
        }
        let error = RpcError { data: Some(json!([1])), ..RpcError::new(1, "no") };
        let line = Message::Response { id: 1.into(), result: Err(error) }.into_line();
        assert!(line.contains(r#""error":{"code":1,"message":"no","data":[1]}"#), "{line}");
    }
}
