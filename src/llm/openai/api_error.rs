//! The errors of `OpenAI`'s APIs, in the terms of [`ErrorReport`]. Pure.

use crate::llm::attempt_error::{AttemptError, ErrorReport};
use crate::llm::stream_parser::word;
use serde_json::{Value, json};
use std::time::Duration;

/// The HTTP statuses that correspond to the codes of errors after a status of 200. Other codes count as 400 if they
/// name something invalid, otherwise as the status of the error's type.
const CODES: [(&str, u16); 9] = [
    ("rate_limit_exceeded", 429),
    ("insufficient_quota", 429),
    ("server_is_overloaded", 529),
    ("slow_down", 529),
    ("context_length_exceeded", 400),
    ("data_residency_mismatch", 400),
    ("bio_policy", 400),
    ("cyber_policy", 400),
    ("misalignment_policy_violation", 400),
];

/// Translates an error report of these APIs into the terms of the Messages API.
pub(in crate::llm) fn translate(error: &mut AttemptError) {
    let AttemptError::Reported(report) = error else { return };
    if report.is("insufficient_quota") || report.is("context_length_exceeded") {
        report.should_retry = Some(false);
    }
}

/// Adds to the report of a server without the Responses API that chat completions can be chosen.
pub(in crate::llm) fn hint_at_chat(error: &mut AttemptError) {
    let AttemptError::Reported(report) = error else { return };
    if matches!(report.status, 404 | 405) && !report.is("model_not_found") {
        report.message.push_str(
            " (if this server has no Responses API: set api = \"chat_completions\" under [openai])",
        );
    }
}

/// Returns the error of an event, or of a response that failed.
pub(in crate::llm) fn reported(error: &Value) -> AttemptError {
    let (kind, code) = (word(error, "type"), word(error, "code"));
    // An event has the type of events in place of the error's type.
    let kind = if matches!(kind, "" | "error") { code } else { kind };
    let said = word(error, "message");
    let message = if said.is_empty() { error.to_string() } else { said.to_owned() };
    let parts = json!({"type": kind, "code": code, "message": message});
    let report = ErrorReport::from_event(&json!({ "error": parts }));
    let known = CODES.iter().find(|(name, _)| report.is(name)).map(|(_, status)| *status);
    let invalid = code.starts_with("invalid_").then_some(400);
    let status = known.or(invalid).unwrap_or(report.status);
    let retry_after = (status == 429).then(|| asked_wait(said)).flatten();
    AttemptError::Reported(ErrorReport { status, retry_after, ..report })
}

/// Parses the wait in the message of a rate limit, such as `Please try again in 1.898s.`: an error after a status of
/// 200 has no headers.
fn asked_wait(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = rest.split_at(digits);
    let factor = match unit {
        unit if unit.starts_with("ms") => 1e-3,
        unit if unit.starts_with('s') => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

/// Whether the endpoint refuses to send reasoning of this model in a form that can be sent back. Models that do not
/// reason are refused so.
pub(in crate::llm) fn refuses_reasoning(error: &AttemptError) -> bool {
    let AttemptError::Reported(report) = error else { return false };
    report.status == 400 && report.message.contains("Encrypted content is not supported")
}

/// Whether the endpoint cannot read the reasoning that was sent back: it is of another endpoint, or of another account.
pub(in crate::llm) fn cannot_read_reasoning(error: &AttemptError) -> bool {
    let AttemptError::Reported(report) = error else { return false };
    let is_so_in_words = || {
        let said = &report.message;
        said.contains("ncrypted content") && said.contains("could not be verified")
    };
    report.status == 400 && (report.is("invalid_encrypted_content") || is_so_in_words())
}
