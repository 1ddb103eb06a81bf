//! `team models`: what is configured and reachable, with the origin of what is known.

use crate::support::child_process::write;
use crate::support::fake::{Fake, Reply};
use crate::support::fake_models::{KEY, connect, connect_openai};
use crate::support::harness::Team;
use serde_json::{Value, json};

fn of<'a>(report: &'a Value, model: &str) -> &'a Value {
    let models = report["models"].as_array().unwrap();
    let found = models.iter().find(|row| row["model"] == model);
    found.unwrap_or_else(|| panic!("no {model} in {report:#}"))
}

#[test]
fn models_are_listed_with_what_is_known_and_from_where() {
    let (team, fake) = (Team::new(), Fake::start(|_| Reply::text("never")));
    team.team(&["init"]).expect(0);
    connect_openai(&team, &fake);
    team.variable("ANTHROPIC_API_KEY", KEY);
    let settings = "model = \"anthropic/claude-sonnet-5-5\"\nfallback_models = [\"openai/small:1b\"]\n\
        [models.\"openai/small:1b\"]\ninput = 0.5\noutput = 2\ncontext_tokens = 4096\n";
    write(&team.path("settings.toml"), settings);
    write(&team.path("roles/auditor.md"), "---\nmodel: openai/gpt-5\n---\nRead.\n");
    // Without a network nothing is asked, and the public prices are known all the same.
    let report = team.team(&["models", "--offline", "--json"]).expect(0).json();
    let states: Vec<_> =
        report["providers"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert!(states.iter().all(|state| *state == "not_asked") && states.len() == 2, "{report:#}");
    let sonnet = of(&report, "anthropic/claude-sonnet-5-5");
    assert_eq!(
        (&sonnet["price"]["input"], &sonnet["price"]["output"]),
        (&json!(2.0), &json!(10.0))
    );
    assert_eq!(
        (&sonnet["price_from"], &sonnet["context_from"]),
        (&json!("the table"), &json!("the table"))
    );
    assert_eq!(
        (&sonnet["context_tokens"], &sonnet["sees_images"]),
        (&json!(1_000_000), &json!(true))
    );
    assert!(sonnet["named_by"][0].as_str().unwrap().starts_with("model ("), "{sonnet}");
    // The endpoint is a gateway: its prices are not the public ones.
    let role = of(&report, "openai/gpt-5");
    assert_eq!((&role["price"], &role["context_tokens"]), (&Value::Null, &json!(400_000)));
    assert_eq!(role["named_by"], json!(["role auditor"]));
    let shown = team.team(&["models", "--offline"]).expect(0).out;
    for words in ["claude-sonnet-5-5", "$2.00 in", "not asked", "the table is of 20", "small:1b"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    // The endpoint that answers lists its models, one of which the role names in vain.
    team.variable("TEAM_MODEL", "openai/small:1b");
    team.variable("ANTHROPIC_BASE_URL", &fake.base_url());
    let report = team.team(&["models", "--json"]).expect(0).json();
    let small = of(&report, "openai/small:1b");
    assert_eq!((&small["listed"], &small["context_tokens"]), (&json!(true), &json!(4096)));
    assert_eq!(small["price"]["output"], 2.0);
    assert!(small["price_from"].as_str().unwrap().ends_with("settings.toml"), "{small}");
    assert_eq!(of(&report, "openai/gpt-5")["listed"], false);
    assert_eq!(of(&report, "openai/small:7b")["named_by"], json!([]));
    assert!(fake.requests().is_empty(), "no model was called");
    let shown = team.team(&["models"]).expect(0).out;
    assert!(shown.contains("does not list it") && shown.contains("(--all)"), "{shown}");
    assert!(!shown.contains("small:7b") && !shown.contains("canary"), "{shown}");
    assert!(team.team(&["models", "--all"]).expect(0).out.contains("small:7b"));
}

#[test]
fn what_cannot_be_reached_has_words_and_an_exit_code() {
    let team = Team::new();
    team.variable("TEAM_LOCAL_PORTS", "none");
    let ran = team.team(&["models"]).expect(4);
    assert!(ran.out.contains("no provider is configured: set ANTHROPIC_API_KEY"), "{}", ran.out);
    let fake = Fake::start(|_| Reply::text("never"));
    connect(&team, &fake);
    team.variable("ANTHROPIC_API_KEY", "");
    team.variable("TEAM_MODEL", "anthropic/fake");
    let ran = team.team(&["models"]).expect(4);
    assert!(ran.out.contains("refuses the credentials"), "{}", ran.out);
    team.variable("ANTHROPIC_BASE_URL", "http://127.0.0.1:9");
    let ran = team.team(&["models"]).expect(6);
    assert!(ran.out.contains("cannot be asked") && ran.out.contains("127.0.0.1:9"), "{}", ran.out);
    team.team(&["models", "--offline"]).expect(0);
}

#[test]
fn names_of_a_foreign_endpoint_cannot_reach_the_terminal() {
    let hostile = "{\"data\":[{\"id\":\"evil\\u001b[31mred\\u0007\",\"max_model_len\":2048}]}";
    let reply = Reply::raw(200, "application/json", hostile.as_bytes());
    let (team, fake) = (Team::new(), Fake::always(reply));
    connect_openai(&team, &fake);
    team.variable("TEAM_MODEL", "openai/small");
    let shown = team.team(&["models", "--all"]).expect(0).out;
    assert!(shown.contains("evil") && shown.contains("context 2048 (the endpoint)"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
}
