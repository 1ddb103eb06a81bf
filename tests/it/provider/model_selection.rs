//! The selection of model and credentials, and the mode that follows from it.

use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{KEY, call, connect, conversation};
use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, lead, says, script, spawn, wait_file,
};
use serde_json::json;

/// A headless run with these variables and the fake endpoint. `base` is appended to its address.
fn run(variables: &[(&str, &str)], base: &str, args: &[&str]) -> (CommandResult, Fake) {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    team.variable("ANTHROPIC_BASE_URL", &format!("{}{base}", fake.base_url()));
    for (name, value) in variables {
        team.variable(name, value);
    }
    let ran = team.team(&[&["lead", "-p", "hi", "--timeout", "600"], args].concat());
    (ran, fake)
}

const BYPASS: [&str; 2] = ["--mode", "bypass"];

#[test]
fn a_real_model_runs_in_every_mode_and_an_unknown_mode_starts_nothing() {
    let key = [("ANTHROPIC_API_KEY", KEY)];
    for mode in ["plan", "default", "accept_edits", "bypass"] {
        let (ran, fake) = run(&key, "", &["--model", "anthropic/fake", "--mode", mode]);
        ran.expect(0);
        assert_eq!(fake.requests().len(), 1, "{mode}");
    }
    let (ran, fake) = run(&key, "", &["--model", "anthropic/fake", "--mode", "reckless"]);
    let ran = ran.expect(2);
    assert!(ran.err.contains("reckless") && ran.err.contains("accept_edits"), "{}", ran.err);
    assert_eq!(fake.requests().len(), 0);

    let team = Team::new();
    team.variable("ANTHROPIC_API_KEY", KEY);
    let alice = ["teammate", "alice", "--model", "anthropic/fake", "--mode", "free", "--once"];
    assert!(team.team(&alice).expect(2).err.contains("free"));
    assert!(!team.path("inbox/alice.jsonl").exists(), "something was made of it");
}

#[test]
fn the_first_of_flag_variable_settings_and_key_decides_the_model() {
    let key = ("ANTHROPIC_API_KEY", KEY);
    let (named, over) = (("ANTHROPIC_MODEL", "by-model"), ("TEAM_MODEL", "anthropic/by-team"));
    let flag = ["--mode", "bypass", "--model", "anthropic/by-flag"];
    let table = [
        (vec![key, named, over], &flag[..], "by-flag"),
        (vec![key, named, over], &BYPASS, "by-team"),
        (vec![key, named], &BYPASS, "by-model"),
        (vec![key], &BYPASS, "claude-"),
    ];
    for (variables, args, model) in table {
        let (ran, fake) = run(&variables, "", args);
        ran.expect(0);
        let asked = fake.requests()[0].model().to_owned();
        assert!(asked.starts_with(model), "{asked} instead of {model}");
    }
}

#[test]
fn settings_name_the_model_before_the_key_does_and_after_the_environment() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    crate::support::fake_models::connect(&team, &fake);
    team.team(&["init"]).expect(0);
    let settings = team.path("settings.toml");
    let text = "model = \"anthropic/by-settings\"\n";
    std::io::Write::write_all(&mut std::fs::File::create(settings).unwrap(), text.as_bytes())
        .unwrap();
    let args = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];
    team.variable("ANTHROPIC_MODEL", "by-model");
    team.team(&args).expect(0);
    team.variable("TEAM_MODEL", "anthropic/by-team");
    team.team(&args).expect(0);
    let models: Vec<String> = fake.requests().iter().map(|view| view.model().to_owned()).collect();
    assert_eq!(models, ["by-settings", "by-team"]);
}

#[test]
fn a_token_alone_is_enough_and_a_base_with_v1_is_tolerated() {
    let (ran, fake) = run(&[("ANTHROPIC_AUTH_TOKEN", KEY)], "/v1", &BYPASS);
    assert_eq!(ran.expect(0).out, "hello\n");
    let view = fake.requests().remove(0);
    assert_eq!(view.headers["authorization"], format!("Bearer {KEY}"));
    assert!(!view.headers.contains_key("x-api-key"));
}

#[test]
fn further_headers_and_the_version_are_sent() {
    let variables = [
        ("ANTHROPIC_API_KEY", KEY),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-One: 1\nX-Two: two"),
        ("ANTHROPIC_VERSION", "2023-06-01"),
    ];
    let (ran, fake) = run(&variables, "/", &BYPASS);
    ran.expect(0);
    let headers = fake.requests().remove(0).headers;
    let sent = ["x-one", "x-two", "anthropic-version"].map(|name| headers[name].clone());
    assert_eq!(sent, ["1", "two", "2023-06-01"]);
}

