//! Leases on files: they bind the file tools of others while their owner runs, and a change by a command is told.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, says, scripted_lead, spawn, tool_results, turns,
    wait_file,
};
use serde_json::{Value, json};
use std::fs;

pub(crate) fn claim(paths: &[&str], why: &str) -> (&'static str, Value) {
    ("claim_files", json!({ "paths": paths, "why": why }))
}

pub(crate) fn release(paths: &[&str]) -> (&'static str, Value) {
    ("release_files", json!({ "paths": paths }))
}

pub(crate) fn put(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "new\n" }))
}

/// Returns the call that waits until a file is in the workspace.
pub(crate) fn until(file: &str) -> (&'static str, Value) {
    bash(&format!("until [ -e {file} ]; do sleep 0.05; done"))
}

/// Creates a file for which a command waits.
fn signal(team: &Team, file: &str) {
    write(&team.workspace().join(file), "");
}

/// Returns the paths of all leases, each with its owner.
fn leased(team: &Team) -> Vec<(String, String)> {
    let found = team.team(&["leases", "--json"]).expect(0).json();
    assert_eq!((&found["schema"], &found["problems"]), (&json!(1), &json!([])));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let paths = |lease: &Value| -> Vec<(String, String)> {
        let paths = lease["paths"].as_array().unwrap();
        paths.iter().map(|path| (text(path), text(&lease["owner"]))).collect()
    };
    found["leases"].as_array().unwrap().iter().flat_map(paths).collect()
}

fn lease_files(team: &Team) -> Vec<String> {
    let entries = fs::read_dir(team.path("leases")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".lock").collect()
}

fn end(team: &Team, mut lead: crate::support::terminal::Terminal) {
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(team);
    assert_eq!(lease_files(team), Vec::<String>::new());
}

/// Alice leases a folder and a missing file. Bob is refused there, also with one free path beside them, until she is
/// killed.
#[test]
fn a_lease_binds_others_until_its_owner_is_killed() {
    let team = Team::new();
    team.variable("TEAM_RESTART", "never");
    fs::create_dir(team.workspace().join("src")).unwrap();
    write(&team.workspace().join("src/a.rs"), "one\n");
    let edit = json!({ "path": "src/a.rs", "old_text": "one", "new_text": "1" });
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "begun"),
        says("lead", "told"),
        calls(
            "alice",
            &[
                claim(&["src", "new/file"], "rework the parser"),
                put("src/own"),
                bash("touch alice.claims; sleep 1000"),
            ],
        ),
        calls(
            "bob",
            &[
                until("alice.claims"),
                put("src/b.rs"),
                ("read_file", json!({ "path": "src/a.rs" })),
                ("edit_file", edit.clone()),
                put("new/file"),
                put("new"),
                put("new/other"),
                claim(&["docs", "src/deep/x"], "write docs"),
                claim(&["docs"], "write docs"),
                ("release_files", json!({ "paths": ["src"] })),
                bash("touch bob.refused"),
                until("alice.gone"),
            ],
        ),
        calls(
            "bob",
            &[put("src/b.rs"), ("edit_file", edit), claim(&["src"], "go on"), put("docs/a")],
        ),
        says("bob", "done"),
    ];
    let lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.refused");
    let held = [("docs", "bob"), ("new/file", "alice"), ("src", "alice")];
    let mut found = leased(&team);
    found.sort();
    assert_eq!(found, held.map(|(path, owner)| (path.to_owned(), owner.to_owned())));
    let CommandResult { out: table, .. } = team.team(&["leases"]).expect(0);
    for part in ["PATH", "src", "new/file", "alice", "rework the parser", "write docs"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    kill_9(&team, "alice");
    team.wait_status("alice", "failed");
    assert_eq!(leased(&team), [("docs".to_owned(), "bob".to_owned())]);
    team.eventually("the lead has removed the lease", || lease_files(&team).len() == 1);
    signal(&team, "alice.gone");
    team.eventually("bob is done", || turns(&team, "bob") == 1);
    let results = tool_results(&team, "bob");
    let refusals: Vec<&str> = results
        .iter()
        .map(|(_, text, is_error)| if *is_error { text.as_str() } else { "" })
        .collect();
    for (at, says) in [
        (1, "nothing was written: src/b.rs is leased with src by alice since "),
        (3, "src/a.rs is leased with src by alice"),
        (4, "new/file is leased by alice"),
        (5, "new is leased in part (new/file) by alice"),
        (7, "src/deep/x is leased with src by alice"),
        (9, "none of these paths is leased by you: src; you have leased docs"),
    ] {
        assert!(refusals[at].contains(says), "{says}: {results:#?}");
        assert!(at == 9 || refusals[at].contains("(rework the parser); "), "{results:#?}");
    }
    assert!(
        refusals[1]
            .ends_with("ask alice with send_message to release it, or work on something else")
    );
    for at in [6, 8, 12, 13, 14, 15] {
        assert_eq!(refusals[at], "", "{at}: {results:#?}");
    }
    assert_eq!(fs::read_to_string(team.workspace().join("src/a.rs")).unwrap(), "1\n");
    let results = tool_results(&team, "alice");
    assert!(results.iter().all(|(_, _, is_error)| !is_error), "{results:#?}");
    end(&team, lead);
}

