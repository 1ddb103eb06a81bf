//! Classifies the reasons for which an attempt gave no reply. Pure.
//!
//! The error types of a report are those of the Messages API; those of chat completions are translated first.

use super::provider::ModelError;
use super::rpc_status::RpcStatus;
use super::sse;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
    #[error("{0}")]
    Broken(String),
    #[error("connection refused")]
    Refused,
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    #[error("silence for {0:?}")]
    Silence(Duration),
    #[error("not finished within {0:?}")]
    TooLong(Duration),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Oversized(#[from] sse::TooLong),
    #[error("the answer breaks the format: {0}")]
    Garbled(String),
    #[error("the answer is empty")]
    Empty,
    #[error("the stream ended before the message did")]
    Cut,
    /// The response is a web page: another server answers at this address.
    #[error("the reply is a web page, not the API: check the base URL")]
    NotTheApi,
    #[error("{0}")]
    Reported(ErrorReport),
}

impl AttemptError {
    pub(super) fn is_retryable(&self) -> bool {
        if let Self::Reported(report) = self {
            return report.is_retryable();
        }
        !matches!(self, Self::Setup(_) | Self::TooLarge(_) | Self::Oversized(_) | Self::NotTheApi)
    }

    /// Returns the error without the id of its request, which differs between attempts that fail in the same way.
    pub(super) fn without_id(&self) -> Self {
        let mut same = self.clone();
        if let Self::Reported(report) = &mut same {
            report.request_id = None;
        }
        same
    }

    /// Returns the wait that the endpoint asked for.
    pub(super) fn asked_wait(&self) -> Option<Duration> {
        if let Self::Reported(report) = self { report.retry_after } else { None }
    }

    /// Returns the error of a call without further attempts; `shown` is the text of this error.
    pub(super) fn model_error(&self, shown: String) -> ModelError {
        if let Self::Reported(report) = self {
            report.model_error(shown)
        } else if *self == Self::NotTheApi {
            ModelError::Rejected(shown)
        } else {
            ModelError::Unavailable(shown)
        }
    }
}

/// An error report, from the status of a response or from an event of its stream. Its text is not yet sanitized.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ErrorReport {
    /// The HTTP status, or the status that corresponds to the error type.
    pub(super) status: u16,
    /// The error type, empty if the body names none.
    pub(super) kind: String,
    /// The error code, more specific than the type; empty if the endpoint sends none.
    pub(super) code: String,
    /// The error message, or the whole body if it has none.
    pub(super) message: String,
    /// The request id to quote to the operator of the API.
    pub(super) request_id: Option<String>,
    /// The header `x-should-retry`, which overrides all other fields.
    pub(super) should_retry: Option<bool>,
    /// The wait that the headers or the body request.
    pub(super) retry_after: Option<Duration>,
}

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

/// Phrases in the message of a 400 whose cause is a conversation longer than the context window.
const TOO_LONG: [&str; 8] = [
    "prompt is too long",
    "context length",
    "context size",
    "context window",
    "context limit",
    "context_length_exceeded",
    "maximum context",
    "exceeds the maximum number of tokens",
];

/// Phrases in the message of a 429 whose cause is a cap of the account.
const SPEND_CAP: [&str; 4] = ["monthly", "spend", "credit balance", "usage limit"];

impl ErrorReport {
    pub(super) fn from_body(status: u16, body: &[u8]) -> Self {
        if let Ok(value) = serde_json::from_slice(body) {
            return Self::from_json(status, &value);
        }
        let message = String::from_utf8_lossy(body).trim().to_owned();
        Self { status, message, ..Self::default() }
    }

    /// Parses an error event of a response with status 200, to which no header applies.
    pub(super) fn from_event(event: &Value) -> Self {
        let report = Self::from_json(500, event);
        let known = TYPES.iter().find(|(name, _)| *name == report.kind).map(|(_, status)| *status);
        let told = event.pointer("/error/code").and_then(Value::as_u64);
        let told = told.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
        let status = known.or(told).unwrap_or(500);
        Self { status, ..report }
    }

    fn from_json(status: u16, body: &Value) -> Self {
        // Google's API sends a list with one error where a list of answers was expected.
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let word = |at: &str| body.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let rpc = RpcStatus::of(body);
        let said = word("/error/message").or_else(|| word("/message")).or_else(|| word("/error"));
        Self {
            status,
            kind: word("/error/type").or(rpc.status).unwrap_or_default(),
            code: word("/error/code").or(rpc.reason).unwrap_or_default(),
            message: said.unwrap_or_else(|| body.to_string()),
            request_id: word("/request_id"),
            retry_after: rpc.retry_after,
            ..Self::default()
        }
    }

