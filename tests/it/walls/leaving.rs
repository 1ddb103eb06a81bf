//! Commands that are to run outside the walls: the request shows the command and the reason, and only an answer or a
//! rule lets them out. Commands inside may run without a question.

use super::teams::walled_team;
use crate::support::approvals::{requests, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, scripted_lead, spawn, tool_results,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A call of `bash` that is to run outside the walls.
fn outside(command: &str, reason: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command, "outside": reason }))
}

fn set(team: &Team, settings: &str) {
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    write(&folder.join("settings.toml"), settings);
}

/// A command that makes a file below a folder outside the workspace.
fn touch(folder: &Path, name: &str) -> String {
    format!("touch {}", folder.join(name).display())
}

#[test]
fn a_command_leaves_the_walls_only_if_the_user_says_so() {
    let Some(team) = walled_team("workspace") else { return };
    team.variable("TEAM_MODE", "default");
    set(&team, "[sandbox]\nask_inside = false\n");
    let folder = tempfile::tempdir().unwrap();
    let touch = |name: &str| touch(folder.path(), name);
    let exists = |name: &str| folder.path().join(name).exists();
    let tries = [
        bash("echo inside >inside; touch /etc/team-was-here"),
        outside(&touch("refused"), "first\nsecond \u{202e}"),
        outside(&touch("once"), "it writes elsewhere"),
        outside(&touch("replaced"), "again"),
        outside(&touch("by-command"), "again"),
        outside(&touch("always"), "again"),
        outside(&touch("always"), "again"),
        bash(&touch("stays-inside")),
    ];
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &tries),
        says("alice", "alice is done"),
        calls("lead", &[outside(&touch("always"), "again"), outside(&touch("lead"), "again")]),
        says("lead", "the lead is done"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    lead.expect("alice asks to run outside the walls:");
    lead.expect("reason: first<U+000A>second <U+202E>");
    wait_asked(&team, "alice");
    assert_eq!(team.member("alice")["activity"], "sandbox bash");
    let asked = &requests(&team)[0];
    assert_eq!(
        (&asked["kind"], &asked["description"]),
        (&json!("sandbox"), &json!(touch("refused")))
    );
    assert!(fs::read_to_string(team.workspace().join("inside")).is_ok(), "it ran unasked");
    lead.type_line("n stay inside");
    lead.expect("reason: it writes elsewhere");
    lead.type_line("y");
    lead.expect(&touch("replaced"));
    wait_asked(&team, "alice");
    lead.type_line(&format!("e {}", touch("changed")));
    lead.expect(&touch("by-command"));
    wait_asked(&team, "alice");
    team.team(&["approve", "alice"]).expect(0);
    lead.expect(&touch("always"));
    wait_asked(&team, "alice");
    lead.type_line("always");
    // The rule holds for the lead, too, and only for that command.
    lead.expect(&touch("lead"));
    team.eventually("alice is done", || team.has_mail("lead", "alice", "alice is done"));
    lead.type_line("n");
    lead.expect("the lead is done");
    let results = tool_results(&team, "alice");
    let note = "To ask the user to let this command run outside, repeat it with `outside`";
    assert!(results[0].1.contains(note), "{results:#?}");
    assert!(results[1].1.contains("stay inside") && results[1].2, "{results:#?}");
    for (name, is_there) in [
        ("refused", false),
        ("once", true),
        ("replaced", false),
        ("changed", true),
        ("by-command", true),
        ("always", true),
        ("stays-inside", false),
        ("lead", false),
    ] {
        assert_eq!(exists(name), is_there, "{name}: {results:#?}");
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn a_run_that_asks_nobody_leaves_the_walls_by_rules_alone() {
    let Some(team) = walled_team("workspace") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tries = [
        bash(&touch(folder.path(), "inside")),
        outside(&touch(folder.path(), "allowed"), "a rule allows it"),
        outside(&touch(folder.path(), "other"), "no rule allows it"),
        outside("true", " "),
    ];
    let rule = format!("unsandboxed({})", touch(folder.path(), "allowed"));
    for (mode, advice) in
        [("default", "would allow it"), ("bypass", "in mode bypass nobody is asked")]
    {
        team.variable("TEAM_MODE", mode);
        let rules = format!("[permissions]\nallow = [\"bash(touch:*)\", {rule:?}]\n");
        set(&team, &rules);
        let model = script(&team, &[calls("lead", &tries), says("lead", "over")]);
        let ran = headless(&team, &model, "begin");
        assert!(matches!(ran.code, Some(0 | 9)), "{ran:#?}");
        let results = tool_results(&team, "lead");
        let refused: Vec<bool> = results.iter().map(|(.., is_error)| *is_error).collect();
        assert_eq!(refused, [false, false, true, true], "{mode}: {results:#?}");
        assert!(results[2].1.contains(advice), "{mode}: {results:#?}");
        assert!(results[2].1.contains("unsandboxed(touch"), "{mode}: {results:#?}");
        assert!(results[3].1.contains("outside is empty"), "{mode}: {results:#?}");
        let made = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(made.collect::<Vec<_>>(), ["allowed"], "{mode}");
        fs::remove_file(folder.path().join("allowed")).unwrap();
        team.team(&["clean", "--purge", "--yes"]).expect(0);
    }
}

/// Without walls `outside` means nothing, and `ask_inside` frees nothing.
#[test]
fn without_walls_every_command_asks() {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", "off");
    team.variable("TEAM_MODE", "default");
    set(&team, "[sandbox]\nask_inside = false\n");
    let replies =
        [calls("lead", &[bash("touch a"), outside("touch b", "why")]), says("lead", "over")];
    let mut lead = scripted_lead(&team, &replies);
    for name in ["touch a", "touch b"] {
        lead.expect("asks to run:");
        lead.expect(name);
        wait_asked(&team, "lead");
        lead.type_line("y");
    }
    lead.expect("over");
    assert!(["a", "b"].iter().all(|name| team.workspace().join(name).exists()));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}
