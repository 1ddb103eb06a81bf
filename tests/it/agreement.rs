//! Agreements between processes that are asked, refused, broken off and taken up again: a shutdown that is
//! refused, plans and permissions over the rehearsal model and over HTTP, the death of either side in the
//! middle, and answers that do not count.

use crate::asking::{append, careful_team, requests, wait_asked};
use crate::cast;
use crate::crew::{
    assert_left_by_force, assert_left_in_order, bash, calls, kill_9, says, scripted_lead, spawn,
    tool_results, wait_file,
};
use crate::fake::Reply;
use crate::harness::Team;
use crate::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const CTRL_C: &str = "\u{3}";

fn rehearsal(team: &Team, further: &[&str]) -> Terminal {
    let lead = Terminal::start(
        team.command("team", &[&["lead", "--model", "rehearsal"], further].concat()),
    );
    lead.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    lead
}

fn quit(team: &Team, lead: &mut Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

fn exists(team: &Team, file: &str) -> bool {
    team.workspace().join(file).exists()
}

#[test]
fn a_refused_shutdown_is_put_off_a_little_and_everybody_sees_why() {
    const ASK: &str = "call shutdown_response with request_id \\\"";
    let busy =
        "touch here; until grep -q shutdown_request .team/inbox/alice.jsonl; do sleep 0.05; done";
    let (team, _fake) = cast::stage(move |view| {
        let past = cast::conversation(view);
        let last = cast::results(view);
        match cast::who(view).as_str() {
            "lead" if !past.contains("spawn_teammate") => {
                cast::call(view, "spawn_teammate", &spawn("alice").1)
            }
            "lead" if !past.contains("until") => {
                let wait = "until [ -e here ]; do sleep 0.05; done";
                cast::call(view, "bash", &json!({ "command": wait }))
            }
            "lead" if !past.contains("shutdown_teammate") => {
                cast::call(view, "shutdown_teammate", &json!({"name": "alice"}))
            }
            "lead" => Reply::text(&last),
            _ if last.contains("refusal was sent") => {
                cast::call(view, "write_file", &json!({"path": "saved.txt", "content": "x"}))
            }
            _ if last.contains("wrote") => Reply::text("saved"),
            _ => match past.split(ASK).nth(1).and_then(|rest| rest.split('\\').next()) {
                Some(id) => {
                    let no =
                        json!({"request_id": id, "approve": false, "reason": "one file first"});
                    cast::call(view, "shutdown_response", &no)
                }
                None => cast::call(view, "bash", &json!({ "command": busy })),
            },
        }
    });
    cast::headless(&team, "go", &[]).expect(0);
    assert!(exists(&team, "saved.txt"), "{}", team.picture());
    let told = "alice refused at first (one file first), then ended by itself before its deadline.";
    let results = tool_results(&team, "lead");
    assert!(results.iter().any(|(_, text, error)| text == told && !error), "{results:?}");
    let answer = team.mail_of("lead").into_iter().find(|mail| mail["type"] == "shutdown_response");
    assert_eq!(answer.map(|mail| mail["approve"].clone()), Some(json!(false)));
    let log = team.lines("log/lead.jsonl");
    assert!(log.iter().any(|line| line.to_string().contains("refused at first")));
    assert!(team.has_mail("lead", "alice", "saved"), "{}", team.picture());
    assert_left_in_order(&team);
}

#[test]
fn a_second_request_to_end_is_no_request_any_more() {
    let team = Team::new();
    let end = ("shutdown_teammate", json!({"name": "alice"}));
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice")]),
            says("lead", "spawned"),
            calls("lead", std::slice::from_ref(&end)),
            calls("lead", &[end]),
            says("lead", "over"),
            calls("alice", &[bash("touch here; sleep 1000")]),
        ],
    );
    wait_file(&team, "here");
    team.wait_status("lead", "idle");
    let before = Instant::now();
    lead.type_line("end her");
    team.wait_status("alice", "stopping");
    lead.press(CTRL_C);
    lead.expect("interrupted");
    lead.type_line("now");
    lead.expect("over");
    assert!(before.elapsed() < Duration::from_secs(18), "{:?}", before.elapsed());
    let results = tool_results(&team, "lead");
    let (_, last, error) = results.last().unwrap();
    assert_eq!((last.as_str(), *error), ("alice ended on SIGTERM.", false));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_by_force(&team, &["alice"]);
}

#[test]
fn a_plan_is_rejected_and_another_one_approved_by_what_is_typed() {
    let team = Team::new();
    let mut lead = rehearsal(&team, &[]);
    lead.type_line("Spawn alice (coder) in plan mode. Ask her to create a.txt containing \"x\".");
    let first = wait_asked(&team, "alice");
    lead.expect("1. write_file a.txt");
    team.wait_status("lead", "idle");
    lead.type_line("Reject alice's plan: call it b.txt");
    team.eventually("she was told why", || {
        tool_results(&team, "alice").iter().any(|(_, text, _)| text.contains("call it b.txt"))
    });
    team.wait_status("alice", "idle");
    assert!(!exists(&team, "a.txt"));
    team.wait_status("lead", "idle");
    lead.type_line("Ask alice to create b.txt containing \"x\".");
    assert_ne!(wait_asked(&team, "alice"), first);
    team.wait_status("lead", "idle");
    lead.type_line("Approve the plan of alice");
    team.eventually("it is carried out", || exists(&team, "b.txt"));
    team.wait_status("alice", "idle");
    assert!(!exists(&team, "a.txt"));
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    quit(&team, &mut lead);
}

