//! The official Python SDKs as clients of the fake endpoint: they accept the replies like those of the real APIs.
//! `scripts/sdk-check` installs and runs them.

use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::skips::skipped;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const SKIPPED: i32 = 77;

fn reply(view: &RequestView, limited: &AtomicBool) -> Reply {
    let model = view.model();
    if let Some(status) = model.strip_prefix("error-") {
        return Reply::error(status.parse().unwrap(), "some_error", "as asked");
    }
    match model {
        "tools" if view.turn() == 1 && view.results()[0]["content"] == "a.txt" => {
            Reply::text("there is a.txt")
        }
        "tools" => {
            let mut said = json!({"type": "text", "text": "I look around."});
            if view.api == Api::Responses {
                said["phase"] = "commentary".into();
            }
            let thought = Reply::message().thinking("hm, ünïcode", "c2ln").block(said);
            thought.tool("call-1", "bash", &json!({"command": "ls 🦀"}))
        }
        "bytes" => Reply::text("byte by byte ✓").crlf().pieces(1),
        "limited" if !limited.swap(true, Ordering::SeqCst) => {
            Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "5")
        }
        "limited" => Reply::text("after the limit"),
        "late-error" if view.api == Api::Responses => {
            Reply::text("soon an error").error_event("server_error")
        }
        "late-error" => Reply::text("soon an error").error_event("overloaded_error"),
        "failed" => Reply::text("soon a failure").failed("server_error"),
        "short" => Reply::text("too lo").stop("max_tokens"),
        "refusal" => Reply::message().block(json!({"type": "refusal", "refusal": "No."})),
        "cut" => Reply::text("soon cut").cut_after(300),
        _ => Reply::text("hello from the fake"),
    }
}

fn gemini_reply(view: &RequestView) -> Reply {
    let model = view.model();
    if let Some(status) = model.strip_prefix("error-") {
        let kinds = [
            ("400", "INVALID_ARGUMENT"),
            ("403", "PERMISSION_DENIED"),
            ("404", "NOT_FOUND"),
            ("429", "RESOURCE_EXHAUSTED"),
            ("500", "INTERNAL"),
            ("503", "UNAVAILABLE"),
        ];
        let kind = kinds.iter().find(|(number, _)| *number == status).unwrap().1;
        let retry =
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.5s"});
        return Reply::error(status.parse().unwrap(), kind, "as asked").detail(retry);
    }
    match model.strip_prefix("gemini-3-").unwrap_or_default() {
        "tools" if view.turn() == 1 && view.results().len() == 2 => Reply::text("there is a.txt"),
        "tools" => Reply::message()
            .block(json!({"type": "thinking", "thinking": "hm, ünïcode"}))
            .block(json!({"type": "text", "text": "I look around."}))
            .tool("call-1", "bash", &json!({"command": "ls 🦀"}))
            .tool("call-2", "idle", &json!({})),
        "chat" if view.turn() > 0 => Reply::text(&format!("turn {}", view.turn())),
        "bytes" => Reply::text("byte by byte ✓").crlf().pieces(1),
        "late-error" => Reply::text("soon an error").error_event("UNAVAILABLE"),
        "cut" => Reply::text("soon cut").cut_after(300),
        "blocked" => Reply::blocked("PROHIBITED_CONTENT"),
        "safety" => Reply::text("half").stop("SAFETY"),
        _ => Reply::text("hello from the fake"),
    }
}

/// Runs the SDK of this name against the fake. Returns the violations; `None` if the SDK is not available.
fn check(sdk: &str, fake: &Fake) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/sdk-check");
    let mut check = Command::new(script);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        check.env_remove(name);
    }
    for name in ["API_KEY", "AUTH_TOKEN", "CUSTOM_HEADERS", "BASE_URL", "ORG_ID", "PROJECT_ID"] {
        for provider in ["ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "GOOGLE_GEMINI"] {
            check.env_remove(format!("{provider}_{name}"));
        }
    }
    check.env_remove("GOOGLE_GENAI_USE_VERTEXAI");
    let output = check.args([sdk, &fake.base_url()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(SKIPPED) {
        // The lines before the last one are those of pip.
        skipped(said.lines().last().unwrap_or_default());
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(fake.take_violations())
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_official_sdk_understands_the_fake() {
    let limited = AtomicBool::new(false);
    let fake = Fake::start(move |view| reply(view, &limited));
    let Some(violations) = check("anthropic", &fake) else { return };
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains("temperature"), "{violations:?}");
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_official_sdk_of_openai_understands_the_responses_api_of_the_fake() {
    let limited = AtomicBool::new(false);
    let fake = Fake::start(move |view| reply(view, &limited));
    let Some(violations) = check("openai", &fake) else { return };
    assert_eq!(violations.len(), 2, "{violations:?}");
    for (violation, word) in violations.iter().zip(["max_tokens", "No tool output found"]) {
        assert!(violation.contains(word), "{violations:?}");
    }
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_official_sdk_of_google_understands_the_fake() {
    let fake = Fake::start(gemini_reply);
    let Some(violations) = check("gemini", &fake) else { return };
    let provoked = ["missing a thought_signature", "missing a thought_signature", "novelty"];
    assert_eq!(violations.len(), provoked.len(), "{violations:?}");
    for (violation, words) in violations.iter().zip(provoked) {
        assert!(violation.contains(words), "{violations:?}");
    }
}
