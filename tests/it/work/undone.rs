//! Changes of commands in a clone are taken back, and git reads nothing outside of walls that the agent has written there.

use super::{Repository, spawn_clone};
use crate::support::child_process::write;
use crate::support::scripts::{bash, calls, says, scripted_lead, tool_results, turns};
use crate::walls::can_wall;
use serde_json::json;
use std::fs;
use std::path::Path;

/// Lets alice run a command in her clone, and then another one.
fn run_in_clone(it: &Repository, command: &str) {
    let lines = [
        calls("lead", &[spawn_clone("alice")]),
        says("lead", "begun"),
        says("lead", "heard"),
        calls("alice", &[bash(command), bash("true")]),
        says("alice", "done"),
    ];
    let mut lead = scripted_lead(&it.team, &lines);
    it.team.eventually("alice is done", || turns(&it.team, "alice") == 1);
    lead.type_line("/quit");
    lead.wait();
}

fn text(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

#[test]
fn changes_of_a_command_in_a_clone_are_taken_back_there() {
    let it = Repository::new();
    for (name, content) in [("gone", "gone\n"), ("staged", "1\n"), (".gitignore", "ignored\n")] {
        write(&it.main().join(name), content);
    }
    it.git("add gone staged .gitignore");
    it.git("commit -qm second");
    write(&it.main().join("dirty"), "the person's\n");
    let command = "echo more >>a.txt; rm gone; echo new >new; echo x >>dirty; echo x >ignored; \
        mkdir sub; echo 2 >staged; echo y >sub/added; git add sub staged; \
        git -c user.name=a -c user.email=a@b commit -qm work; echo done";
    run_in_clone(&it, command);
    let clone = it.clone_of("alice");
    let said = tool_results(&it.team, "alice");
    assert!(said[0].1.ends_with("done\n"), "{said:?}");
    let plan = it.team.team(&["undo", "alice", "--json"]).expect(0).json();
    let paths: Vec<String> =
        plan["files"].as_array().unwrap().iter().map(|file| file["path"].to_string()).collect();
    let real = clone.canonicalize().unwrap();
    let all = ["a.txt", "dirty", "gone", "new", "staged", "sub/added"];
    assert_eq!(paths, all.map(|name| format!("{:?}", real.join(name))), "{plan}");
    assert_eq!((&plan["refused"], &plan["uncovered"]), (&json!([]), &json!([])));
    let diff = it.team.team(&["diff", "alice"]).expect(0).out;
    assert!(diff.contains("\n+more") && diff.contains("alice: 6 files"), "{diff}");
    assert!(diff.contains("+++ b/sub/added (clone of alice)\n"), "{diff}");
    it.team.team(&["undo", "alice", "--yes"]).expect(0);
    let states = ["a.txt", "dirty", "gone", "new", "staged", "sub/added", "ignored"]
        .map(|name| text(&clone, name));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        states,
        [
            some("one\ntwo\nthree\n"),
            some("the person's\n"),
            some("gone\n"),
            None,
            some("1\n"),
            None,
            some("x\n")
        ]
    );
    assert_eq!(text(it.main(), "a.txt"), some("one\ntwo\nthree\n"));
}

/// Each way in which a configuration has git run a program, in the clone and below it. An old index makes git compare all
/// files, through filters.
#[test]
fn a_look_at_a_clone_runs_nothing_that_its_agent_has_written() {
    let it = Repository::new();
    it.team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    if !can_wall(&it.team) {
        return;
    }
    let executed = tempfile::tempdir().unwrap();
    let mark = executed.path().join("mark").display().to_string();
    // Behind walls the mark cannot be made: it shows a program that ran outside of them.
    let command = format!(
        "printf '#!/bin/sh\\necho $0 >>{mark}\\ncat\\n' >.git/evil; chmod +x .git/evil; \
         for it in fsmonitor sshCommand pager editor; do git config core.$it \"$PWD/.git/evil\"; done; \
         git config diff.external \"$PWD/.git/evil\"; \
         for it in clean smudge process; do git config filter.x.$it \"$PWD/.git/evil\"; done; \
         mkdir -p .git/hooks; for it in post-index-change post-checkout pre-commit; do cp .git/evil .git/hooks/$it; done; \
         echo '* filter=x' >.gitattributes; \
         git init -q sub; cp -r .git/evil sub; (cd sub; echo x >f; echo '* filter=x' >.gitattributes; git add f; \
         git -c user.name=a -c user.email=a@b commit -qm x; git config filter.x.clean \"$PWD/evil\"; \
         git config core.fsmonitor \"$PWD/evil\"; touch -d 2001-01-01 f); \
         git -c core.fsmonitor= -c filter.x.process= -c advice.addEmbeddedRepo=false add sub || exit; \
         printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = none\\n' >.gitmodules; \
         echo more >>a.txt; git -c filter.x.process= add a.txt; touch -d 2001-01-01 .git/index; \
         echo planted"
    );
    run_in_clone(&it, &command);
    let said = tool_results(&it.team, "alice");
    assert!(said[0].1.ends_with("planted\n"), "{said:?}");
    let plan = it.team.team(&["undo", "alice", "--json"]);
    assert!(plan.out.contains("a.txt"), "{plan:?}");
    assert_eq!(fs::read_to_string(&mark).ok(), None, "{said:?}");
}
