//! `team mcp --lead`: a client that speaks MCP leads a team of real processes.

use crate::support::approvals::{careful_team, requests, wait_asked};
use crate::support::harness::Team;
use crate::support::mcp_client::{Client, mail_in, text};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, lead, script, signal, tool_results, wait,
    wait_file, wait_tool,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::Read;

const PROGRAM: &str = "claude-code";

fn leads(team: &Team, args: &[&str]) -> Client {
    Client::join(team, &[&["--lead"], args].concat(), PROGRAM)
}

fn spawn(client: &mut Client, name: &str, prompt: &str) -> String {
    let order = json!({ "name": name, "role": "coder", "prompt": prompt });
    client.call("spawn_teammate", &order)
}

/// Returns the messages in a result.
fn messages(result: &str) -> Vec<Value> {
    let (_, rest) = result.split_once("<inbox>\n").unwrap_or_else(|| panic!("{result}"));
    serde_json::from_str(rest.split("\n</inbox>").next().unwrap()).unwrap()
}

fn names_of_tools(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_client_leads_a_team_from_the_first_spawn_to_the_end_of_its_input() {
    let team = Team::new();
    assert!(!team.path("").exists());
    let mut client = leads(&team, &["--model", "rehearsal"]);
    team.eventually("the lead is idle", || team.roster()["lead"]["status"] == "idle");
    assert_eq!(team.roster()["lead"]["model"], "mcp/claude-code");
    let tools = names_of_tools(&mut client);
    for tool in ["spawn_teammate", "shutdown_teammate", "review_plan", "answer_request"] {
        assert!(tools.contains(&tool.to_owned()), "{tool}: {tools:?}");
    }
    for tool in ["bash", "write_file", "shutdown_response", "submit_plan"] {
        assert!(!tools.contains(&tool.to_owned()), "{tool}: {tools:?}");
    }
    let spawned = spawn(&mut client, "alice", "Tell lead \"the parser is done\".");
    assert!(spawned.starts_with("Spawned alice (coder) on rehearsal"), "{spawned}");
    let result = client.wait_mail("the parser is done");
    assert!(mail_in(&result).contains(&"the parser is done".to_owned()), "{result}");
    assert!(client.call("list_teammates", &json!({})).contains("- alice: "));
    // A name that is idle gets the new prompt.
    team.wait_status("alice", "idle");
    spawn(&mut client, "alice", "Tell lead \"the lexer is done\".");
    client.wait_mail("the lexer is done");
    spawn(&mut client, "bob", "Wait for instructions.");
    let ended = client.call("shutdown_teammate", &json!({ "name": "bob" }));
    assert!(ended.contains("bob ended when asked"), "{ended}");
    let pid = team.pid_of("alice");
    assert_eq!(client.end(), Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!((team.status("alice"), team.status("bob")), ("shutdown".into(), "shutdown".into()));
    assert_eq!(team.roster()["lead"]["status"], "shutdown");
    assert_left_in_order(&team);
}

#[test]
fn without_a_model_only_a_spawn_that_names_one_works() {
    let team = Team::new();
    let mut client = leads(&team, &[]);
    let refused = spawn(&mut client, "alice", "Wait for instructions.");
    assert!(
        refused.contains("no model is configured for teammates") && refused.contains("acp/claude"),
        "{refused}"
    );
    assert_eq!(team.roster()["members"], json!([]));
    let order = json!({ "name": "alice", "role": "coder", "prompt": "Wait for instructions.",
        "model": "rehearsal" });
    let spawned = client.call("spawn_teammate", &order);
    assert!(spawned.starts_with("Spawned alice"), "{spawned}");
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}

/// The client's person sees in the arguments of the call what may run.
#[test]
fn a_decision_is_passed_on_only_with_the_call_that_waits() {
    let team = careful_team();
    let mut client = leads(&team, &["--model", "rehearsal"]);
    spawn(&mut client, "alice", "Run \"touch one\", then run \"touch two\".");
    let asked = messages(&client.wait_mail("permission_request"));
    let asked = asked.iter().find(|it| it["type"] == "permission_request").unwrap();
    let mut answer =
        json!({ "request_id": asked["request_id"], "call": "touch x", "approve": true });
    let refused = client.call("answer_request", &answer);
    assert!(refused.contains("nothing was decided") && refused.contains("touch one"), "{refused}");
    assert_eq!(requests(&team).len(), 1);
    answer["call"] = "touch one".into();
    let decided = client.call("answer_request", &answer);
    assert!(decided.starts_with("The call of alice may run, this once; it was told."), "{decided}");
    // It is given once: the next call asks again, and may be answered from a shell.
    wait_file(&team, "one");
    let id = wait_asked(&team, "alice");
    team.team(&["approve", &id]).expect(0);
    client.wait_mail("touch two");
    team.wait_status("alice", "idle");
    assert!(team.workspace().join("two").exists());
    let late = client.call("answer_request", &answer);
    assert!(late.contains("no call with the request_id"), "{late}");
    // A refusal reaches the teammate with its reason.
    spawn(&mut client, "alice", "Run \"touch three\".");
    let asked = messages(&client.wait_mail("touch three"));
    let asked = asked.iter().find(|it| it["type"] == "permission_request").unwrap();
    let refusal = json!({ "request_id": asked["request_id"], "call": "touch three",
        "approve": false, "reason": "two are enough" });
    // Her mail may come with the answer.
    let refused = client.call("answer_request", &refusal);
    assert!(refused.starts_with("The call of alice was refused; it was told."), "{refused}");
    team.eventually("alice knows why", || {
        let results = tool_results(&team, "alice");
        results.iter().any(|(_, text, is_error)| *is_error && text.contains("two are enough"))
    });
    assert_eq!(client.end(), Some(0));
    assert!(!team.workspace().join("three").exists());
    assert_left_in_order(&team);
}

#[test]
fn a_plan_is_decided_by_the_model_that_leads() {
    let team = Team::new();
    let mut client = leads(&team, &["--model", "rehearsal"]);
    let order = json!({ "name": "alice", "role": "coder", "mode": "plan",
        "prompt": "Create a file called notes.txt containing \"milk\"." });
    client.call("spawn_teammate", &order);
    let asked = messages(&client.wait_mail("plan_approval_request"));
    let asked = asked.iter().find(|it| it["type"] == "plan_approval_request").unwrap();
    let decision = json!({ "request_id": asked["request_id"], "approve": true });
    let decided = client.call("review_plan", &decision);
    assert!(decided.starts_with("alice's plan is approved; it was told."), "{decided}");
    wait_file(&team, "notes.txt");
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn one_lead_is_in_a_folder_and_a_takeover_ends_it() {
    let team = Team::new();
    let mut first = leads(&team, &["--model", "rehearsal"]);
    spawn(&mut first, "alice", "Wait for instructions.");
    let mut second = Client::start(&team, &["--lead"]);
    let answer = second.shake_hands("codex");
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("a lead is already running in this folder"), "{why}");
    assert_eq!(second.end(), Some(5));
    let refused = team.team(&["lead", "--model", "rehearsal", "-p", "hello"]).expect(5);
    assert!(refused.err.contains("a lead is already running"), "{refused:?}");
    let args = ["lead", "--model", "rehearsal", "--takeover", "-p", "Show the team."];
    team.team(&args).expect(0);
    assert_eq!(wait(&team, &mut first.server), Some(143));
    assert_left_in_order(&team);
}

#[test]
fn flags_and_settings_that_do_not_fit_are_told() {
    let team = Team::new();
    let ran = team.team(&["mcp", "--model", "rehearsal"]).expect(2);
    assert!(ran.err.contains("--model and --mode need --lead"), "{ran:?}");
    team.team(&["mcp", "--lead", "--as", "eve"]).expect(2);
    let mut client = Client::start(&team, &["--lead", "--mode", "loose"]);
    let answer = client.shake_hands(PROGRAM);
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("loose"), "{why}");
    assert_eq!(client.end(), Some(2));
    assert!(!team.path("config.json").exists());
}

/// Mail that no result has carried is for the next client that leads.
#[test]
fn mail_goes_on_with_the_next_client_and_the_conversation_too() {
    let team = Team::new();
    let mut client = leads(&team, &["--model", "rehearsal"]);
    spawn(&mut client, "alice", "Wait for instructions.");
    team.wait_status("alice", "idle");
    assert_eq!(client.end(), Some(0));
    team.team(&["send", "lead", "while nobody led"]).expect(0);
    let mut client = Client::start(&team, &["--lead", "--model", "rehearsal"]);
    let told = client.shake_hands(PROGRAM);
    let told = told["result"]["instructions"].as_str().unwrap().to_owned();
    assert!(told.contains("From earlier: alice"), "{told}");
    let result = client.call("list_teammates", &json!({}));
    assert!(
        result.contains("- alice: shutdown") && result.contains("while nobody led"),
        "{result}"
    );
    // A killed lead: its teammates end by themselves, and nothing that was not handed out is lost.
    spawn(&mut client, "alice", "Wait for instructions.");
    team.wait_status("alice", "idle");
    team.team(&["send", "lead", "before the kill"]).expect(0);
    kill_9(&team, "lead");
    client.server.wait().unwrap();
    team.wait_no_process();
    let mut client = leads(&team, &["--model", "rehearsal"]);
    let result = client.call("list_teammates", &json!({}));
    assert!(result.contains("before the kill"), "{result}");
    assert_eq!(client.end(), Some(0));
    let mine: Vec<Value> = team.mail_of("lead");
    for content in ["while nobody led", "before the kill"] {
        let count = mine.iter().filter(|mail| mail["content"] == content).count();
        assert_eq!(count, 1, "{content} is in the transcript once");
    }
    // Our own lead begins a conversation of its own, and this one is kept.
    let ran = headless(&team, "rehearsal", "Show the team.");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_dir(team.path("transcript/archive")).unwrap().count(), 1);
    assert_left_in_order(&team);
}