#[test]
fn a_plan_survives_the_death_of_its_owner_and_only_one_answer_counts() {
    let team = Team::new();
    let mut lead = rehearsal(&team, &[]);
    lead.type_line("Spawn alice (coder) in plan mode. Ask her to create a.txt containing \"x\".");
    let id = wait_asked(&team, "alice");
    let former = team.member("alice")["incarnation"].clone();
    kill_9(&team, "alice");
    team.eventually("she lives again", || team.member("alice")["incarnation"] != former);
    assert_eq!(wait_asked(&team, "alice"), id, "the same plan is the same question");
    let life = team.member("alice")["incarnation"].clone();
    let good = json!({"type": "plan_approval_response", "from": "lead", "to": "alice", "content": "",
        "request_id": id, "incarnation": life, "approve": true, "mode": "bypass"});
    let with = |field: &str, value: Value| {
        let mut line = good.clone();
        line[field] = value;
        line
    };
    let bad = [
        with("from", json!("bob")),
        with("from", json!("user")),
        with("from", json!("alice")),
        with("incarnation", former),
        with("request_id", json!("alice:another")),
        with("type", json!("permission_response")),
    ];
    for line in &bad {
        append(&team, "alice", line);
    }
    let ignored = || {
        let log = team.lines("log/alice.jsonl");
        let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
        log.iter().filter(|line| text(line).contains("not acted on")).count()
    };
    team.eventually("each forgery is in the log", || ignored() == bad.len());
    assert_eq!(team.status("alice"), "waiting", "{}", team.picture());
    assert!(!exists(&team, "a.txt"));
    team.team(&["approve", &id]).expect(0);
    team.eventually("it is carried out", || exists(&team, "a.txt"));
    team.wait_status("alice", "idle");
    // Late, twice, and the other way round.
    append(&team, "alice", &good);
    append(&team, "alice", &with("approve", json!(false)));
    team.eventually("the late answers are in the log", || ignored() == bad.len() + 2);
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    let plans = team.lines("transcript/alice.jsonl");
    assert_eq!(plans.iter().filter(|line| line["kind"] == "decision").count(), 1);
    quit(&team, &mut lead);
}

#[test]
fn a_plan_survives_the_death_of_the_lead() {
    let team = Team::new();
    let mut first = rehearsal(&team, &[]);
    first.type_line("Spawn alice (coder) in plan mode. Ask her to create a.txt containing \"x\".");
    let id = wait_asked(&team, "alice");
    kill_9(&team, "lead");
    first.wait();
    team.wait_no_process();
    let mut next = rehearsal(&team, &["--resume"]);
    assert_eq!(wait_asked(&team, "alice"), id);
    next.expect("1. write_file a.txt");
    team.wait_status("lead", "idle");
    assert!(!exists(&team, "a.txt"));
    next.type_line("Approve the plan of alice");
    team.eventually("it is carried out", || exists(&team, "a.txt"));
    team.wait_status("alice", "idle");
    quit(&team, &mut next);
}

#[test]
fn a_resumed_lead_shows_the_question_that_was_open() {
    let team = careful_team();
    let mut first = rehearsal(&team, &[]);
    first.type_line("Spawn alice (coder). Ask her to run `echo ran >> ran.txt`.");
    let id = wait_asked(&team, "alice");
    kill_9(&team, "lead");
    first.wait();
    team.wait_no_process();
    let mut next = rehearsal(&team, &["--resume"]);
    assert_eq!(wait_asked(&team, "alice"), id);
    next.expect("alice asks to run:");
    next.type_line("y");
    team.wait_status("alice", "idle");
    assert_eq!(fs::read_to_string(team.workspace().join("ran.txt")).unwrap(), "ran\n");
    quit(&team, &mut next);
}

#[test]
fn over_http_too_a_killed_member_asks_again_and_its_call_runs_once() {
    let (team, _fake) = cast::stage(|view| match cast::who(view).as_str() {
        "lead" if !cast::conversation(view).contains("spawn_teammate") => {
            cast::call(view, "spawn_teammate", &spawn("alice").1)
        }
        "lead" => Reply::text("Noted."),
        _ if view.results().is_empty() => {
            cast::call(view, "bash", &json!({"command": "echo ran >> ran.txt"}))
        }
        _ => Reply::text("done"),
    });
    let arguments = ["lead", "--model", "anthropic/fake", "--mode", "default"];
    let mut lead = Terminal::start(team.command("team", &arguments));
    lead.expect("/quit ends the team");
    lead.type_line("go");
    let id = wait_asked(&team, "alice");
    let former = team.member("alice")["incarnation"].clone();
    kill_9(&team, "alice");
    team.eventually("she lives again", || team.member("alice")["incarnation"] != former);
    assert_eq!(wait_asked(&team, "alice"), id);
    team.team(&["approve", &id]).expect(0);
    team.wait_status("alice", "idle");
    assert_eq!(fs::read_to_string(team.workspace().join("ran.txt")).unwrap(), "ran\n");
    assert!(requests(&team).is_empty());
    quit(&team, &mut lead);
}
