//! Requests from another shell: what each would run or write, and the short ids and names that answer them.

use crate::support::approvals::{append_to, careful_team, requests, wait_asked};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, says, scripted_lead, spawn, turns,
};
use serde_json::json;

/// A command of 31 lines with a hidden character in its middle.
fn long_command() -> String {
    let mut lines: Vec<String> = (0..30).map(|line| format!(": line {line}.")).collect();
    lines.insert(15, "touch 'a\u{202e}b'".into());
    lines.join("\n")
}

#[test]
fn requests_show_their_content_and_are_answered_by_name_or_short_id() {
    let team = careful_team();
    let write = ("write_file", json!({"path": "a.txt", "content": "one\ntwo\n"}));
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice"), spawn("alice-1")]),
            says("lead", "spawned"),
            calls("alice", &[bash(&long_command()), write]),
            says("alice", "over"),
            calls("alice-1", &[bash("touch second")]),
            says("alice-1", "over"),
        ],
    );
    let id = wait_asked(&team, "alice");
    wait_asked(&team, "alice-1");
    let all = team.team(&["requests"]).expect(0).out;
    for part in ["alice-1  alice asks", ": line 0.", "19 lines left out", ": line 29.", "alice-1-1"]
    {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(all.contains("`team requests alice-1`") && !all.contains(": line 10."), "{all}");
    for given in ["alice", &id] {
        let whole = team.team(&["requests", given]).expect(0).out;
        assert!(whole.contains(": line 10.") && whole.contains("'a<U+202E>b'"), "{whole}");
        assert!(whole.contains(&id) && !whole.contains("touch second"), "{whole}");
    }
    let one = team.team(&["requests", "alice", "--json"]).expect(0).json();
    assert_eq!(one["requests"][0]["short_id"], "alice-1");
    assert_eq!(one["requests"][0]["content"].as_array().unwrap().len(), 31);
    assert_eq!(requests(&team).len(), 2);

    // The name of one member is the short id of another one's request.
    for verb in ["requests", "approve", "deny"] {
        let ran = team.team(&[verb, "alice-1"]);
        let both = if verb == "requests" { &ran.out } else { &ran.err };
        assert_eq!(ran.code, Some(i32::from(verb != "requests")), "{ran:?}");
        assert!(both.contains("touch second") && both.contains(": line 0."), "{ran:?}");
    }
    for unknown in ["zoe", "alice-2", "alice:"] {
        let why = team.team(&["approve", unknown]).expect(1).err;
        assert!(why.contains("no request of that id is open"), "{why}");
    }
    assert_eq!(requests(&team).len(), 2);
    let done = team.team(&["approve", "alice-1-1"]).expect(0).out;
    assert_eq!(done, "alice-1-1 (bash: touch second) approved\n");
    let done = team.team(&["deny", "alice", "--reason", "too long"]).expect(0).out;
    assert!(done.starts_with("alice-1 (bash: : line 0.") && done.ends_with("rejected\n"), "{done}");

    // After a crash she asks again, under the same id.
    let again = wait_asked(&team, "alice");
    let life = team.member("alice")["incarnation"].clone();
    kill_9(&team, "alice");
    team.eventually("alice is restarted", || team.member("alice")["incarnation"] != life);
    assert_eq!(wait_asked(&team, "alice"), again);
    let shown = team.team(&["requests", "alice-2"]).expect(0).out;
    let change = "    a.txt  new file, 2 lines\n      1 + one\n      2 + two\n";
    assert!(shown.contains(change), "{shown}");
    let why = team.team(&["approve", "alice:alice-2"]).expect(1).err;
    assert!(why.contains("no request of that id is open"), "{why}");
    team.team(&["approve", "alice-2"]).expect(0);
    team.eventually("alice is done", || turns(&team, "alice") == 1);
    assert!(team.workspace().join("a.txt").exists() && team.workspace().join("second").exists());
    assert_eq!(team.team(&["requests"]).expect(0).out, "nothing waits for a decision\n");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn an_answer_counts_before_its_question_has_arrived_and_before_the_status_says_that_it_waits() {
    let team = careful_team();
    let script = [calls("lead", &[spawn("alice")]), says("lead", "spawned")];
    let alice = [calls("alice", &[bash("touch first")]), says("alice", "over")];
    let mut lead = scripted_lead(&team, &[script, alice].concat());
    wait_asked(&team, "alice");
    team.team(&["approve", "alice"]).expect(0);
    team.wait_status("alice", "idle");

    // The moment after a question is recorded, and before it is sent.
    let asked = team.lines("transcript/alice.jsonl");
    let mut next = asked.into_iter().find(|line| line["kind"] == "request").unwrap();
    next["request_id"] = json!("alice:next");
    append_to(&team, "transcript/alice.jsonl", &next);
    let mut approve = team.start(&["approve", "alice:next"]);
    team.eventually("the answer is passed on", || {
        let mail = team.mail_of("alice").into_iter();
        mail.filter(|mail| mail["type"] == "permission_response")
            .any(|mail| mail["request_id"] == "alice:next" && mail["approve"] == true)
    });
    approve.kill().unwrap();
    approve.wait().unwrap();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