/// Mail is handed out again if it is not certain that the client has it, and never lost.
#[test]
fn a_lead_that_is_killed_while_it_hands_mail_out_loses_none() {
    let team = Team::new();
    let token = team.workspace().join("token");
    for point in ["served.taken", "served.written"] {
        std::fs::File::create(&token).unwrap();
        team.variable("TEAM_FAILPOINTS", &format!("lead/{point}={}", token.display()));
        let mut client = leads(&team, &["--model", "rehearsal"]);
        team.team(&["send", "lead", point]).expect(0);
        client.request("tools/call", &json!({ "name": "check_inbox", "arguments": {} }));
        let mut rest = String::new();
        client.output.read_to_string(&mut rest).unwrap();
        client.server.wait().unwrap();
        assert!(!token.exists(), "{point} was not reached");
        let mut next = leads(&team, &["--model", "rehearsal"]);
        assert_eq!(mail_in(&next.call("check_inbox", &json!({}))), [point]);
        assert_eq!(next.end(), Some(0));
        let taken = team.mail_of("lead");
        assert_eq!(taken.iter().filter(|mail| mail["content"] == point).count(), 1);
    }
    assert_left_in_order(&team);
}

#[test]
fn a_signal_while_the_team_is_stopped_shortens_the_wait() {
    let team = Team::new();
    let model = script(&team, &[calls("alice", &[bash("trap '' TERM; sleep 300")])]);
    let mut client = leads(&team, &["--model", &model]);
    spawn(&mut client, "alice", "Work.");
    wait_tool(&team, "alice", "bash");
    let pid = i32::try_from(client.server.id()).unwrap();
    drop(client.input.take());
    team.eventually("the team is being stopped", || team.status("alice") == "stopping");
    // The first skips the polite request, the second kills.
    signal(pid, Signal::SIGTERM);
    signal(pid, Signal::SIGTERM);
    assert!(wait(&team, &mut client.server).is_some());
    assert_left_in_order(&team);
}

#[test]
fn a_used_up_budget_ends_the_team_and_calls_say_so() {
    let team = Team::new();
    team.variable("TEAM_BUDGET_TEAM_TOKENS", "1000");
    let mut client = leads(&team, &["--model", "rehearsal"]);
    spawn(&mut client, "alice", "Tell lead \"one\", then tell lead \"two\", then show the team.");
    team.eventually("the lead has left", || team.roster()["lead"]["status"] == "shutdown");
    let answer = client.ask("tools/call", &json!({ "name": "list_teammates", "arguments": {} }));
    assert!(text(&answer).contains("of the team's budget are used"), "{answer}");
    // The process goes on, and the place is free.
    assert!(client.server.try_wait().unwrap().is_none());
    let mut other = lead(&team, "rehearsal");
    other.type_line("/quit");
    other.wait();
    assert_eq!(client.end(), Some(0));
    assert_left_in_order(&team);
}
