//! Files of git by which a command could have the next git command of the user run code, besides those that the table of
//! attacks has: what a command leaves is judged when it has ended.

use super::teams::{printed, walled_team};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::machines::refuse_calls;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, script, scripted_lead, wait_file,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Plants a file, and the folder in which the user runs `git status` then.
const PLANTED: [(&str, &str, &str); 5] = [
    ("commondir", "echo ../evil >.git/commondir", "."),
    ("a pipe", "mkfifo .git/commondir", "sub"),
    ("worktree", "echo $PWD/evil >.git/worktrees/wt/commondir", "wt"),
    ("config", "git config -f .git/config.worktree core.fsmonitor \"touch $PWD/ran; false\"", "."),
    (
        "module",
        "git config -f .git/modules/sub/config core.fsmonitor \"touch $PWD/ran; false\"; echo >.git/modules/sub/hooks/x",
        "sub",
    ),
];

fn git(folder: &Path, words: &[&str]) -> bool {
    let allow = ["-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b"];
    let mut git = Command::new("git");
    git.current_dir(folder).args(allow).args(words).stdin(std::process::Stdio::null());
    git.output().unwrap().status.success()
}

/// Makes the workspace a repository with a worktree, a submodule, and a configuration for each worktree.
fn make_repository(team: &Team) {
    let ws = team.workspace();
    let other = ws.join("other");
    fs::create_dir(&other).unwrap();
    for (folder, words) in [
        (&*other, &["init", "-q"][..]),
        (&other, &["commit", "-q", "--allow-empty", "-m", "one"]),
        (ws, &["init", "-q"]),
        (ws, &["submodule", "--quiet", "add", "./other", "sub"]),
        (ws, &["commit", "-q", "-m", "one"]),
        (ws, &["worktree", "add", "-q", "wt"]),
        (ws, &["config", "extensions.worktreeConfig", "true"]),
    ] {
        assert!(git(folder, words), "{words:?}");
    }
}

/// Has a command plant a file, and returns its output and whether the user's next `git status` ran what it names.
fn plant(team: &Team, command: &str, folder: &str) -> (String, bool) {
    make_repository(team);
    let evil =
        "cp -r .git evil && git config -f evil/config core.fsmonitor \"touch $PWD/ran; false\"";
    let model = script(team, &[calls("lead", &[bash(&format!("{evil}; {command}"))])]);
    headless(team, &model, "begin").expect(0);
    if command.starts_with("mkfifo") && team.workspace().join(".git/commondir").exists() {
        return (String::new(), true);
    }
    git(&team.workspace().join(folder), &["status"]);
    (printed(team, "lead").concat(), team.workspace().join("ran").exists())
}

#[test]
fn the_next_git_command_of_the_user_runs_nothing_that_a_command_has_planted() {
    for (name, command, folder) in PLANTED {
        let (said, has_run) = plant(&Team::without_walls(), command, folder);
        assert!(has_run, "{name} runs nothing without walls either: {said}");
        let Some(team) = walled_team("workspace") else { return };
        let (said, has_run) = plant(&team, command, folder);
        assert!(!has_run, "{name}: {said}");
        if name == "module" {
            assert!(
                said.contains("resource busy") && said.contains("Read-only file system"),
                "{said}"
            );
        } else {
            assert!(
                said.contains("\n[git: .git/") && said.contains(".quarantined]"),
                "{name}: {said}"
            );
        }
        let ws = team.workspace();
        for folder in [ws.to_owned(), ws.join("wt"), ws.join("sub")] {
            assert!(git(&folder, &["status"]), "{name}: {}", folder.display());
        }
    }
}

#[test]
fn what_an_interrupted_command_has_planted_is_quarantined() {
    let Some(team) = walled_team("workspace") else { return };
    make_repository(&team);
    let plant = "echo ../other/.git >.git/commondir; touch planted; sleep 1000";
    let mut lead = scripted_lead(&team, &[calls("lead", &[bash(plant)])]);
    wait_file(&team, "planted");
    lead.press("\u{3}");
    let planted = team.workspace().join(".git/commondir");
    team.eventually("it is renamed", || !planted.exists());
    assert!(team.workspace().join(".git/commondir.quarantined").exists());
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// A team folder can be named by a path with a link in it.
#[test]
fn a_workspace_that_is_named_by_a_link_has_the_same_walls() {
    let Some(team) = walled_team("workspace") else { return };
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("link");
    symlink(team.workspace(), &link).unwrap();
    make_repository(&team);
    team.variable("TEAM_DIR", &link.join(".team").display().to_string());
    let tries = "echo x >.git/hooks/pre-commit; git config core.fsmonitor false; \
                 echo x >>.team/inbox/lead.jsonl; cat .team/transcript/lead.jsonl; echo new >new && cat new";
    headless(&team, &script(&team, &[calls("lead", &[bash(tries)])]), "begin").expect(0);
    let said = printed(&team, "lead").concat();
    assert!(said.ends_with("new\n") && !said.contains("incarnation"), "{said}");
    for refusal in ["pre-commit: Read-only", "config: Device or resource busy"] {
        assert!(said.contains(refusal), "{refusal}: {said}");
    }
    assert!(!team.workspace().join(".git/hooks/pre-commit").exists());
}

/// A command could put a link to a folder of the user in the place of a writable one in the workspace.
#[test]
fn a_writable_path_in_the_workspace_gives_no_access_by_a_link() {
    for has_namespaces in [true, false] {
        let mut team = Team::new();
        if !has_namespaces {
            refuse_calls(&mut team, "namespaces");
        }
        // A temporary folder is private behind namespaces, so that nothing could be seen there.
        let folders =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir());
        let folders = folders.unwrap();
        let (config, victim) = (folders.path().join("config/team"), folders.path().join("victim"));
        fs::create_dir_all(&config).unwrap();
        fs::create_dir(&victim).unwrap();
        let swapped = team.workspace().join("swapped");
        write(&config.join("settings.toml"), format!("[sandbox]\nwrite = [{swapped:?}]\n"));
        team.variable("XDG_CONFIG_HOME", &folders.path().join("config").display().to_string());
        let plant = format!("ln -s {} swapped; ls -d swapped", victim.display());
        let tools = [bash(&plant), bash("echo x >swapped/out; echo y >own && cat own")];
        headless(&team, &script(&team, &[calls("lead", &tools)]), "begin").expect(0);
        let said = printed(&team, "lead");
        assert_eq!((&*said[0], said[1].ends_with("y\n")), ("swapped\n", true), "{said:?}");
        assert!(!victim.join("out").exists(), "namespaces {has_namespaces}: {said:?}");
    }
}

/// The user keeps a configuration that was there, and commands their worktrees and submodules.
#[test]
fn worktrees_and_submodules_of_commands_are_left_alone() {
    let Some(team) = walled_team("workspace") else { return };
    make_repository(&team);
    let ws = team.workspace();
    assert!(git(ws, &["config", "--worktree", "user.name", "the user"]));
    let commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m";
    let work = format!(
        "git worktree add -q mine && {commit} two && cd sub && {commit} three && cd ../mine && {commit} four && \
         cd .. && git worktree remove mine && git config user.name && echo worked"
    );
    headless(&team, &script(&team, &[calls("lead", &[bash(&work)])]), "begin").expect(0);
    let said = printed(&team, "lead").concat();
    assert!(said.ends_with("the user\nworked\n") && !said.contains("[git"), "{said}");
}
