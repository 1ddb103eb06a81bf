//! Model servers on this machine: discovery, names, the question to the person, and requests without a key.

use crate::support::fake::{Fake, LOCAL_MODELS, Reply, RequestView, Unopened};
use crate::support::fake_models::{KEY, agent_of, call, results};
use crate::support::harness::Team;
use crate::support::terminal::Terminal;
use serde_json::json;

const LEAD: [&str; 7] = ["lead", "-p", "hi", "--mode", "bypass", "--timeout", "600"];

fn on_ports(team: &Team, ports: &[u16]) {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    team.variable("TEAM_LOCAL_PORTS", &ports.join(","));
}

/// A team beside a local server, with an unreachable proxy and secret keys in its environment.
fn beside(fake: &Fake) -> Team {
    let team = Team::new();
    on_ports(&team, &[fake.port()]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy"] {
        team.variable(name, "http://127.0.0.1:9");
    }
    team.variable("OPENAI_API_KEY", KEY);
    team
}

#[test]
fn the_first_chat_model_is_the_default() {
    let fake = Fake::local(|_| Reply::text("hello"));
    let team = beside(&fake);
    for (named, model) in [("local", "small:1b"), ("local/small:7b", "small:7b")] {
        let ran = team.team(&[&LEAD[..], &["--model", named]].concat()).expect(0);
        assert_eq!(ran.out, "hello\n");
        assert_eq!(fake.requests().pop().unwrap().model(), model);
        assert_eq!(team.roster()["lead"]["model"], format!("local/{model}"));
    }
    team.variable("TEAM_MODEL", "local");
    team.team(&LEAD).expect(0);
    assert_eq!(fake.requests().len(), 3);
}

#[test]
fn a_missing_server_is_reported_and_headless_runs_do_not_probe() {
    let fake = Fake::local(|_| Reply::text("hello"));
    let team = beside(&fake);
    let ran = team.team(&[&LEAD[..], &["--model", "local/large"]].concat()).expect(4);
    assert!(ran.err.contains("small:1b, small:7b"), "{}", ran.err);
    // A listener that accepts no connection occupies the port, so the probe ends by its time limit.
    let nobody = Unopened::new();
    let port = nobody.base_url().rsplit(':').next().unwrap().parse().unwrap();
    let team = Team::new();
    on_ports(&team, &[port]);
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(4);
    assert!(ran.err.contains(&port.to_string()) && ran.err.contains("300 ms"), "{}", ran.err);
    on_ports(&team, &[fake.port()]);
    let ran = team.team(&LEAD).expect(4);
    assert!(ran.err.contains("no model is configured"), "{}", ran.err);
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn a_person_is_asked_before_a_local_server_is_used() {
    let fake = Fake::local(|_| Reply::text("hello from small"));
    let team = Team::new();
    on_ports(&team, &[fake.port()]);
    for (answer, banner) in [("y", "local/small:1b"), ("n", "REHEARSAL"), ("", "REHEARSAL")] {
        let mut lead = Terminal::start(team.command("team", &["lead", "--mode", "bypass"]));
        lead.expect(&format!("http://127.0.0.1:{}", fake.port()));
        lead.expect("Use it in this run? [y/N]");
        lead.type_line(answer);
        lead.expect(banner);
        lead.expect("team>");
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
        team.wait_no_process();
    }
    // If a model is named, the lead does not ask.
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", "rehearsal"]));
    lead.expect("team>");
    assert!(!lead.screen().contains("local model server"), "{}", lead.screen());
    lead.type_line("/quit");
    lead.wait();
    team.wait_no_process();
    assert_eq!(fake.requests().len(), 0);
}

fn play(view: &RequestView) -> Reply {
    match (agent_of(view).as_str(), results(view)) {
        ("lead", said) if said.contains("Spawned") => Reply::text("I wait."),
        ("lead", _) if view.turn() == 0 => {
            let order = json!({"name": "alice", "role": "coder", "prompt": "Write a.txt."});
            call(view, "spawn_teammate", &order)
        }
        ("lead", _) => Reply::text("It is written."),
        (_, said) if said.is_empty() => {
            call(view, "write_file", &json!({"path": "a.txt", "content": "a\n"}))
        }
        _ => Reply::text("Done."),
    }
}

/// A small model has a small context. The compact prompt and its tools fit in 600 tokens (at four bytes each), and
/// a team can work with them.
#[test]
fn a_local_team_works_with_a_compact_prompt() {
    let fake = Fake::local(play);
    let team = beside(&fake);
    let ran = team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    assert_eq!(ran.out.trim(), "It is written.", "{}", team.describe());
    assert_eq!(std::fs::read_to_string(team.workspace().join("a.txt")).unwrap(), "a\n");
    assert_eq!(team.member("alice")["model"], format!("local/{}", LOCAL_MODELS[1]));
    for view in fake.requests() {
        let tools = view.body["tools"].as_array().unwrap();
        assert!((1..=5).contains(&tools.len()), "{tools:?}");
        for schema in tools.iter().map(|tool| &tool["input_schema"]) {
            let offered = schema["properties"].as_object().unwrap();
            let needed = schema["required"].as_array().unwrap();
            assert!(
                needed.iter().all(|name| offered.contains_key(name.as_str().unwrap())),
                "{schema}"
            );
            assert_eq!(
                offered.len(),
                needed.len(),
                "a small model fills in what it sees: {schema}"
            );
        }
        let told = view.system().len() + view.body["tools"].to_string().len();
        assert!(told <= 4 * 600, "{} is told {told} bytes", agent_of(&view));
    }
    team.variable("TEAM_PROMPT_PROFILE", "full");
    team.team(&[&LEAD[..], &["--model", "local"]].concat()).expect(0);
    let last = fake.requests().pop().unwrap();
    assert!(last.body["tools"].as_array().unwrap().len() > 5);
}
