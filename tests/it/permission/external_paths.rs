//! File tools on paths outside the workspace: the request names the real path, an answer or a rule opens it,
//! and nothing else is opened. (`permission::interrupted_requests` tests kills and forged answers.)

use crate::support::approvals::{careful_team, requests, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless, says, script, scripted_lead, spawn, tool_results,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A folder outside the workspace with notes, a key, and a hidden file.
fn external_folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("team-external-").tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    for inside in ["open", "closed", ".ssh"] {
        fs::create_dir(real.join(inside)).unwrap();
        write(&real.join(inside).join("notes"), "the notes");
    }
    write(&real.join("closed/server.key"), "a key");
    (folder, real)
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

fn put(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "changed" }))
}

#[test]
fn an_answer_opens_one_file_and_nothing_else() {
    let (team, (_folder, real)) = (careful_team(), external_folder());
    let at = |path: &str| real.join(path).display().to_string();
    let notes = at("closed/notes");
    let winding = at("open/../closed/./notes");
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice")]),
            says("lead", "spawned"),
            calls("alice", &[read(&winding), read(&notes), put(&notes), read(&at("open/notes"))]),
            says("alice", "alice is done"),
            calls("lead", &[read(&notes), spawn("bob")]),
            says("lead", "spawned bob"),
            calls("bob", &[read(&notes)]),
            says("bob", "bob is done"),
        ],
    );
    lead.expect("alice asks to leave the workspace with read_file:");
    lead.expect(&notes);
    wait_asked(&team, "alice");
    assert_eq!(team.member("alice")["activity"], "sandbox read_file");
    let asked = &requests(&team)[0];
    assert_eq!((&asked["kind"], &asked["description"]), (&json!("sandbox"), &json!(notes)));
    lead.type_line("always");
    // The path may now be read. Writing it needs another request, and so does another file.
    lead.expect("alice asks to use write_file:");
    lead.type_line("n leave it as it is");
    lead.expect(&at("open/notes"));
    lead.type_line("n");
    team.eventually("bob is done", || team.has_mail("lead", "bob", "bob is done"));
    let results = tool_results(&team, "alice");
    let refused: Vec<bool> = results.iter().map(|(.., is_error)| *is_error).collect();
    assert_eq!(refused, [false, false, true, true], "{results:#?}");
    assert!(results[2].1.contains("leave it as it is"), "{results:#?}");
    for name in ["lead", "bob"] {
        let results = tool_results(&team, name);
        assert!(results.iter().any(|(_, text, _)| text == "the notes"), "{name}: {results:#?}");
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        assert!(lines.iter().all(|line| line["kind"] != "request"), "{name} knows the answer");
    }
    assert_eq!(fs::read_to_string(&notes).unwrap(), "the notes");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn a_rule_opens_its_paths_and_hidden_paths_stay_closed() {
    let (team, (_folder, real)) = (careful_team(), external_folder());
    let at = |path: &str| real.join(path).display().to_string();
    symlink(&real, team.workspace().join("link")).unwrap();
    symlink(real.join("open"), real.join("other")).unwrap();
    let config = team.workspace().join(".config/team");
    fs::create_dir_all(&config).unwrap();
    let rules =
        format!("[permissions]\nallow = [\"outside({}/**)\", \"write_file\"]\n", at("open"));
    let run = |mode: &str, rules: &str| -> Vec<(bool, String)> {
        write(&config.join("settings.toml"), rules);
        team.variable("TEAM_MODE", mode);
        let tries = [
            read(&at("open/notes")),
            put(&at("open/new")),
            read(&at("closed/notes")),
            read("link/open/notes"),
            read(&at("other/notes")),
            read(&at(".ssh/notes")),
            read(&at("closed/server.key")),
            read("/proc/self/environ"),
            put(&at("open/.bashrc")),
            read("../../../../../../../../etc/shadow"),
        ];
        // A lead that has not read the file of an earlier run would not overwrite it.
        let _none_yet = fs::remove_file(real.join("open/new"));
        let model = script(&team, &[calls("lead", &tries), says("lead", "over")]);
        let ran = headless(&team, &model, "begin");
        assert!(matches!(ran.code, Some(0 | 9)), "{ran:#?}");
        let results = tool_results(&team, "lead");
        results.into_iter().map(|(_, text, is_error)| (is_error, text)).collect()
    };
    let results = run("default", &rules);
    let refused: Vec<bool> = results.iter().map(|(is_error, _)| *is_error).collect();
    let expected = [false, false, true, true, true, true, true, true, true, true];
    assert_eq!(refused, expected, "{results:#?}");
    assert!(results[2].1.contains("headless"), "{results:#?}");
    for (_, why) in &results[3..] {
        assert!(why.contains("leads out of the folder"), "{results:#?}");
    }
    let asked = team.lines("transcript/lead.jsonl");
    let asked = asked.iter().filter(|line| line["kind"] == "request");
    assert_eq!(asked.count(), 0, "nobody is there to be asked");

    let everything = "[permissions]\nallow = [\"outside\", \"write_file\"]\n";
    let results = run("bypass", everything);
    let refused: Vec<bool> = results.iter().map(|(is_error, _)| *is_error).collect();
    let expected = [false, false, false, true, true, true, true, true, true, true];
    assert_eq!(refused, expected, "{results:#?}");
    let results = run("bypass", "");
    assert!(results.iter().all(|(is_error, _)| *is_error), "{results:#?}");
    assert!(results[0].1.contains("in mode bypass nobody is asked"), "{results:#?}");
    assert!(!real.join("open/.bashrc").exists());
    assert_left_in_order(&team);
}

#[test]
fn a_plan_leaves_the_workspace_to_look_and_no_further() {
    let (team, (_folder, real)) = (Team::new(), external_folder());
    let at = |path: &str| real.join(path).display().to_string();
    let config = team.workspace().join(".config/team");
    fs::create_dir_all(&config).unwrap();
    write(&config.join("settings.toml"), "[permissions]\nallow = [\"outside\", \"write_file\"]\n");
    team.variable("TEAM_MODE", "plan");
    let tries = [read(&at("open/notes")), put(&at("open/new"))];
    let model = script(&team, &[calls("lead", &tries), says("lead", "over")]);
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    let refused: Vec<bool> = results.iter().map(|(.., is_error)| *is_error).collect();
    assert_eq!(refused, [false, true], "{results:#?}");
    assert!(!real.join("open/new").exists());
    assert_left_in_order(&team);
}
