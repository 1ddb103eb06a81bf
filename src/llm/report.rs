//! Classifies the errors that an endpoint reports by status and body. Pure.
//!
//! The error types are those of the Messages API; `openai` translates those of chat completions first.

use super::provider::ModelError;
use super::retry::AttemptFailure;
use serde_json::Value;
use std::time::Duration;

/// An error report, from the status of a response or from an event of its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The HTTP status, or the one that the error type stands for.
    pub(super) status: u16,
    /// The error type, empty if the body names none.
    pub(super) kind: String,
    /// The error code, a finer word than the type, if the endpoint sends one.
    pub(super) code: String,
    /// The message, or the body as it is.
    pub(super) message: String,
    /// The request id to quote to the operator of the API.
    pub(super) request_id: Option<String>,
    /// The header `x-should-retry`.
    pub(super) should_retry: Option<bool>,
    /// The wait that the headers request.
    pub(super) retry_after: Option<Duration>,
}

/// The error types and their statuses.
const TYPES: [(&str, u16); 11] = [
    ("invalid_request_error", 400),
    ("authentication_error", 401),
    ("billing_error", 402),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("conflict_error", 409),
    ("request_too_large", 413),
    ("rate_limit_error", 429),
    ("api_error", 500),
    ("timeout_error", 504),
    ("overloaded_error", 529),
];

/// The phrases by which a 400 says that the conversation is too long.
const TOO_LONG: [&str; 7] = [
    "prompt is too long",
    "context length",
    "context size",
    "context window",
    "context limit",
    "context_length_exceeded",
    "maximum context",
];

