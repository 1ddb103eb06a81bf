//! Another model goes on while that of an agent is overloaded or gone: told, counted, paid at its own price, and only for a
//! while.

use crate::support::child_process::write;
use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    KEY, OTHER_KEY, agent_of, call, connect, connect_openai, conversation, results,
};
use crate::support::harness::{CommandResult, Team};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A team whose own model is behind the Messages API, and another one behind chat completions.
fn two_models(
    first: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
    second: impl Fn(&RequestView) -> Reply + Send + Sync + 'static,
) -> (Team, Fake, Fake) {
    let (team, first, second) = (Team::without_walls(), Fake::start(first), Fake::start(second));
    connect(&team, &first);
    connect_openai(&team, &second);
    team.variable("TEAM_FALLBACK_MODELS", "openai/second");
    (team, first, second)
}

fn lead(team: &Team, prompt: &str, further: &[&str]) -> CommandResult {
    let words = ["lead", "-p", prompt, "--model", "anthropic/first", "--mode", "bypass"];
    team.team(&[&words[..], &["--timeout", "600"], further].concat())
}

/// An answer of an endpoint that is overloaded, and says that another attempt is of no use.
fn overloaded() -> Reply {
    Reply::error(529, "overloaded_error", "too many").header("x-should-retry", "false")
}

/// Returns the models with which the conversation of an agent went on, in order.
fn switches(team: &Team, name: &str) -> Vec<String> {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let models = lines.iter().filter(|line| line["kind"] == "model");
    models.map(|line| line["model"].as_str().unwrap().to_owned()).collect()
}

/// Returns the cost of a conversation if a token of the first model costs a dollar and one of the second ten, in millionths.
fn cost(team: &Team) -> f64 {
    let (mut price, mut cost) = (1, 0);
    for line in team.lines("transcript/lead.jsonl") {
        match line["kind"].as_str().unwrap_or_default() {
            "session" => price = 1,
            "model" => price = if line["model"] == "openai/second" { 10 } else { 1 },
            "assistant" => {
                let tokens = line["usage"].as_object().unwrap().values();
                cost += price * tokens.filter_map(Value::as_u64).sum::<u64>();
            }
            _ => {}
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "the number is small")]
    let cost = cost as f64;
    cost / 1e6
}

#[test]
fn an_overloaded_model_is_replaced_for_a_while() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |_: &RequestView| {
        if busy.load(Ordering::Relaxed) {
            Reply::error(529, "overloaded_error", "too many")
        } else {
            Reply::text("the first one is back")
        }
    };
    let second = move |view: &RequestView| {
        is_busy.store(false, Ordering::Relaxed);
        // The rest of the first model is over when this command has ended.
        call(view, "bash", &json!({"command": "sleep 2"}))
    };
    let (team, first, second) = two_models(first, second);
    team.team(&["init"]).expect(0);
    let price = |model: &str, price: u32| {
        format!("[models.\"{model}\"]\ninput = {price}\noutput = {price}\n")
    };
    let prices = price("anthropic/first", 1) + &price("openai/second", 10);
    write(&team.path("settings.toml"), &prices);
    team.variable("TEAM_FALLBACK_PAUSE", "1");
    let ran = lead(&team, "hi", &["--output", "stream-json"]).expect(0);
    // A few attempts, then the other model; the first one is not tried for the usual time.
    let asked = (first.requests().len(), second.requests().len());
    assert_eq!(asked, (4, 1), "{}", team.describe());
    assert_eq!(switches(&team, "lead"), ["openai/second", "anthropic/first"]);
    for words in [
        "anthropic/first fails, openai/second goes on",
        "anthropic/first is tried again",
        "anthropic/first answers again",
        "the first one is back",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let used = team.roster()["lead"]["usage"].clone();
    assert_eq!(used["model_switches"], 1);
    assert!((used["cost"].as_f64().unwrap() - cost(&team)).abs() < 1e-9, "{used} {}", cost(&team));
    // The list of sessions counts the prices of the models that replied, too.
    let sessions = team.team(&["sessions", "--json"]).expect(0).json();
    let listed = sessions["sessions"][0]["cost"].as_f64().unwrap();
    assert!((listed - cost(&team)).abs() < 1e-9, "{sessions}");
    let shown = team.team(&["transcript", "lead"]).expect(0).out;
    assert!(shown.contains("goes on with openai/second"), "{shown}");
}

