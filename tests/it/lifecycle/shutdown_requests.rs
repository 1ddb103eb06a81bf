//! Requests between processes: a shutdown that is refused or repeated, a plan that is rejected and approved by
//! typing. `permission::interrupted_requests` tests kills during such requests.

use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::fake::Reply;
use crate::support::fake_models;
use crate::support::harness::{ASK_DEADLINE, Team};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, says, scripted_lead, spawn, tool_results, wait, wait_file,
};
use crate::support::terminal::Terminal;
use serde_json::json;
use std::time::Instant;

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
fn a_refused_shutdown_is_delayed_and_its_reason_is_shown() {
    const ASK: &str = "call shutdown_response with request_id \\\"";
    let busy =
        "touch here; until grep -q shutdown_request .team/inbox/alice.jsonl; do sleep 0.05; done";
    let (team, _fake) = fake_models::team_with_fake(move |view| {
        let past = fake_models::conversation(view);
        let last = fake_models::results(view);
        match fake_models::agent_of(view).as_str() {
            "lead" if !past.contains("spawn_teammate") => {
                fake_models::call(view, "spawn_teammate", &spawn("alice").1)
            }
            "lead" if !past.contains("until") => {
                let wait = "until [ -e here ]; do sleep 0.05; done";
                fake_models::call(view, "bash", &json!({ "command": wait }))
            }
            "lead" if !past.contains("shutdown_teammate") => {
                fake_models::call(view, "shutdown_teammate", &json!({"name": "alice"}))
            }
            "lead" => Reply::text(&last),
            _ if last.contains("refusal was sent") => {
                let save = "until [ -e seen ]; do sleep 0.05; done; echo wrote | tee saved.txt";
                fake_models::call(view, "bash", &json!({ "command": save }))
            }
            _ if last.contains("wrote") => Reply::text("saved"),
            _ => match past.split(ASK).nth(1).and_then(|rest| rest.split('\\').next()) {
                Some(id) => {
                    let no =
                        json!({"request_id": id, "approve": false, "reason": "one file first"});
                    fake_models::call(view, "shutdown_response", &no)
                }
                None => fake_models::call(view, "bash", &json!({ "command": busy })),
            },
        }
    });
    team.variable("TEAM_SANDBOX_LEVEL", "off");
    let words = [&fake_models::LEAD[..], &["-p", "go", "--timeout", "600"]].concat();
    let mut lead = team.start(&words);
    team.eventually("the status shows the reason", || {
        team.team(&["ls"]).out.contains("refused: one file first")
    });
    assert_eq!(team.status("alice"), "stopping");
    write(&team.workspace().join("seen"), "");
    assert_eq!(wait(&team, &mut lead), Some(0), "{}", team.describe());
    assert!(exists(&team, "saved.txt"), "{}", team.describe());
    let told = "alice refused at first (one file first), then ended by itself before its deadline.";
    let results = tool_results(&team, "lead");
    assert!(results.iter().any(|(_, text, error)| text == told && !error), "{results:?}");
    let answer = team.mail_of("lead").into_iter().find(|mail| mail["type"] == "shutdown_response");
    assert_eq!(answer.map(|mail| mail["approve"].clone()), Some(json!(false)));
    let log = team.lines("log/lead.jsonl");
    assert!(log.iter().any(|line| line.to_string().contains("refused at first")));
    assert!(team.has_mail("lead", "alice", "saved"), "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_second_shutdown_request_is_an_order() {
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
    assert!(before.elapsed() < ASK_DEADLINE, "{:?}", before.elapsed());
    let results = tool_results(&team, "lead");
    let (_, last, error) = results.last().unwrap();
    assert_eq!((last.as_str(), *error), ("alice ended on SIGTERM.", false));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn a_plan_is_rejected_and_another_one_approved_by_typing() {
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
    lead.expect("1. write_file b.txt");
    team.wait_status("lead", "idle");
    lead.type_line("Approve the plan of alice");
    team.eventually("it is carried out", || exists(&team, "b.txt"));
    team.wait_status("alice", "idle");
    assert!(!exists(&team, "a.txt"));
    assert_eq!(team.member("alice")["mode"], "accept_edits");
    team.wait_status("lead", "idle");
    lead.type_line("Approve the plan of alice");
    lead.expect("review_plan failed: no plan with");
    quit(&team, &mut lead);
}