/// The lead's model is bound too; the person is not, and may release a lease. A restarted owner has no lease.
#[test]
fn the_person_releases_a_lease_and_a_restart_ends_one() {
    let team = Team::new();
    team.variable("TEAM_FIRST_PAUSE_MS", "10");
    fs::create_dir(team.workspace().join("src")).unwrap();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "begun"),
        calls("lead", &[put("src/a.rs"), put("docs/a")]),
        says("lead", "refused"),
        calls("lead", &[put("docs/a")]),
        says("lead", "written"),
        calls("alice", &[claim(&["src", "docs"], "rework"), until("again"), bash("sleep 1000")]),
        says("alice", "restarted"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("alice has leases", || leased(&team).len() == 2);
    team.wait_status("lead", "idle");
    lead.type_line("write");
    team.eventually("the lead is refused", || turns(&team, "lead") == 2);
    let results = tool_results(&team, "lead");
    for (_, text, is_error) in &results[1..] {
        assert!(
            *is_error && text.contains("by alice since") && text.contains("(rework)"),
            "{text}"
        );
    }
    let refused = team.team(&["leases", "release", "srcs"]).expect(1);
    assert!(refused.err.contains("there is no lease \"srcs\""), "{refused:?}");
    let released = team.team(&["-C", "src", "leases", "release", "../docs/"]).expect(0);
    assert_eq!(released.out.trim(), "released docs; alice was told");
    signal(&team, "again");
    lead.type_line("write");
    team.eventually("the lead has written", || turns(&team, "lead") == 3);
    assert!(team.workspace().join("docs/a").exists(), "{:#?}", tool_results(&team, "lead"));
    assert_eq!(leased(&team), [("src".to_owned(), "alice".to_owned())]);
    let first = team.member("alice")["incarnation"].clone();
    kill_9(&team, "alice");
    team.eventually("alice runs again", || {
        let alice = team.member("alice");
        alice["incarnation"] != first && alice["status"] == "idle"
    });
    assert_eq!(leased(&team), []);
    assert!(team.has_mail("alice", "user", "released your lease on docs"));
    end(&team, lead);
}

/// Without walls, nothing keeps a command of bob from a leased file. Both are told, but not of what alice's own file tool
/// has written meanwhile.
#[test]
fn without_namespaces_a_changed_lease_is_told_to_both() {
    let team = Team::without_walls();
    fs::create_dir(team.workspace().join("src")).unwrap();
    write(&team.workspace().join("src/a.rs"), "one\n");
    write(&team.workspace().join("src/same"), "one\n");
    write(&team.workspace().join("free"), "one\n");
    let command = "touch bob.runs; until [ -e alice.wrote ]; do sleep 0.05; done; \
        echo two >>src/a.rs; mkdir new; echo two >new/b; echo two >>free";
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "begun"),
        says("lead", "told"),
        says("lead", "told"),
        calls(
            "alice",
            &[claim(&["src", "new"], "rework"), bash("touch alice.claims"), until("bob.runs")],
        ),
        calls("alice", &[put("src/own"), bash("touch alice.wrote"), until("bob.done")]),
        says("alice", "done"),
        says("alice", "heard"),
        calls("bob", &[until("alice.claims"), bash(command), release(&[]), bash("touch bob.done")]),
        says("bob", "done"),
    ];
    let lead = scripted_lead(&team, &lines);
    team.eventually("bob is done", || turns(&team, "bob") == 1);
    team.eventually("alice is told", || {
        team.has_mail("alice", "system", "have leased were changed")
    });
    let results = tool_results(&team, "bob");
    let told = "[lease: src/a.rs, leased by alice (rework), was changed while this command ran; \
                alice was told]";
    assert!(results[1].1.contains(told), "{results:#?}");
    assert!(results[1].1.contains("[lease: new/b, leased by alice (rework)"), "{results:#?}");
    assert_eq!(results[1].1.matches("[lease:").count(), 2, "{results:#?}");
    let mail = team.mail_of("alice");
    let mail: Vec<&str> = mail
        .iter()
        .filter(|mail| mail["from"] == "system")
        .filter_map(|mail| mail["content"].as_str())
        .collect();
    assert_eq!(mail.len(), 1, "{mail:?}");
    assert!(mail[0].starts_with(
        "While a command of bob ran, files that you have leased were changed: new/b, src/a.rs."
    ));
    end(&team, lead);
}

/// An invalid file of a lease keeps nobody from writing, and is named. That of a dead owner is removed at the start.
#[test]
fn an_invalid_lease_file_blocks_nothing() {
    let team = Team::new();
    let lines = [
        calls("lead", &[put("src/a"), claim(&["src"], "rework"), until("looked")]),
        says("lead", "done"),
    ];
    team.team(&["init"]).expect(0);
    fs::create_dir_all(team.path("leases")).unwrap();
    write(&team.path("leases/1.json"), "{\"owner\":\"alice\",\"paths\":[\"../src\"]}");
    write(&team.path("leases/2.json"), "no json");
    write(&team.path("leases/3.json"), "{\"owner\":\"alice\",\"paths\":[\"src\"]}");
    let lead = scripted_lead(&team, &lines);
    team.eventually("the lead has a lease", || team.team(&["leases"]).out.contains("rework"));
    let seen = team.team(&["leases"]).expect(0);
    assert!(seen.err.contains("1.json.bad-1") && seen.err.contains("2.json.bad-1"), "{seen:?}");
    assert!(!team.path("leases/3.json").exists());
    let doctor = team.team(&["doctor"]);
    assert!(doctor.out.contains("leases/1.json.bad-1: no lease could be read"), "{doctor:?}");
    signal(&team, "looked");
    team.wait_status("lead", "idle");
    let results = tool_results(&team, "lead");
    assert!(results.iter().all(|(_, _, is_error)| !is_error), "{results:#?}");
    for file in ["1.json.bad-1", "2.json.bad-1"] {
        fs::remove_file(team.path("leases").join(file)).unwrap();
    }
    end(&team, lead);
}
