//! Files that agents read and write: who changed a file is told, and a restart forgets no read.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, says, script, scripted_lead, spawn,
    tool_results, turns, wait_file,
};
use serde_json::{Value, json};
use std::fs;

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({ "path": path, "old_text": old, "new_text": new }))
}

fn overwrite(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "new\n" }))
}

/// Returns the notes of the program for an agent's model.
fn notes(team: &Team, name: &str) -> Vec<String> {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let notes = lines.iter().filter(|line| line["kind"] == "note");
    notes.filter_map(|line| line["content"].as_str().map(str::to_owned)).collect()
}

/// Alice reads a file, and waits. Bob edits it. Alice's model is told by whom it was changed before its next call, and
/// her edit is refused until she has read it again.
#[test]
fn a_reader_is_told_by_whom_a_file_was_changed() {
    let team = Team::new();
    write(&team.workspace().join("plan.md"), "one\ntwo\n");
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "begun"),
        says("lead", "one report"),
        says("lead", "two reports"),
        calls(
            "alice",
            &[
                read("plan.md"),
                bash("touch alice.read; until [ -e bob.done ]; do sleep 0.05; done"),
            ],
        ),
        calls(
            "alice",
            &[
                edit("plan.md", "two", "2"),
                read("plan.md"),
                // Otherwise bob could be told of this edit.
                bash("until [ -e bob.over ]; do sleep 0.05; done"),
                edit("plan.md", "two", "2"),
            ],
        ),
        says("alice", "done"),
        calls(
            "bob",
            &[
                bash("until [ -e alice.read ]; do sleep 0.05; done"),
                read("plan.md"),
                edit("plan.md", "one", "1"),
                bash("touch bob.done"),
            ],
        ),
        says("bob", "done"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "alice.read");
    team.eventually("bob is done", || turns(&team, "bob") == 1);
    write(&team.workspace().join("bob.over"), "");
    team.eventually("alice is done", || turns(&team, "alice") == 1);
    let told = notes(&team, "alice");
    let changed = "plan.md, which you read, was changed by bob; read such a file again";
    assert_eq!(told.iter().filter(|note| note.starts_with(changed)).count(), 1, "{told:?}");
    assert!(notes(&team, "bob").iter().all(|note| !note.contains("plan.md")));
    let results = tool_results(&team, "alice");
    assert!(results[2].2 && results[2].1.contains("has changed since you read it"), "{results:?}");
    assert!(!results[5].2, "{results:?}");
    assert_eq!(fs::read_to_string(team.workspace().join("plan.md")).unwrap(), "1\n2\n");
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
    let locks = || fs::read_dir(team.path("run/.state/files")).unwrap().count();
    assert_eq!(locks(), 1);
    team.team(&["clean"]).expect(0);
    assert_eq!(locks(), 0);
}

/// Bob is killed between a read and an edit. Resumed, he edits the lines that he has read, and no others; a file that
/// he has not read is not overwritten.
#[test]
fn a_restart_forgets_no_read() {
    let team = Team::new();
    team.variable("TEAM_RESTART", "never");
    let put = |name: &str| write(&team.workspace().join(name), "one\ntwo\nthree\n");
    ["whole", "part", "unread", "changed"].iter().copied().for_each(put);
    let part = ("read_file", json!({ "path": "part", "offset": 2, "limit": 1 }));
    let hang = bash("touch bob.here; sleep 1000");
    let first = calls("bob", &[read("whole"), part, read("changed"), hang]);
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "begun"),
        says("lead", "told"),
        first.clone(),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    kill_9(&team, "bob");
    team.wait_status("bob", "failed");
    lead.type_line("/quit");
    lead.wait();
    write(&team.workspace().join("changed"), "four\n");

    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "begun"),
        says("lead", "told"),
        first,
        calls(
            "bob",
            &[
                edit("whole", "two", "2"),
                overwrite("whole"),
                edit("part", "two", "2"),
                edit("part", "three", "3"),
                overwrite("part"),
                overwrite("unread"),
                edit("changed", "four", "4"),
            ],
        ),
        says("bob", "done"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    // The turn that the kill cut off has ended, too.
    team.eventually("bob is done", || turns(&team, "bob") == 2);
    let results = tool_results(&team, "bob");
    let refusals: Vec<&str> = results[4..]
        .iter()
        .map(|(_, text, is_error)| if *is_error { text.as_str() } else { "" })
        .collect();
    let says = [
        "",
        "",
        "",
        "you have not read line 3; call read_file with offset 3",
        "you have not read line 1 of part",
        "unread exists, and you have not read it",
        "changed has changed since you read it",
    ];
    assert_eq!(refusals.len(), says.len(), "{results:?}");
    for (text, says) in refusals.iter().zip(says) {
        assert!(text.contains(says) && text.is_empty() == says.is_empty(), "{says:?}: {text:?}");
    }
    assert!(notes(&team, "bob").iter().any(|note| note.starts_with("changed, which you read, was changed by another program")));
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

/// The transcript of a lead that wrote a file is that of an earlier version: it names no file. The lead continues, and
/// has read nothing.
#[test]
fn a_transcript_of_an_earlier_version_is_an_empty_read_log() {
    let team = Team::new();
    let lines = [
        calls("lead", &[overwrite("a")]),
        says("lead", "written"),
        calls("lead", &[overwrite("a"), read("a"), overwrite("a")]),
        says("lead", "again"),
    ];
    let model = script(&team, &lines);
    headless(&team, &model, "Write a.").expect(0);
    let path = team.path("transcript/lead.jsonl");
    let mut earlier = Vec::new();
    for mut line in team.lines("transcript/lead.jsonl") {
        let had = line.as_object_mut().unwrap().remove("file");
        assert_eq!(had.is_some(), line["kind"] == "tool_result", "{line}");
        earlier.push(line.to_string() + "\n");
    }
    write(&path, earlier.concat());
    team.team(&["lead", "--resume", "-p", "Again.", "--model", &model]).expect(0);
    let results = tool_results(&team, "lead");
    let errors: Vec<bool> = results.iter().map(|(_, _, is_error)| *is_error).collect();
    assert_eq!(errors, [false, true, false, false], "{results:?}");
}
