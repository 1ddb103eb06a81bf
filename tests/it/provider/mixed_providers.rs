//! Teams on chat completions, and teams whose members use different providers. The fake endpoints fail the test
//! if the real API would refuse a request.

use crate::support::fake::{Api, Fake, Reply, RequestView};
use crate::support::fake_models::{
    ALL, KEY, OTHER_KEY, agent_of, assert_told, call, connect_openai, conversation, headless,
    results, story,
};
use crate::support::harness::Team;
use serde_json::json;
use std::fs;

fn lead(team: &Team, model: &str, prompt: &str) -> crate::support::harness::CommandResult {
    team.team(&["lead", "-p", prompt, "--model", model, "--mode", "bypass", "--timeout", "600"])
}

#[test]
fn the_nine_prompts_over_chat_completions() {
    let (team, fake) = (Team::new(), Fake::start(story));
    connect_openai(&team, &fake);
    let ran = lead(&team, "openai/fake", ALL).expect(0);
    assert_eq!(ran.out.trim(), "schema.sql is written and checked.", "{}", team.describe());
    assert_told(&team);
    assert_eq!(team.member("alice")["model"], "openai/fake");
    let seen = fake.requests();
    assert!(seen.iter().all(|view| view.api == Api::Completions && view.model() == "fake"));
}

#[test]
fn a_key_alone_names_the_provider() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    connect_openai(&team, &fake);
    team.variable("OPENAI_MODEL", "by-variable");
    team.variable("OPENAI_CUSTOM_HEADERS", "X-House: one");
    let args = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];
    assert_eq!(team.team(&args).expect(0).out, "hello\n");
    let seen = fake.requests().remove(0);
    assert_eq!((seen.model(), seen.headers["x-house"].as_str()), ("by-variable", "one"));
}

#[test]
fn without_a_name_the_first_listed_model_is_used_or_an_error() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    connect_openai(&team, &fake);
    let args = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];
    assert_eq!(team.team(&args).expect(0).out, "hello\n");
    assert_eq!(lead(&team, "openai", "hi").expect(0).out, "hello\n");
    let asked: Vec<String> = fake.requests().iter().map(|view| view.model().to_owned()).collect();
    assert_eq!(asked, ["small:1b", "small:1b"]);

    // The lead chooses no model from the list of a remote provider.
    let team = Team::new();
    team.variable("OPENAI_API_KEY", OTHER_KEY);
    let ran = team.team(&args).expect(4);
    assert!(ran.err.contains("OPENAI_MODEL") && ran.err.contains("openai/NAME"), "{}", ran.err);
    // The local server at this address is not running and lists no models.
    team.variable("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let ran = team.team(&args).expect(4);
    assert!(ran.err.contains("was asked for one") && !ran.err.contains("canary"), "{}", ran.err);
}

#[test]
fn refused_credentials_and_spend_caps_end_with_their_codes() {
    for (status, kind, code) in
        [(401, "invalid_api_key", 4), (429, "insufficient_quota", 6), (404, "model_not_found", 3)]
    {
        let (team, fake) =
            (Team::new(), Fake::start(move |_| Reply::error(status, kind, "it says no")));
        connect_openai(&team, &fake);
        let ran = lead(&team, "openai/fake", "hi").expect(code);
        assert!(ran.err.contains(kind), "{}", ran.err);
        assert_eq!(fake.requests().len(), 1, "{kind}");
    }
}

/// The lead and alice send to each other until both have received a message.
fn exchange(view: &RequestView) -> Reply {
    let past = conversation(view);
    match agent_of(view).as_str() {
        "lead" if !past.contains("\"spawn_teammate\"") => call(
            view,
            "spawn_teammate",
            &json!({"name": "alice", "role": "coder", "prompt": "Greet the lead.",
                "model": "openai/small"}),
        ),
        "lead" if past.contains("hello lead") && !past.contains("hello alice") => {
            call(view, "send_message", &json!({"to": "alice", "content": "hello alice"}))
        }
        // No report is waited for: there is none if the greeting arrives within the turn in which alice greets.
        "lead" if past.contains("hello alice") => Reply::text("Both have greeted."),
        "lead" => Reply::text("I wait."),
        _ if past.contains("hello alice") => Reply::text("I was greeted."),
        _ if results(view).is_empty() => {
            call(view, "send_message", &json!({"to": "lead", "content": "hello lead"}))
        }
        _ => Reply::text("I have greeted."),
    }
}

/// The lead runs on one provider, its teammate on another. Each member gets only the key of its own provider.
#[test]
fn a_lead_and_a_teammate_of_different_providers_exchange_mail() {
    let (team, messages, completions) = (Team::new(), Fake::start(exchange), Fake::start(exchange));
    crate::support::fake_models::connect(&team, &messages);
    connect_openai(&team, &completions);
    let ran = headless(&team, "Let alice greet you, and greet her.", &[]).expect(0);
    assert_eq!(ran.out.trim(), "Both have greeted.", "{}", team.describe());
    assert!(team.has_mail("lead", "alice", "hello lead"), "{}", team.describe());
    assert!(team.has_mail("alice", "lead", "hello alice"), "{}", team.describe());
    assert_eq!(team.member("alice")["model"], "openai/small");
    let (leads, alices) = (messages.requests(), completions.requests());
    assert!(leads.len() >= 3 && leads.iter().all(|view| view.api == Api::Messages));
    assert!(alices.len() >= 2 && alices.iter().all(|view| view.api == Api::Completions));
    assert!(alices.iter().all(|view| view.model() == "small" && agent_of(view) == "alice"));
    for view in leads {
        assert!(!format!("{:?}", view.headers).contains(OTHER_KEY));
    }
    for view in alices {
        assert!(!format!("{:?}", view.headers).contains(KEY));
    }
    for folder in ["log", "log/.err", "transcript", "inbox", "run", "."] {
        for entry in fs::read_dir(team.path(folder)).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains("canary"), "a key is in {}", entry.path().display());
        }
    }
}

#[test]
fn a_teammate_on_a_provider_without_credentials_is_refused() {
    let (team, fake) = (Team::new(), Fake::start(exchange));
    crate::support::fake_models::connect(&team, &fake);
    headless(&team, "Let alice greet you.", &[]).expect(0);
    let said = &fake.requests()[1].results()[0];
    let text = said["content"].as_str().unwrap();
    assert!(text.contains("no credentials for openai/small"), "{text}");
    assert!(team.member("alice").is_null());
}
