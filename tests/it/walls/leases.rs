//! Leased paths in commands behind walls: they are read-only for the commands of others.

use super::teams::{printed, walled_team};
use crate::lifecycle::leases::{claim, release, until};
use crate::support::child_process::write;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, says, scripted_lead, spawn, turns,
};
use serde_json::json;
use std::fs;

/// Bob's commands cannot change what alice has leased, neither by name nor through a link, and are told of a new path
/// that they could. Alice's own commands can, and so can bob's once she has released it.
#[test]
fn a_leased_path_is_read_only_for_the_commands_of_others() {
    let Some(team) = walled_team("workspace") else { return };
    let at = |name: &str| team.workspace().join(name);
    fs::create_dir(at("src")).unwrap();
    write(&at("src/a.rs"), "one\n");
    write(&at("single"), "one\n");
    std::os::unix::fs::symlink("src", at("link")).unwrap();
    fs::create_dir(at("deep")).unwrap();
    write(&at("deep/file"), "one\n");
    let settings = at(".config/team");
    fs::create_dir_all(&settings).unwrap();
    let hook = "[[hooks]]\nevent = \"task_created\"\ncommand = 'echo >>src/a.rs; echo $? >hook'\n";
    write(&settings.join("settings.toml"), hook);
    let tries = "for f in src/a.rs src/new single link/a.rs; do echo two >>$f; done; \
                 rm -rf src; mv single moved; echo three >free; echo four >missing";
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "begun"),
        says("lead", "told"),
        says("lead", "told"),
        calls(
            "alice",
            &[
                claim(&["src", "single", "missing", "deep/file"], "rework"),
                bash("echo own >>src/a.rs && touch alice.claims"),
                until("bob.tried"),
            ],
        ),
        calls("alice", &[release(&["src", "single"]), bash("touch alice.released")]),
        says("alice", "done"),
        says("alice", "heard"),
        calls(
            "bob",
            &[
                until("alice.claims"),
                bash(tries),
                bash("mv deep gone"),
                ("create_task", json!({ "subject": "one" })),
                bash("touch bob.tried"),
            ],
        ),
        calls("bob", &[until("alice.released"), bash("echo bob >>src/a.rs && echo bob >>single")]),
        says("bob", "done"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("bob is done", || turns(&team, "bob") == 1);
    let said = printed(&team, "bob");
    assert_eq!(said[1].matches("Read-only file system").count(), 5, "{}", said[1]);
    assert_eq!(said[1].matches("Device or resource busy").count(), 1, "{}", said[1]);
    let read_only = "[lease: read-only for this command: deep/file, leased by alice (rework), \
                     single, leased by alice (rework), src, leased by alice (rework)]";
    assert!(said[1].contains(read_only), "{}", said[1]);
    let told = "[lease: missing, leased by alice (rework), was changed while this command ran; alice was told]";
    assert!(said[1].ends_with(told), "{}", said[1]);
    let moved = "[lease: deep/file, leased by alice (rework), was changed while this command ran";
    assert!(said[2].contains(moved), "a folder above a mount can be moved: {}", said[2]);
    let text = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!((text("src/a.rs"), text("single")), ("one\nown\nbob\n".into(), "one\nbob\n".into()));
    assert_eq!(text("hook"), "1\n", "a hook is bound, too");
    assert!(!at("src/new").exists() && !at("moved").exists());
    assert_eq!((text("free"), text("missing")), ("three\n".into(), "four\n".into()));
    team.eventually("alice is told", || team.has_mail("alice", "system", "were changed: missing."));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