#[test]
fn a_model_that_is_gone_or_used_up_is_replaced_at_once_but_refused_credentials_are_not() {
    for (status, kind, message) in [
        (404, "not_found_error", "model: first"),
        (402, "billing_error", "pay"),
        (503, "api_error", "down"),
    ] {
        let gone = move |_: &RequestView| {
            Reply::error(status, kind, message).header("x-should-retry", "false")
        };
        let (team, first, second) = two_models(gone, |_| Reply::text("second"));
        assert_eq!(lead(&team, "hi", &[]).expect(0).out, "second\n", "{kind}");
        assert_eq!((first.requests().len(), second.requests().len()), (1, 1), "{kind}");
        // The next turn goes on with the second model.
        assert_eq!(lead(&team, "hi", &["--resume"]).expect(0).out, "second\n");
        assert_eq!(first.requests().len(), 2, "a new process begins with its own model");
    }
    for (status, kind, code) in
        [(401, "authentication_error", 4), (400, "invalid_request_error", 3)]
    {
        let refused = move |_: &RequestView| Reply::error(status, kind, "no");
        let (team, _first, second) = two_models(refused, |_| Reply::text("second"));
        let ran = lead(&team, "hi", &[]).expect(code);
        assert!(ran.err.contains(kind), "{}", ran.err);
        assert_eq!(second.requests().len(), 0, "{kind}");
    }
}

#[test]
fn the_error_names_all_models_if_all_are_down() {
    let down = |_: &RequestView| overloaded();
    let gone = |_: &RequestView| Reply::error(404, "model_not_found", "no model second");
    let (team, first, second) = two_models(down, gone);
    let ran = lead(&team, "hi", &[]).expect(3);
    for words in ["openai/second", "no model second", "anthropic/first", "too many"] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}

#[test]
fn a_conversation_resumes_with_its_own_model_after_another_has_gone_on() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let first = move |view: &RequestView| {
        if busy.load(Ordering::Relaxed) {
            return overloaded();
        }
        assert!(conversation(view).contains("made by the second"));
        Reply::text("first")
    };
    let second = |view: &RequestView| {
        if results(view).is_empty() {
            call(view, "bash", &json!({"command": "echo made by the second"}))
        } else {
            Reply::text("second")
        }
    };
    let (team, first, second) = two_models(first, second);
    assert_eq!(lead(&team, "hi", &[]).expect(0).out, "second\n");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    is_busy.store(false, Ordering::Relaxed);
    assert_eq!(lead(&team, "again", &["--resume"]).expect(0).out, "first\n");
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));
    assert_eq!(switches(&team, "lead"), ["openai/second"]);
}

/// The lead runs on one provider. Its teammate, on the other one, which is overloaded, goes on with the first.
fn with_alice(view: &RequestView) -> Reply {
    match (agent_of(view).as_str(), conversation(view)) {
        ("lead", past) if past.contains("alice is done") => Reply::text("All is done."),
        ("lead", past) if past.contains("spawn_teammate") => Reply::text("I wait."),
        ("lead", _) => call(
            view,
            "spawn_teammate",
            &json!({"name": "alice", "role": "coder", "prompt": "Look.", "model": "openai/hers"}),
        ),
        _ => Reply::text("alice is done"),
    }
}

#[test]
fn a_teammate_goes_on_with_another_model_and_has_only_the_keys_for_its_models() {
    let (team, messages) = (Team::without_walls(), Fake::start(with_alice));
    let completions = Fake::start(|_| overloaded());
    connect(&team, &messages);
    connect_openai(&team, &completions);
    team.variable("GEMINI_API_KEY", "canary-gemini-key-of-nobody");
    team.variable("TEAM_FALLBACK_MODELS", "anthropic/second");
    let ran = lead(&team, "Let alice look.", &[]).expect(0);
    assert_eq!(ran.out.trim(), "All is done.", "{}", team.describe());
    assert_eq!(switches(&team, "alice"), ["anthropic/second"]);
    let alice = team.member("alice");
    assert_eq!(
        (&alice["model"], &alice["usage"]["model_switches"]),
        (&json!("openai/hers"), &json!(1))
    );
    let hers: Vec<_> =
        messages.requests().into_iter().filter(|view| agent_of(view) == "alice").collect();
    assert!(!hers.is_empty());
    assert!(hers.iter().all(|view| view.model() == "second" && view.api == Api::Messages));
    assert_eq!(completions.requests().len(), 1);
    for folder in ["log", "log/.err", "transcript", "inbox", "run", "."] {
        for entry in fs::read_dir(team.path(folder)).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            for key in [KEY, OTHER_KEY, "canary"] {
                assert!(!text.contains(key), "a key is in {}", entry.path().display());
            }
        }
    }
}

#[test]
fn a_list_that_cannot_be_used_is_an_error_or_told() {
    let (team, _first, _second) = two_models(|_| Reply::text("first"), |_| Reply::text("second"));
    let ran = lead(&team, "hi", &["--fallback-models", "openai/second,nonsense"]).expect(2);
    assert!(ran.err.contains("nonsense") && ran.err.contains("--fallback-models"), "{}", ran.err);
    let ran = lead(&team, "hi", &["--fallback-models", "gemini/g, openai/second"]).expect(0);
    assert!(ran.err.contains("gemini/g is left out"), "{}", ran.err);
    assert_eq!(ran.out, "first\n");
}
