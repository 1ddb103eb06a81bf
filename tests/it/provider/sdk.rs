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

/// Runs the script with an SDK against a fake. Returns the violations; `None` if the SDK is not available.
fn check(sdk: &str) -> Option<Vec<String>> {
    let limited = AtomicBool::new(false);
    let fake = Fake::start(move |view| reply(view, &limited));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/sdk-check");
    let mut check = Command::new(script);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        check.env_remove(name);
    }
    for name in ["API_KEY", "AUTH_TOKEN", "CUSTOM_HEADERS", "BASE_URL", "ORG_ID", "PROJECT_ID"] {
        check.env_remove(format!("ANTHROPIC_{name}")).env_remove(format!("OPENAI_{name}"));
    }
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
    let Some(violations) = check("anthropic") else { return };
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains("temperature"), "{violations:?}");
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_official_sdk_of_openai_understands_the_responses_api_of_the_fake() {
    let Some(violations) = check("openai") else { return };
    assert_eq!(violations.len(), 2, "{violations:?}");
    for (violation, word) in violations.iter().zip(["max_tokens", "No tool output found"]) {
        assert!(violation.contains(word), "{violations:?}");
    }
}