/// The settings of a folder name another endpoint and headers. They are ignored until the folder is trusted,
/// and the headers are never shown.
#[test]
fn a_folder_sets_the_endpoint_only_once_it_is_trusted() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("hello")));
    team.variable("ANTHROPIC_API_KEY", KEY);
    team.team(&["init"]).expect(0);
    let text = format!(
        "[anthropic]\nbase_url = \"{}\"\nversion = \"2023-06-01\"\n\
         headers = {{ X-House = \"canary of the house\", anthropic-beta = \"fast\" }}\n",
        fake.base_url()
    );
    write(&team.path("settings.toml"), text);
    let shown = |args: &[&str]| {
        let ran = team.team(args).expect(0);
        assert!(!format!("{ran:?}").contains("canary"), "{ran:#?}");
        ran
    };
    let before = shown(&["config"]);
    assert!(before.err.contains("not trusted: anthropic.base_url"), "{}", before.err);
    assert!(!before.out.contains("x-house") && before.out.contains("2023-06-01"), "{}", before.out);
    assert!(shown(&["trust"]).out.contains("anthropic.headers"));
    let after = shown(&["config"]);
    assert!(after.out.contains(&fake.base_url()) && after.out.contains("fast"), "{}", after.out);
    shown(&["trust", "--json"]);
    let args = ["lead", "-p", "hi", "--model", "anthropic/m", "--timeout", "600"];
    assert_eq!(shown(&args).out, "hello\n");
    let headers = fake.requests().remove(0).headers;
    let sent = ["x-house", "anthropic-beta", "anthropic-version"].map(|name| headers[name].clone());
    assert_eq!(sent, ["canary of the house", "fast", "2023-06-01"]);
}

#[test]
fn missing_and_invalid_credentials_have_different_errors() {
    let (ran, _) = run(&[], "", &[]);
    assert!(ran.expect(4).err.contains("no model is configured"));
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "canary\nx-evil: 1"),
        ("ANTHROPIC_CUSTOM_HEADERS", "canary without a colon"),
        ("ANTHROPIC_BASE_URL", "http://canary@203.0.113.1"),
        ("ANTHROPIC_BASE_URL", "canary"),
        ("ANTHROPIC_BASE_URL", "http://203.0.113.1"),
    ] {
        let (ran, fake) = run(&[("ANTHROPIC_API_KEY", KEY), (name, value)], "", &BYPASS);
        let ran = ran.expect(4);
        assert!(!ran.err.contains("canary"), "{}", ran.err);
        assert!(ran.err.contains("\n  now: "), "{}", ran.err);
        if name == "ANTHROPIC_BASE_URL" {
            assert!(ran.err.contains("comes from environment (ANTHROPIC_BASE_URL)"), "{}", ran.err);
        }
        assert_eq!(fake.requests().len(), 0);
    }
}

/// The reply of the second model: it spawns bob once.
fn second_model(view: &RequestView) -> Reply {
    if conversation(view).contains("bob is there") || !view.results().is_empty() {
        return Reply::text("the other model is here");
    }
    let bob = json!({"name": "bob", "role": "worker", "prompt": "bob is there"});
    call(view, "spawn_teammate", &bob)
}

#[test]
fn a_lead_goes_on_with_another_model_and_its_teammates_stay() {
    let (team, fake) = (Team::new(), Fake::start(second_model));
    connect(&team, &fake);
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "alice is at work"),
        calls("alice", &[bash("touch here; sleep 1000")]),
    ];
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    lead.expect("alice is at work");
    wait_file(&team, "here");
    let pid = team.pid_of("alice");

    // A model that cannot be used changes nothing.
    lead.type_line("/model openai/x");
    lead.expect("there are no credentials for openai/x");
    lead.type_line("/model nonsense/x");
    lead.expect("is not a model that this version can use");
    assert!(team.roster()["lead"]["model"].as_str().unwrap().starts_with("script:"));

    lead.type_line("/model anthropic/second");
    lead.expect("model anthropic/second from the next model call on; teammates keep theirs");
    assert_eq!(team.roster()["lead"]["model"], "anthropic/second");
    lead.type_line("go on");
    lead.expect("the other model is here");
    let first = fake.requests().into_iter().next().unwrap();
    assert_eq!(first.model(), "second");
    let told = conversation(&first);
    assert!(told.contains("begin") && told.contains("alice is at work"), "{told}");
    assert_eq!((team.pid_of("alice"), team.status("alice")), (pid, "working".into()));
    assert_eq!(team.member("bob")["model"], "anthropic/second");
    team.team(&["stop", "--all", "--now"]).expect(0);
    lead.wait();
    assert_left_in_order(&team);
}