impl Report {
    /// Parses an error body.
    pub(super) fn from_body(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(value) => Self::from_json(status, &value),
            Err(_) => Self::new(status, "", String::from_utf8_lossy(body).trim()),
        }
    }

    /// Parses an error event after a 200, for which no header applies.
    pub(super) fn from_event(event: &Value) -> Self {
        let report = Self::from_json(500, event);
        let known = TYPES.iter().find(|(name, _)| *name == report.kind).map(|(_, status)| *status);
        let told = || event.pointer("/error/code").and_then(Value::as_u64);
        let told = || told().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
        let status = known.or_else(told).unwrap_or(500);
        // A rate limit within a stream cannot carry retry-after, so its absence does not mean a spend cap.
        let should_retry = (status == 429).then_some(true);
        Self { status, should_retry, ..report }
    }

    fn from_json(status: u16, body: &Value) -> Self {
        let word = |at: &str| body.pointer(at).and_then(Value::as_str);
        let said = word("/error/message").or_else(|| word("/message")).or_else(|| word("/error"));
        let said = said.map_or_else(|| body.to_string(), str::to_owned);
        let request_id = word("/request_id").map(str::to_owned);
        let code = word("/error/code").unwrap_or_default().to_owned();
        let report = Self::new(status, word("/error/type").unwrap_or_default(), &said);
        Self { code, request_id, ..report }
    }

    fn new(status: u16, kind: &str, message: &str) -> Self {
        Self {
            status,
            kind: kind.into(),
            code: String::new(),
            message: message.into(),
            request_id: None,
            should_retry: None,
            retry_after: None,
        }
    }

    /// Returns the failure for the retry policy.
    pub(super) fn failure(&self) -> AttemptFailure {
        let Self { status, should_retry, retry_after, .. } = *self;
        AttemptFailure::Status { status, should_retry, retry_after }
    }

    /// Returns the error of a call without further attempts; `shown` is the report in words.
    pub(super) fn error(&self, shown: String) -> ModelError {
        if self.is_spend_cap() {
            return ModelError::SpendCap(shown);
        }
        if self.is_too_long() {
            return ModelError::ContextFull(shown);
        }
        match self.status {
            401 | 403 => ModelError::Credentials(shown),
            408 | 409 | 429 | 500.. => ModelError::Unavailable(shown),
            _ => ModelError::Rejected(shown),
        }
    }

    /// Returns the report in words, not yet sanitized.
    pub(super) fn words(&self) -> String {
        let Self { status, kind, message, .. } = self;
        let space = if kind.is_empty() { "" } else { " " };
        let id = self.request_id.as_ref().map(|id| format!(" (request_id {id})"));
        format!("{status}{space}{kind}: {message}{}", id.unwrap_or_default())
    }

    /// Whether type or code is this word: servers disagree about the field.
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == word || self.code == word
    }

    fn is_spend_cap(&self) -> bool {
        self.kind == "billing_error"
            || self.is("insufficient_quota")
            || self.status == 402
            || self.status == 429 && self.retry_after.is_none() && self.should_retry != Some(true)
            || self.status == 400 && self.message.contains("credit balance")
    }

    fn is_too_long(&self) -> bool {
        let said = self.message.to_lowercase();
        self.status == 413
            || self.kind == "request_too_large"
            || self.is("context_length_exceeded")
            || self.status == 400 && TOO_LONG.iter().any(|words| said.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(kind: &str, message: &str) -> Vec<u8> {
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
            .to_string()
            .into_bytes()
    }

    fn name(error: &ModelError) -> &'static str {
        match error {
            ModelError::Credentials(_) => "credentials",
            ModelError::SpendCap(_) => "spend cap",
            ModelError::ContextFull(_) => "context full",
            ModelError::Rejected(_) => "rejected",
            ModelError::Unavailable(_) => "unavailable",
            ModelError::Script(_) => "script",
        }
    }

    #[test]
    fn statuses_and_types_follow_the_table() {
        let table = [
            (400, "invalid_request_error", "bad field", "rejected"),
            (400, "invalid_request_error", "prompt is too long: 9 > 5", "context full"),
            (
                400,
                "exceed_context_size_error",
                "exceeds the available context size",
                "context full",
            ),
            (400, "invalid_request_error", "Your credit balance is too low", "spend cap"),
            (401, "authentication_error", "no", "credentials"),
            (402, "billing_error", "pay", "spend cap"),
            (403, "billing_error", "pay", "spend cap"),
            (403, "permission_error", "no", "credentials"),
            (404, "not_found_error", "no model", "rejected"),
            (408, "timeout_error", "slow", "unavailable"),
            (409, "conflict_error", "again", "unavailable"),
            (413, "request_too_large", "big", "context full"),
            (422, "", "odd", "rejected"),
            (429, "rate_limit_error", "cap", "spend cap"),
            (500, "api_error", "oops", "unavailable"),
            (529, "overloaded_error", "busy", "unavailable"),
        ];
        for (status, kind, message, expected) in table {
            let report = Report::from_body(status, &body(kind, message));
            assert_eq!(name(&report.error(String::new())), expected, "{status} {kind} {message}");
        }
    }

    #[test]
    fn a_429_that_names_a_time_is_a_rate_limit() {
        let report = Report::from_body(429, &body("rate_limit_error", "slow down"));
        let limited = Report { retry_after: Some(Duration::from_secs(1)), ..report.clone() };
        assert_eq!(name(&limited.error(String::new())), "unavailable");
        let told = Report { should_retry: Some(true), ..report };
        assert_eq!(name(&told.error(String::new())), "unavailable");
    }

    #[test]
    fn an_error_event_counts_as_the_status_of_its_type() {
        for (kind, status) in TYPES {
            let event = json!({"type": "error", "error": {"type": kind, "message": "m"}});
            assert_eq!(Report::from_event(&event).status, status, "{kind}");
        }
        let event = json!({"type": "error", "error": {"type": "brand_new_error", "message": "m"}});
        assert_eq!(Report::from_event(&event).status, 500);
        let event = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}});
        assert_eq!(name(&Report::from_event(&event).error(String::new())), "unavailable");
    }

    #[test]
    fn words_name_status_type_message_and_request() {
        let words = |status, body: &[u8]| Report::from_body(status, body).words();
        assert_eq!(words(400, &body("e", "m")), "400 e: m (request_id req_1)");
        assert_eq!(words(502, b"<html>bad gateway\n"), "502: <html>bad gateway");
        assert_eq!(words(500, b"{\"error\":\"loading\"}"), "500: loading");
        assert_eq!(words(500, b"{\"detail\":1}"), "500: {\"detail\":1}");
    }
}
