//! The official Python SDK as a client of the fake endpoint: it accepts the replies like those of the real API.
//! `scripts/sdk-check` installs and runs the SDK.

use crate::support::fake::{Fake, Reply, RequestView};
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
        "tools" => Reply::message()
            .thinking("hm, ünïcode", "c2ln")
            .block(json!({"type": "text", "text": "I look around."}))
            .tool("call-1", "bash", &json!({"command": "ls 🦀"})),
        "bytes" => Reply::text("byte by byte ✓").crlf().pieces(1),
        "limited" if !limited.swap(true, Ordering::SeqCst) => {
            Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "5")
        }
        "limited" => Reply::text("after the limit"),
        "late-error" => Reply::text("soon an error").error_event("overloaded_error"),
        "cut" => Reply::text("soon cut").cut_after(300),
        _ => Reply::text("hello from the fake"),
    }
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_official_sdk_understands_the_fake() {
    let limited = AtomicBool::new(false);
    let fake = Fake::start(move |view| reply(view, &limited));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/sdk-check");
    let mut check = Command::new(script);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        check.env_remove(name);
    }
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"] {
        check.env_remove(name);
    }
    let output = check.arg(fake.base_url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(SKIPPED) {
        skipped(&said);
        return;
    }
    assert!(output.status.success(), "{said}");
    let violations = fake.take_violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains("temperature"), "{violations:?}");
}
