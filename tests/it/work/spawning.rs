//! A spawn into a clone, and spawns that need a clone and cannot have one.

use super::{Repository, spawn_clone};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, scripted_lead, spawn, tool_results,
    turns,
};
use serde_json::json;
use std::fs;

#[test]
fn a_teammate_in_a_clone_sees_the_files_of_the_user_and_comes_back_to_its_own() {
    let it = Repository::new();
    write(&it.main().join("a.txt"), "one\n2\nthree\n");
    write(&it.main().join("new.txt"), "new\n");
    let see =
        "cat a.txt new.txt; pwd; git branch --show-current; echo more >more.txt; echo $TEAM_DIR";
    let long = bash("seq 100000");
    let kept = ".git/team-output/alice-1.txt";
    let lines = [
        calls("lead", &[spawn_clone("alice")]),
        says("lead", "begun"),
        says("lead", "heard"),
        calls("alice", &[bash(see), long, ("read_file", json!({ "path": kept }))]),
        says("alice", "done"),
    ];
    let before = it.git("status --porcelain a.txt new.txt");
    let mut lead = scripted_lead(&it.team, &lines);
    it.team.eventually("alice is done", || turns(&it.team, "alice") == 1);
    it.team.wait_status("alice", "idle");
    let clone = it.clone_of("alice");
    assert!(clone.starts_with(it.state.path()), "{clone:?}");
    let printed = &tool_results(&it.team, "alice")[0].1;
    let root = it.main().canonicalize().unwrap().join(".team");
    let expected = format!(
        "one\n2\nthree\nnew\n{}\nteam/alice\n{}\n",
        clone.canonicalize().unwrap().display(),
        root.display()
    );
    assert_eq!(*printed, expected);
    let results = tool_results(&it.team, "alice");
    assert!(results[1].1.contains(&format!("all of it is in {kept}")), "{}", results[1].1);
    assert!(!results[2].2 && results[2].1.starts_with("1\n2\n3\n"), "{}", results[2].1);
    assert_eq!(it.git("status --porcelain a.txt new.txt"), before);
    assert!(!it.main().join("more.txt").exists() && it.is_saved("alice", "more.txt"));
    let listed = it.team.team(&["work"]).expect(0).out;
    assert!(listed.contains("alice  saved  1 file changed"), "{listed}");
    assert!(it.team.team(&["work", "diff", "alice"]).expect(0).out.contains("+more"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&it.team);
    // Without its clone, alice does not come back, and never works in the workspace.
    let away = it.state.path().join("away");
    fs::rename(&clone, &away).unwrap();
    let again = script(&it.team, &[calls("lead", &[spawn("alice")]), says("lead", "no")]);
    headless(&it.team, &again, "again");
    let (_, said, is_error) = tool_results(&it.team, "lead").pop().unwrap();
    assert!(is_error && said.contains("the clone of alice is missing"), "{said}");
    fs::rename(&away, &clone).unwrap();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "begun"),
        says("alice", "a reply of her first life"),
        says("alice", "a reply of her first life"),
        calls("alice", &[bash("pwd; cat more.txt")]),
        says("alice", "done"),
    ];
    headless(&it.team, &script(&it.team, &lines), "again");
    let printed = tool_results(&it.team, "alice").pop().unwrap().1;
    assert!(
        printed.contains(&*clone.to_string_lossy()) && printed.ends_with("more\n"),
        "{printed}"
    );
    // Nor does she without her entry on the roster.
    for file in ["config.json", "config.json.bak"] {
        fs::remove_file(it.team.path(file)).unwrap();
    }
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "begun"),
        says("alice", "a reply of her first life"),
        says("alice", "a reply of her first life"),
        says("alice", "a reply of her second life"),
        says("alice", "a reply of her second life"),
        calls("alice", &[bash("pwd; echo third")]),
        says("alice", "done"),
    ];
    headless(&it.team, &script(&it.team, &lines), "again");
    let printed = tool_results(&it.team, "alice").pop().unwrap().1;
    assert_eq!(printed, format!("{}\nthird\n", clone.canonicalize().unwrap().display()));
}

#[test]
fn a_spawn_that_needs_a_clone_fails_without_one() {
    let refused = |team: &Team, spawn: (&'static str, serde_json::Value), why: &str| {
        headless(team, &script(team, &[calls("lead", &[spawn]), says("lead", "no")]), "begin");
        let (_, said, is_error) = tool_results(team, "lead").pop().unwrap();
        assert!(is_error && said.contains(why), "{said}");
        assert!(team.member("alice").is_null(), "{}", team.describe());
    };
    let plain = Team::new();
    refused(&plain, spawn_clone("alice"), "not a git repository");
    let empty = Repository::without_commit();
    refused(&empty.team, spawn_clone("alice"), "its repository has no commit yet");
    empty.team.variable("TEAM_ISOLATION", "clone");
    refused(&empty.team, spawn("alice"), "its repository has no commit yet");
    let shared = (
        "spawn_teammate",
        json!({
            "name": "alice", "role": "worker", "prompt": "begin", "isolation": "shared"
        }),
    );
    refused(&empty.team, shared, "alice must work in a clone");
    let by_role = Repository::without_commit();
    fs::create_dir_all(by_role.main().join(".team/roles")).unwrap();
    write(&by_role.main().join(".team/roles/worker.md"), "---\nisolation: worktree\n---\nWork.\n");
    refused(&by_role.team, spawn("alice"), "its repository has no commit yet");
    let said =
        by_role.team.team(&["teammate", "alice", "--role", "worker", "--model", "rehearsal"]);
    assert!(said.err.contains("asks for a clone, which only a lead makes"), "{}", said.err);
    let full = Repository::new();
    let blocked = full.state.path().join("team");
    write(&blocked, "a file");
    refused(&full.team, spawn_clone("alice"), "cannot be used");
}
