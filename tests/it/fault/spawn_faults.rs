//! Spawns that the machine refuses, and programs that are replaced while a team runs.

use crate::support::child_process::write;
use crate::support::harness::{Team, copy_program, program};
use crate::support::scripts::{bash, calls, script, spawn, tool_results};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// A headless lead, started by a shell that sets limits first.
fn lead_below(team: &Team, limits: &str, model: &str) -> Command {
    let team_program = team.programs().join("team");
    let lead = format!("{} lead -p begin --model {model} --timeout 600", team_program.display());
    team.shell(&format!("{limits}; exec {lead}"))
}

/// Asserts that the roster and the inboxes contain no member that did not start.
#[track_caller]
fn assert_no_ghosts(team: &Team, output: &Output) {
    let results = tool_results(team, "lead");
    assert!(results.iter().any(|(_, _, error)| *error), "{output:?} {results:?}");
    for (i, (_, text, error)) in results.iter().enumerate() {
        let name = format!("a{i}");
        if *error {
            assert!(text.contains("could not be started"), "{text}");
            assert_eq!(team.status(&name), "absent", "{text}");
            let inbox = team.path(&format!("inbox/{name}.jsonl"));
            assert!(!inbox.exists(), "{text} {}", team.describe());
        } else {
            assert_eq!(team.status(&name), "shutdown", "{output:?}\n{}", team.describe());
        }
    }
    team.wait_no_process();
}

/// Writes the script of a lead that spawns this many teammates.
fn spawns(team: &Team, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("a{i}")).collect();
    let spawns: Vec<_> = names.iter().map(|name| spawn(name)).collect();
    script(team, &[calls("lead", &spawns)])
}

#[test]
fn a_spawn_without_descriptors_is_an_error_and_leaves_no_member() {
    let team = Team::new();
    let model = spawns(&team, 6);
    let mut lead = lead_below(&team, "ulimit -n 30", &model);
    let output = lead.output().unwrap();
    assert_no_ghosts(&team, &output);
}

#[test]
fn a_spawn_without_processes_is_an_error_and_leaves_no_member() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can become a user who runs nothing else");
        return;
    }
    let team = Team::of_copies();
    // One more than the limit leaves, even if each of them has only one thread.
    let model = spawns(&team, 14);
    let user = 60_000 + std::process::id() % 5000;
    chown(team.workspace(), Some(user), Some(user)).unwrap();
    let mut lead = lead_below(&team, "ulimit -u 14", &model);
    let output = lead.uid(user).gid(user).output().unwrap();
    assert_no_ghosts(&team, &output);
}

/// `cargo run` builds only `team`.
#[test]
fn the_program_alone_starts_teammates() {
    let team = Team::new();
    let folder = team.workspace().join("bin");
    fs::create_dir(&folder).unwrap();
    copy_program(&program("team"), &folder.join("team"));
    let lines = [calls("lead", &[spawn("alice")]), calls("alice", &[bash("touch worked")])];
    let model = script(&team, &lines);
    let lead = format!("{}/team lead -p begin --model {model}", folder.display());
    let output = team.shell(&lead).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(team.status("alice"), "shutdown", "{output:?} {}", team.describe());
    assert!(team.workspace().join("worked").exists(), "{}", team.describe());
    team.wait_no_process();
}

/// `lead` and `teammate` are `team` with a verb: with the same arguments, errors and exit codes, also by a link.
#[test]
fn the_short_programs_become_team_with_a_verb() {
    let team = Team::new();
    for verb in ["lead", "teammate"] {
        let long = team.command("team", &[verb, "--help"]).output().unwrap();
        let short = team.command(verb, &["--help"]).output().unwrap();
        assert_eq!((&short.stdout, &short.stderr), (&long.stdout, &long.stderr));
        assert!(String::from_utf8_lossy(&short.stdout).contains(&format!("team {verb}")));
        let wrong = team.command(verb, &["--no-such-option"]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
        let link = team.workspace().join(verb);
        std::os::unix::fs::symlink(program(verb), &link).unwrap();
        let linked = team.shell(&format!("./{verb} --help")).output().unwrap();
        assert_eq!(linked.stdout, long.stdout, "{linked:?}");
    }
}

#[test]
fn a_short_program_without_team_beside_it_is_a_clear_error() {
    let team = Team::new();
    let folder = team.workspace().join("bin");
    fs::create_dir(&folder).unwrap();
    copy_program(&program("lead"), &folder.join("lead"));
    let output = team.shell("bin/lead -p hi --model rehearsal").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.starts_with("lead: cannot start ") && said.contains("bin/team: "), "{said}");
    assert!(said.contains("`lead` needs `team` beside it"), "{said}");
}

/// A running team continues with the programs from which it was started.
#[test]
fn programs_may_be_replaced_or_removed_while_a_team_runs() {
    let team = Team::of_copies();
    let folder = team.programs().to_path_buf();
    let model = script(
        &team,
        &[
            calls("lead", &[bash("until [ -e go ]; do sleep 0.05; done"), spawn("bob")]),
            calls("bob", &[bash("echo done > bob.txt")]),
        ],
    );
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", &model]));
    lead.expect("/quit ends the team");
    lead.type_line("begin");
    crate::support::scripts::wait_tool(&team, "lead", "bash");
    // `team` is replaced, as by an upgrade; the others are removed.
    let new = folder.join("new");
    write(&new, "#!/bin/sh\nexit 66\n");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, folder.join("team")).unwrap();
    fs::remove_file(folder.join("teammate")).unwrap();
    fs::remove_file(folder.join("lead")).unwrap();
    write(&team.workspace().join("go"), "");
    crate::support::scripts::wait_file(&team, "bob.txt");
    team.wait_status("bob", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    crate::support::scripts::assert_left_in_order(&team);
}
