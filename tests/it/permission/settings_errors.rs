//! Errors in the settings: a rule without effect is no rule, and a typo takes no brake away.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, bash, calls, says, script};
use serde_json::json;
use std::fs;

fn team_with(settings: &str) -> Team {
    let team = Team::new();
    fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), settings);
    team
}

#[test]
fn a_rule_as_claude_code_writes_it_is_in_force() {
    for deny in ["Bash(rm:*)", "bash(rm:*)"] {
        let team = team_with(&format!("[permissions]\ndeny = [\"{deny}\", \"Write(*.sql)\"]\n"));
        write(&team.workspace().join("precious"), "x");
        let file = |path: &str| ("write_file", json!({"path": path, "content": "x"}));
        let tries = [bash("rm precious"), file("a.sql"), file("deep/b.sql"), file("c.txt")];
        let model = script(&team, &[calls("lead", &tries), says("lead", "over")]);
        let ran = team.team(&["lead", "-p", "begin", "--model", &model, "--mode", "bypass"]);
        assert!(ran.expect(9).err.contains("3 calls were denied"), "{deny}");
        let exists = ["precious", "a.sql", "deep/b.sql", "c.txt"]
            .map(|file| team.workspace().join(file).exists());
        assert_eq!(exists, [true, false, false, true], "{deny}: {}", team.describe());
        assert_left_in_order(&team);
    }
}

#[test]
fn a_rule_that_names_no_tool_is_an_error_or_a_warning() {
    for list in ["deny", "ask"] {
        let team = team_with(&format!("[permissions]\n\n{list} = [\"bsh(rm:*)\"]\n"));
        for words in [&["lead", "-p", "x", "--model", "rehearsal"][..], &["config"]] {
            let ran = team.team(words).expect(2);
            for part in ["settings.toml line 3", "\"bsh(rm:*)\"", "did you mean \"bash(rm:*)\"?"] {
                assert!(ran.err.contains(part), "{part}: {ran:#?}");
            }
        }
        let doctor = team.team(&["doctor"]).expect(1);
        assert!(doctor.out.contains("would have no effect"), "{doctor:#?}");
        assert!(team.lines("config.json").is_empty(), "no team was started");
    }
    let team = team_with("[permissions]\nallow = [\"bsh(ls)\"]\n");
    team.team(&["trust"]).expect(0);
    let ran = team.team(&["lead", "-p", "x", "--model", "rehearsal"]).expect(0);
    assert_eq!(ran.err.matches("allows nothing").count(), 1, "{ran:#?}");
    assert!(team.team(&["config"]).expect(0).err.contains("allows nothing"));
}

#[test]
fn all_errors_of_the_settings_are_shown_at_once() {
    for (settings, parts) in [
        ("max_rounds = \"a\"\nfsync = \"x\"\n", ["settings.toml line 1", "settings.toml line 2"]),
        (
            "model = \"\"\n[permissions]\ndeny = [\"bsh\"]\n",
            ["\"\" is not a model", "settings.toml line 3"],
        ),
    ] {
        let ran = team_with(settings).team(&["config"]).expect(2);
        for part in parts {
            assert_eq!(ran.err.matches(part).count(), 1, "{part}: {ran:#?}");
        }
    }
    for words in [&["config"][..], &["lead", "-p", "x"]] {
        let team = team_with("model = \"foo\"\n");
        let ran = team.team(words).expect(2);
        let where_from = team.path("settings.toml").display().to_string();
        assert!(
            ran.err.contains("\"foo\" is not a model") && ran.err.contains(&where_from),
            "{ran:#?}"
        );
    }
}

/// With settings that are not understood, every verb that steers a team works, and the errors are shown in plain
/// words.
#[test]
fn a_typo_in_the_settings_takes_no_brake_away() {
    let team = Team::new();
    let alice = ["teammate", "alice", "--model", "rehearsal"];
    let mut alice = team.start(&alice);
    team.wait_status("alice", "idle");
    write(&team.path("settings.toml"), "max_round = 5\nfsync = \"sometimes\"\n");
    for words in [
        &["send", "alice", "Run pwd"][..],
        &["broadcast", "hello"],
        &["task", "add", "paint"],
        &["task", "ls"],
        &["ls"],
        &["log"],
        &["inbox", "lead"],
        &["inbox", "lead", "--drain"],
        &["requests"],
        &["stop", "alice"],
        &["stop", "--all", "--now"],
        &["clean"],
    ] {
        let ran = team.team(words).expect(0);
        assert!(ran.err.matches("the defaults are in force").count() <= 1, "{ran:#?}");
    }
    alice.wait().unwrap();
    for words in [&["approve", "x"][..], &["deny", "x"]] {
        let ran = team.team(words).expect(1);
        assert!(ran.err.contains("no request of that id is open"), "{ran:#?}");
    }
    let config = team.team(&["config"]).expect(2);
    for part in [
        "settings.toml line 1",
        "unknown key `max_round`; did you mean `max_rounds`?",
        "settings.toml line 2",
        "`fsync` must be one of the words \"always\", \"never\", in quotes",
    ] {
        assert!(config.err.contains(part), "{part}: {config:#?}");
    }
    let doctor = team.team(&["doctor"]).expect(1);
    assert!(doctor.out.contains("max_round") && doctor.out.contains("`fsync`"), "{doctor:#?}");
    for (text, words) in [
        ("model = \n", "`model` has no value"),
        ("model = rehearsal\n", "the value of `model` is text, which needs quotes"),
        ("model = \"a/b\"\nmodel = \"c/d\"\n", "`model` is in the file twice"),
        ("max_rounds = \"5\"\n", "`max_rounds` must be a whole number, such as 50"),
        ("auto_claim = \"yes\"\n", "`auto_claim` must be true or false, without quotes"),
        ("permissions = 1\n", "`permissions` must be a table: write [permissions]"),
        ("[permissions]\nallow = \"bash\"\n", "`permissions.allow` must be a list of texts"),
    ] {
        write(&team.path("settings.toml"), text);
        let ran = team.team(&["config"]).expect(2);
        assert!(ran.err.contains(words), "{text}: {ran:#?}");
        team.team(&["ls"]).expect(0);
    }
}