    /// Whether the type or the code is this word: servers differ in the field that they use.
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == word || self.code == word
    }

    /// Whether the endpoint has too much to do. This takes longer than other failures.
    pub(super) fn is_overloaded(&self) -> bool {
        self.status == 529 || self.kind == "UNAVAILABLE"
    }

    fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or(match self.status {
            429 => !self.is_spend_cap(),
            status => matches!(status, 408 | 409 | 500..),
        })
    }

    fn model_error(&self, shown: String) -> ModelError {
        if self.is_spend_cap() {
            return ModelError::SpendCap(shown);
        }
        if self.is_too_long() {
            return ModelError::ContextFull(shown);
        }
        match self.status {
            _ if self.is_missing_model() => ModelError::NoModel(shown),
            _ if self.is_bad_key() => ModelError::Credentials(shown),
            408 | 409 | 429 | 500.. => ModelError::Unavailable(shown),
            _ => ModelError::Rejected(shown),
        }
    }

    /// Whether the endpoint refuses the key. Google's API does so with status 400.
    pub(super) fn is_bad_key(&self) -> bool {
        matches!(self.status, 401 | 403) || self.is("API_KEY_INVALID")
    }

    /// Whether the endpoint does not have the model. A 404 that does not speak of a model is of a wrong address.
    fn is_missing_model(&self) -> bool {
        self.is("model_not_found")
            || matches!(self.status, 404 | 410) && self.message.to_lowercase().contains("model")
    }

    fn is_spend_cap(&self) -> bool {
        self.kind == "billing_error"
            || self.is("insufficient_quota")
            || self.status == 402
            || self.status == 429 && self.retry_after.is_none() && self.names_a_cap()
            || self.status == 400 && self.message.contains("credit balance")
    }

    /// Whether the message says that a cap was reached, not only a rate limit, which passes by itself.
    fn names_a_cap(&self) -> bool {
        let said = self.message.to_lowercase();
        self.should_retry != Some(true) && SPEND_CAP.iter().any(|words| said.contains(words))
    }

    fn is_too_long(&self) -> bool {
        let said = self.message.to_lowercase();
        self.status == 413
            || self.kind == "request_too_large"
            || self.is("context_length_exceeded")
            || self.status == 400 && TOO_LONG.iter().any(|words| said.contains(words))
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, kind, message, .. } = self;
        let space = if kind.is_empty() { "" } else { " " };
        write!(out, "{status}{space}{kind}: {message}")?;
        self.request_id.iter().try_for_each(|id| write!(out, " (request_id {id})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, message: &str) -> Value {
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
    }

    fn read(status: u16, kind: &str, message: &str) -> ErrorReport {
        ErrorReport::from_body(status, event(kind, message).to_string().as_bytes())
    }

    /// Returns the text of the model error, which names its kind, and whether the call is retried.
    fn verdict(report: ErrorReport) -> (String, bool) {
        let error = AttemptError::Reported(report);
        (error.model_error(String::new()).to_string(), error.is_retryable())
    }

    /// `provider::messages_api::errors_have_their_kind_and_request_id` covers the common statuses and the headers.
    #[test]
    fn statuses_and_types_follow_the_table() {
        let unavailable = "the endpoint is unavailable";
        let table = [
            (301, "", "moved", "rejected the request", false),
            (429, "rate_limit_error", "slow down", unavailable, true),
            (429, "rate_limit_error", "your monthly spend limit is reached", "spend cap", false),
            (429, "insufficient_quota", "check your plan", "spend cap", false),
            (400, "invalid_request_error", "bad field", "rejected the request", false),
            (400, "exceed_context_size_error", "available context size", "context window", false),
            (400, "invalid_request_error", "Your credit balance is too low", "spend cap", false),
            (403, "billing_error", "pay", "spend cap", false),
            (408, "timeout_error", "slow", unavailable, true),
            (409, "conflict_error", "again", unavailable, true),
            (404, "not_found_error", "model: claude-x", "does not have the model", false),
            (404, "NOT_FOUND", "models/x is not found", "does not have the model", false),
            (400, "model_not_found", "no such thing", "does not have the model", false),
            (404, "not_found_error", "no such page", "rejected the request", false),
            (418, "", "teapot", "rejected the request", false),
            (422, "", "odd", "rejected the request", false),
            (502, "", "bad gateway", unavailable, true),
            (503, "", "busy", unavailable, true),
            (504, "timeout_error", "slow", unavailable, true),
        ];
        for (status, kind, message, expected, is_retried) in table {
            let (error, retried) = verdict(read(status, kind, message));
            let fits = error.contains(expected) && retried == is_retried;
            assert!(fits, "{status} {kind} {message}: {error} {retried}");
        }
        let told =
            ErrorReport { should_retry: Some(true), ..read(429, "rate_limit_error", "slow down") };
        let (error, is_retried) = verdict(told);
        assert!(error.contains("unavailable") && is_retried, "{error}");
    }

    #[test]
    fn an_error_event_counts_as_the_status_of_its_type() {
        for (kind, status) in TYPES.into_iter().chain([("brand_new_error", 500)]) {
            assert_eq!(ErrorReport::from_event(&event(kind, "m")).status, status, "{kind}");
        }
    }

    #[test]
    fn words_name_status_type_message_and_request() {
        assert_eq!(read(400, "e", "m").to_string(), "400 e: m (request_id req_1)");
        for (status, body, words) in [
            (502, "<html>bad gateway\n", "502: <html>bad gateway"),
            (500, "{\"error\":\"loading\"}", "500: loading"),
            (500, "{\"detail\":1}", "500: {\"detail\":1}"),
        ] {
            assert_eq!(ErrorReport::from_body(status, body.as_bytes()).to_string(), words);
        }
    }

    #[test]
    fn a_setup_error_and_an_oversized_response_are_not_retried() {
        let too_long = AttemptError::Oversized(sse::TooLong);
        for error in [AttemptError::Setup(String::new()), AttemptError::TooLarge(1), too_long] {
            assert!(!error.is_retryable(), "{error}");
        }
        assert!(AttemptError::Silence(Duration::ZERO).is_retryable());
    }
}
