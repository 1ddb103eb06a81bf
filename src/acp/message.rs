//! JSON-RPC messages.

use serde_json::{Map, Value, json};

/// The error code for a request whose method is not offered.
pub(super) const NO_SUCH_METHOD: i64 = -32_601;

/// A message from an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Received {
    Request {
        /// The id as the agent wrote it; the answer repeats it.
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    Response {
        id: u64,
        result: Result<Value, AnswerError>,
    },
}

/// The error with which a request was answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct AnswerError {
    pub(crate) code: i64,
    /// The text of the error, with its details.
    pub(crate) message: String,
}

impl Received {
    /// Reads a line; `None` if it is no message.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let mut object: Map<String, Value> = serde_json::from_slice(line).ok()?;
        let mut take = |key: &str| object.remove(key);
        let (id, method, params) = (take("id"), take("method"), take("params"));
        let params = params.unwrap_or_default();
        match (id, method) {
            (id, Some(Value::String(method))) => {
                match id.filter(|id| id.is_string() || id.is_number()) {
                    Some(id) => Some(Self::Request { id, method, params }),
                    None => Some(Self::Notification { method, params }),
                }
            }
            (Some(id), None) => {
                let id = id.as_u64()?;
                let result = match (take("error"), take("result")) {
                    (Some(error), _) if !error.is_null() => Err(AnswerError::of(&error)),
                    (_, result) => Ok(result.unwrap_or_default()),
                };
                Some(Self::Response { id, result })
            }
            (_, Some(_)) | (None, None) => None,
        }
    }
}

impl AnswerError {
    fn of(error: &Value) -> Self {
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
        // Not more than a person reads.
        Self { code, message: message.chars().take(1_000).collect() }
    }
}

/// Returns the line of a request or, without an id, of a notification.
pub(super) fn call(id: Option<u64>, method: &str, params: &Value) -> String {
    let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if let (Some(id), Some(fields)) = (id, message.as_object_mut()) {
        fields.insert("id".into(), id.into());
    }
    format!("{message}\n")
}

/// Returns the line that answers a request.
pub(super) fn answer(id: &Value, result: Result<Value, AnswerError>) -> String {
    let message = match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(AnswerError { code, message }) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    };
    format!("{message}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_and_other_lines_are_none() {
        let read = |line: &str| Received::read(line.as_bytes());
        let (method, params) = ("m".to_owned(), json!({ "a": 1 }));
        let request = Received::Request { id: json!("x"), method, params };
        assert_eq!(read(r#"{"id":"x","method":"m","params":{"a":1}}"#), Some(request));
        let notification = Received::Notification { method: "m".into(), params: Value::Null };
        assert_eq!(read(r#"{"id":null,"method":"m"}"#), Some(notification));
        let response = |result| Some(Received::Response { id: 3, result });
        assert_eq!(read(r#"{"id":3,"result":null}"#), response(Ok(Value::Null)));
        assert_eq!(read(r#"{"id":3,"error":null,"result":1}"#), response(Ok(json!(1))));
        let message = "no (why)".to_owned();
        let error = AnswerError { code: -32_000, message };
        let line = r#"{"id":3,"error":{"code":-32000,"message":"no","data":{"details":"why"}}}"#;
        assert_eq!(read(line), response(Err(error)));
        for none in ["", "warning: x", "[]", "1", "{}", r#"{"id":"s","result":1}"#, r#"{"id":-1}"#]
        {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn a_message_is_one_line() {
        let params = json!({ "text": "a\nb" });
        let line = call(Some(1), "m", &params);
        assert_eq!(line.lines().count(), 1);
        let fields: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&fields["id"], &fields["params"]), (&json!(1), &params));
        assert!(!call(None, "m", &params).contains("\"id\""));
        let error = AnswerError { code: NO_SUCH_METHOD, message: "no".into() };
        assert!(answer(&json!("x"), Err(error)).contains(r#""error":{"code":-32601"#));
    }
}
