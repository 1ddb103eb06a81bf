//! The work of a clone is saved, offered, taken, and removed only when it is saved.

use super::{Repository, spawn_clone, write_file};
use crate::support::child_process::write;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, says, scripted_lead, tool_results, turns, wait_tool,
};
use serde_json::{Value, json};
use std::fs;

fn offer() -> (&'static str, Value) {
    ("offer_work", json!({ "summary": "the change" }))
}

fn take(name: &str) -> (&'static str, Value) {
    ("take_work", json!({ "name": name }))
}

#[test]
fn the_work_of_a_killed_teammate_is_in_the_repository() {
    let it = Repository::new();
    it.team.variable("TEAM_RESTART", "never");
    let command = "echo put >put.txt; git stash -qu; echo made >made.txt; git add made.txt; git commit -qm made; \
                   echo open >open.txt; touch .git/up; sleep 1000";
    let lines = [
        calls("lead", &[spawn_clone("alice")]),
        says("lead", "begun"),
        says("lead", "it is gone"),
        calls("alice", &[bash(command)]),
    ];
    let mut lead = scripted_lead(&it.team, &lines);
    wait_tool(&it.team, "alice", "bash");
    let clone = it.clone_of("alice");
    it.team.eventually("the command sleeps", || clone.join(".git/up").exists());
    kill_9(&it.team, "alice");
    it.team.wait_status("alice", "failed");
    it.team.eventually("its work is saved", || it.is_saved("alice", "open.txt"));
    let objects = it.git("rev-list --objects refs/team/alice/wip");
    for file in ["made.txt", "open.txt", "put.txt"] {
        assert!(objects.contains(file), "{file} is not in {objects}");
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&it.team);
    assert!(
        it.team
            .team(&["work", "drop", "alice"])
            .expect(0)
            .out
            .contains("stays in refs/team/alice/wip")
    );
    assert!(!clone.exists() && it.team.member("alice")["work"].is_null());
    assert_eq!(it.team.team(&["work"]).expect(0).out, "no teammate has a clone\n");
    assert_eq!(it.git("show refs/team/alice/wip:open.txt"), "open");
}

#[test]
fn offered_work_is_taken_by_the_lead_and_conflicts_are_told() {
    let it = Repository::new();
    let edit =
        |new: &str| ("edit_file", json!({ "path": "a.txt", "old_text": "one", "new_text": new }));
    let read = ("read_file", json!({ "path": "a.txt" }));
    let wait = bash("until [ -e .git/go ]; do sleep 0.05; done");
    let lines = [
        calls("lead", &[spawn_clone("alice"), spawn_clone("bob")]),
        calls("lead", &[take("alice")]),
        calls("lead", &[bash("until [ -e ready ]; do sleep 0.05; done"), take("alice")]),
        calls("lead", &[take("bob")]),
        says("lead", "taken"),
        says("lead", "heard"),
        calls("alice", &[wait.clone(), read.clone()]),
        calls("alice", &[edit("ONE"), write_file("new.txt"), offer()]),
        says("alice", "done"),
        calls("bob", &[wait, read]),
        calls("bob", &[edit("1"), offer()]),
        says("bob", "done"),
        says("bob", "I see"),
    ];
    let mut lead = scripted_lead(&it.team, &lines);
    let taken = || {
        let results = tool_results(&it.team, "lead");
        results.into_iter().filter(|(tool, _, _)| tool == "take_work").collect::<Vec<_>>()
    };
    it.team.eventually("nothing is offered", || !taken().is_empty());
    for name in ["alice", "bob"] {
        write(&it.clone_of(name).join(".git/go"), "");
    }
    it.team.eventually("both have offered", || {
        turns(&it.team, "alice") == 1 && turns(&it.team, "bob") == 1
    });
    let listed = it.team.team(&["work"]).expect(0).out;
    assert!(listed.contains("alice  offered  2 files changed"), "{listed}");
    assert!(listed.contains("bob  offered  1 file changed"), "{listed}");
    write(&it.main().join("ready"), "");
    let told = "these files conflict with the workspace: a.txt";
    it.team.eventually("bob is told", || it.team.has_mail("bob", "lead", told));
    it.team.eventually("the lead has the offers", || {
        let offers = |name: &str| it.team.has_mail("lead", name, "offers work");
        offers("alice") && offers("bob")
    });
    assert_eq!(fs::read_to_string(it.main().join("a.txt")).unwrap(), "ONE\ntwo\nthree\n");
    assert!(it.main().join("new.txt").exists());
    assert_eq!(
        (it.git("diff --cached --name-only"), it.git("branch --format='%(refname)'")),
        (String::new(), "refs/heads/trunk".into())
    );
    let taken = taken();
    assert!(taken[0].2 && taken[0].1.contains("has offered nothing"), "{taken:?}");
    assert!(!taken[1].2 && taken[1].1.contains("new.txt"), "{taken:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
}

#[test]
fn the_user_takes_saved_work_and_a_running_teammate_keeps_its_clone() {
    let it = Repository::new();
    let lines = [
        calls("lead", &[spawn_clone("alice")]),
        says("lead", "begun"),
        says("lead", "heard"),
        calls(
            "alice",
            &[
                write_file("new.txt"),
                bash("mkdir -p target; echo '*.log' >.gitignore; touch a.log"),
            ],
        ),
        says("alice", "done"),
    ];
    let mut lead = scripted_lead(&it.team, &lines);
    it.team.eventually("alice is done", || turns(&it.team, "alice") == 1);
    it.team.wait_status("alice", "idle");
    let kept = it.team.team(&["work", "drop", "alice"]);
    assert!(kept.err.contains("the clone of alice is kept"), "{}", kept.err);
    write(&it.main().join("new.txt"), "of the user\n");
    let kept = it.team.team(&["work", "take", "alice"]);
    assert!(kept.err.contains("new.txt"), "{}", kept.err);
    assert_eq!(fs::read_to_string(it.main().join("new.txt")).unwrap(), "of the user\n");
    fs::remove_file(it.main().join("new.txt")).unwrap();
    assert!(
        it.team.team(&["work", "take", "alice"]).expect(0).out.contains("Taken into the workspace")
    );
    assert_eq!(fs::read_to_string(it.main().join("new.txt")).unwrap(), "marker\n");
    let json: Value =
        serde_json::from_str(&it.team.team(&["work", "--json"]).expect(0).out).unwrap();
    assert_eq!(
        (&json["clones"][0]["name"], &json["clones"][0]["state"]),
        (&json!("alice"), &json!("taken"))
    );
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    let dropped = it.team.team(&["work", "drop", "alice"]).expect(0).out;
    assert!(dropped.contains("Ignored files in it were not saved: a.log"), "{dropped}");
}
