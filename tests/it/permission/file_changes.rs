//! A question about a file shows its change: line numbers, context, and the file as it is on disk.

use crate::support::approvals::{careful_team, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, says, scripted_lead};
use serde_json::{Value, json};
use std::fs;

fn edit(old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({ "path": "a.txt", "old_text": old, "new_text": new }))
}

fn read() -> (&'static str, Value) {
    ("read_file", json!({ "path": "a.txt" }))
}

#[test]
fn a_question_shows_the_change_to_the_file_as_it_is() {
    let team = careful_team();
    let lines: Vec<String> = (1..=30).map(|line| format!("line {line}\n")).collect();
    let file = team.workspace().join("a.txt");
    write(&file, lines.concat());
    let whole = (
        "write_file",
        json!({ "path": "a.txt", "content": lines.concat().replace("line 7", "seven") }),
    );
    let new = ("write_file", json!({ "path": "new.txt", "content": "hello\n" }));
    let replies = [
        calls("lead", &[read(), edit("line 20", "line twenty"), edit("gone", "x"), whole, new]),
        says("lead", "all done"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect("20 + line twenty");
    for row in ["a.txt  +1 −1", "17 17   line 17", "20    - line 20", "23 23   line 23"] {
        lead.expect(row);
    }
    assert!(!lead.printed().contains("line 24"), "{}", lead.printed());
    let id = wait_asked_of_lead(&team);
    for args in [&["requests"][..], &["requests", &id]] {
        let listed = team.team(args).expect(0).out;
        assert!(listed.contains("    20    - line 20\n       20 + line twenty\n"), "{listed}");
    }
    lead.type_line("y");
    lead.expect("the edit would fail: the text to replace occurs 0 times");
    lead.expect("- gone");
    lead.type_line("n");
    // The edit before is in the file by now: writing the old text back is a change, too.
    lead.expect("a.txt  +2 −2");
    lead.expect("7    - line 7");
    lead.expect("20    - line twenty");
    lead.type_line("y");
    lead.expect("new.txt  new file, 1 line");
    lead.expect("1 + hello");
    lead.type_line("y");
    lead.expect("all done");
    assert!(fs::read_to_string(&file).unwrap().contains("\nseven\n"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

/// Returns the short id of the lead's own request.
fn wait_asked_of_lead(team: &Team) -> String {
    let mut id = None;
    team.eventually("the lead asks", || {
        let listed = team.team(&["requests", "--json"]).expect(0).json();
        id = listed["requests"][0]["short_id"].as_str().map(ToOwned::to_owned);
        id.is_some()
    });
    id.unwrap()
}

#[test]
fn a_plan_is_shown_as_markdown_and_a_change_of_a_teammate_with_its_lines() {
    let team = careful_team();
    write(&team.workspace().join("a.txt"), "one\ntwo\nthree\n");
    let spawn = (
        "spawn_teammate",
        json!({ "name": "bob", "role": "worker", "prompt": "begin", "mode": "plan" }),
    );
    let plan = "# Plan\n\n1. **Read** it\n2. Edit `a.txt`\n";
    let replies = [
        calls("lead", &[spawn]),
        says("lead", "begun"),
        calls(
            "lead",
            &[("spawn_teammate", json!({"name": "carol", "role": "worker", "prompt": "begin"}))],
        ),
        says("lead", "heard"),
        calls("bob", &[read(), ("submit_plan", json!({ "plan": plan }))]),
        calls("bob", &[edit("two", "2")]),
        says("bob", "over"),
        calls("carol", &[read(), edit("three", "3")]),
        says("carol", "over"),
    ];
    fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), "[permissions]\nplan_approval = \"person\"\n");
    let mut lead = scripted_lead(&team, &replies);
    wait_asked(&team, "bob");
    // The mail before it has the text as it was sent.
    lead.expect("    1. Read it");
    let listed = team.team(&["requests", "bob"]).expect(0).out;
    assert!(listed.contains("    # Plan\n\n    1. Read it\n    2. Edit `a.txt`\n"), "{listed}");
    lead.type_line("y");
    let text = || fs::read_to_string(team.workspace().join("a.txt")).unwrap();
    team.eventually("bob may edit without another question", || text() == "one\n2\nthree\n");
    lead.expect("3   - three");
    lead.expect("3 + 3");
    lead.type_line("y");
    team.eventually("carol has edited", || text() == "one\n2\n3\n");
    team.wait_status("carol", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}
