//! A teammate in a clone leaves no mark in the workspace, nor in the clone of another.

use super::{Repository, spawn_clone, write_file};
use crate::lifecycle::leases::{claim, release};
use crate::support::child_process::write;
use crate::support::scripts::{bash, calls, says, scripted_lead, tool_results, turns};
use crate::walls::lacking::can_wall;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;

/// Every tool, command and hook of bob leaves a marker. `is_walled`: also by absolute paths in commands.
fn leaves_marks_only_in_its_clone(it: &Repository, is_walled: bool) {
    let team = &it.team;
    let main = it.main().display().to_string();
    symlink(it.main(), it.main().join("link")).unwrap();
    let folder = it.main().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    let hook =
        "[[hooks]]\nevent = \"message_sent\"\ncommand = 'cat >marker-hook; pwd >>marker-hook'\n";
    write(&folder.join("settings.toml"), hook);
    it.git("add link");
    it.git("commit -qm link");
    let mut commands = vec![
        "echo >marker-bash; (echo >&3) 3>marker-fd; git -c alias.x='!echo >marker-alias' x"
            .to_owned(),
        "cd .. && echo >marker-up || :".into(),
        "mkdir deep; cd deep; echo >../marker-deep; echo >$OLDPWD/marker-old".into(),
    ];
    if is_walled {
        for target in [
            format!("{main}/marker-absolute"),
            "link/marker-link".into(),
            "../alice/marker-other".into(),
        ] {
            commands.push(format!("echo >{target} || echo refused"));
        }
    }
    let mut tools: Vec<_> = commands.iter().map(|command| bash(command)).collect();
    tools.extend([
        write_file("marker-file"),
        write_file("sub/marker-file"),
        ("edit_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "marker-edit" })),
        write_file(&format!("{main}/marker-write")),
        write_file("link/marker-through-link"),
        write_file("../alice/marker-of-other"),
        ("send_message", json!({ "to": "lead", "content": "hello" })),
    ]);
    let lines = [
        calls("lead", &[spawn_clone("alice"), spawn_clone("bob")]),
        says("lead", "begun"),
        says("lead", "heard"),
        says("lead", "heard"),
        says("lead", "heard"),
        says("alice", "idle"),
        calls("bob", &[("read_file", json!({ "path": "a.txt" }))]),
        calls("bob", &tools),
        says("bob", "done"),
    ];
    let mut lead = scripted_lead(team, &lines);
    team.eventually("bob is done", || turns(team, "bob") == 1 && turns(team, "alice") == 1);
    let (alice, bob) = (it.clone_of("alice"), it.clone_of("bob"));
    let results = tool_results(team, "bob");
    for (place, folder) in [("the workspace", it.main()), ("alice's clone", &alice)] {
        assert_eq!(it.named(folder, "marker-*"), "", "in {place}: {results:#?}");
    }
    assert_eq!(it.git("grep -c marker-edit || :"), "");
    let found = it.named(&bob, "marker-*");
    for name in ["bash", "fd", "alias", "deep", "old", "file", "hook"] {
        assert!(found.contains(&format!("/marker-{name}")), "{name}: {found}\n{results:#?}");
    }
    assert!(fs::read_to_string(bob.join("a.txt")).unwrap().contains("marker-edit"));
    let hook = fs::read_to_string(bob.join("marker-hook")).unwrap();
    assert!(hook.contains(&*bob.to_string_lossy()), "{hook}");
    let refused = results.iter().filter(|(_, text, is_error)| {
        *is_error && (text.contains("outside your clone") || text.contains("stay inside"))
    });
    assert_eq!(refused.count(), 3, "{results:#?}");
    if is_walled {
        let refused = results.iter().filter(|(_, text, _)| text.contains("\nrefused\n"));
        assert_eq!(refused.count(), 3, "{results:#?}");
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
}

/// Bob leases a file of the workspace. Alice, who works in a clone, needs no lease and changes that file in her clone.
#[test]
fn a_lease_does_not_bind_a_clone() {
    let it = Repository::new();
    let team = &it.team;
    let edit = json!({ "path": "a.txt", "old_text": "two", "new_text": "2" });
    let lines = [
        calls("lead", &[claim(&["a.txt"], "rework"), spawn_clone("alice")]),
        says("lead", "begun"),
        says("lead", "told"),
        calls(
            "alice",
            &[
                claim(&["a.txt"], "rework, too"),
                ("read_file", json!({ "path": "a.txt" })),
                ("edit_file", edit),
                bash("echo four >>a.txt"),
                release(&["a.txt"]),
            ],
        ),
        says("alice", "done"),
    ];
    let mut lead = scripted_lead(team, &lines);
    team.eventually("alice is done", || turns(team, "alice") == 1);
    let results = tool_results(team, "alice");
    assert!(results.iter().all(|(_, text, is_error)| !is_error && !text.contains("[lease")));
    for at in [0, 4] {
        assert!(results[at].1.contains("a clone of your own"), "{results:#?}");
    }
    let text = |folder: &std::path::Path| fs::read_to_string(folder.join("a.txt")).unwrap();
    assert_eq!(text(&it.clone_of("alice")), "one\n2\nthree\nfour\n");
    assert_eq!(text(it.main()), "one\ntwo\nthree\n");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
}

/// The second edit replaces a text that only the file in the clone has.
#[test]
fn a_question_shows_the_change_to_the_file_in_the_clone() {
    let it = Repository::new();
    it.team.variable("TEAM_MODE", "default");
    let edit = |old: &str, new: &str| {
        ("edit_file", json!({ "path": "a.txt", "old_text": old, "new_text": new }))
    };
    let read = ("read_file", json!({ "path": "a.txt" }));
    let lines = [
        calls("lead", &[spawn_clone("bob")]),
        says("lead", "begun"),
        says("lead", "heard"),
        calls("bob", &[read, edit("two", "2"), edit("2", "zwei")]),
        says("bob", "done"),
    ];
    let mut lead = scripted_lead(&it.team, &lines);
    lead.expect("2   - two");
    lead.expect("2 + 2");
    lead.type_line("y");
    lead.expect("2   - 2");
    lead.expect("2 + zwei");
    lead.type_line("y");
    it.team.eventually("bob is done", || turns(&it.team, "bob") == 1);
    let text = |folder: &std::path::Path| fs::read_to_string(folder.join("a.txt")).unwrap();
    assert_eq!(text(&it.clone_of("bob")), "one\nzwei\nthree\n");
    assert_eq!(text(it.main()), "one\ntwo\nthree\n");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
}

#[test]
fn a_teammate_leaves_marks_only_in_its_clone() {
    leaves_marks_only_in_its_clone(&Repository::new(), false);
}

#[test]
fn a_walled_teammate_leaves_marks_only_in_its_clone() {
    let it = Repository::new();
    it.team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    if can_wall(&it.team) {
        leaves_marks_only_in_its_clone(&it, true);
    }
}
