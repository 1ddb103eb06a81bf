//! The error format of Google's APIs: a status in a word, and details with a type each. Pure.

use serde_json::Value;
use std::time::Duration;

/// The reason of a quota that waiting does not renew before the next day. Chat completions have this word for it.
const NO_QUOTA_LEFT: &str = "insufficient_quota";

/// The parts of an error that other APIs do not have.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RpcStatus {
    /// The status, such as `RESOURCE_EXHAUSTED`.
    pub(super) status: Option<String>,
    /// The reason, more specific than the status, such as `API_KEY_INVALID`.
    pub(super) reason: Option<String>,
    /// The wait that the error asks for.
    pub(super) retry_after: Option<Duration>,
}

impl RpcStatus {
    /// Reads the error of a body; the parts of another format are absent.
    pub(super) fn of(body: &Value) -> Self {
        let Some(error) = body.get("error") else { return Self::default() };
        let word = |object: &Value, key: &str| {
            object.get(key).and_then(Value::as_str).map(ToOwned::to_owned)
        };
        let details = || error.get("details").and_then(Value::as_array).into_iter().flatten();
        let of_kind = |kind: &'static str| {
            details().filter(move |detail| {
                let name = detail.get("@type").and_then(Value::as_str).unwrap_or_default();
                name.rsplit('.').next() == Some(kind)
            })
        };
        let delay = of_kind("RetryInfo").find_map(|detail| word(detail, "retryDelay"));
        let violations = of_kind("QuotaFailure").filter_map(|detail| detail.get("violations"));
        let mut violations = violations.filter_map(Value::as_array).flatten();
        let is_of_the_day = |violation: &Value| {
            word(violation, "quotaId").is_some_and(|quota| quota.contains("PerDay"))
        };
        let reason = if violations.any(is_of_the_day) {
            Some(NO_QUOTA_LEFT.to_owned())
        } else {
            of_kind("ErrorInfo").find_map(|detail| word(detail, "reason"))
        };
        let retry_after = delay.and_then(|delay| seconds(&delay));
        Self { status: word(error, "status"), reason, retry_after }
    }
}

/// Parses a duration of the format: seconds with an `s`, such as `34.07s`.
fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.strip_suffix('s')?.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(details: &Value) -> RpcStatus {
        RpcStatus::of(&json!({"error": {"code": 429, "message": "m",
            "status": "RESOURCE_EXHAUSTED", "details": details}}))
    }

    #[test]
    fn status_reason_and_delay_are_read() {
        let retry =
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"});
        let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"});
        let quota = |id: &str| {
            json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"quotaMetric": "m"}, {"quotaId": id}]})
        };
        let per_minute = quota("GenerateRequestsPerMinutePerProjectPerModel");
        let per_day = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier");
        for (details, reason, millis) in [
            (json!([retry]), None, Some(34_500)),
            (json!([info]), Some("API_KEY_INVALID"), None),
            (json!([per_minute, retry]), None, Some(34_500)),
            (json!([per_day, retry, info]), Some(NO_QUOTA_LEFT), Some(34_500)),
            (json!([{"retryDelay": "1s"}, 7, null]), None, None),
            (json!("no list"), None, None),
        ] {
            let status = read(&details);
            assert_eq!(status.status.as_deref(), Some("RESOURCE_EXHAUSTED"));
            let wait = status.retry_after.map(|wait| wait.as_millis());
            assert_eq!((status.reason.as_deref(), wait), (reason, millis), "{details}");
        }
        for delay in ["-1s", "1", "xs", "1e400s", "NaNs"] {
            assert_eq!(seconds(delay), None, "{delay}");
        }
        assert_eq!(RpcStatus::of(&json!({"error": "loading"})), RpcStatus::default());
    }
}
