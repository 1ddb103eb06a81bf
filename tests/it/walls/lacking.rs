//! Machines that lack a wall: the lead does not start, or names the wall.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team, has_python};
use crate::support::scripts::{bash, calls, headless, script, tool_results};
use crate::support::skips::skipped;
use nix::unistd::geteuid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether commands of a team can be behind the walls of its level on this machine; reports a skip if not.
pub(super) fn can_wall(team: &Team) -> bool {
    let model = script(team, &[]);
    let tried = headless(team, &model, "begin");
    let is_refused = tried.code == Some(2) && tried.err.contains("cannot be kept");
    if is_refused {
        skipped(&format!("this machine lacks a wall: {}", tried.err.trim()));
    }
    team.team(&["clean", "--purge", "--yes"]);
    !is_refused
}

/// The name of the writable folder if the workspace is not writable.
pub(super) const WRITABLE: &str = "work";

/// Returns the program that refuses system calls.
fn calls_filter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/refuse_calls.py")
}

/// Returns the version of Landlock of this kernel.
pub(super) fn landlock_version() -> i32 {
    let mut asked = Command::new("python3");
    asked.arg("-B").arg(calls_filter()).arg("--landlock");
    String::from_utf8(asked.output().unwrap().stdout).unwrap().trim().parse().unwrap()
}

/// Has a filter refuse system calls to all programs of a team: `namespaces` or `landlock`.
pub(super) fn refuse_calls(team: &mut Team, what: &str) {
    let script = calls_filter();
    team.start_by(&["python3", "-B", &script.display().to_string(), what]);
}

/// Creates a team whose commands may write a folder beside that of the team, on a machine without namespaces. Returns
/// `None` if Landlock is older than asked for, or absent.
pub(super) fn team_without_namespaces(version: i32) -> Option<Team> {
    let found = landlock_version();
    if found < version {
        skipped(&format!("the kernel has version {found} of Landlock, not {version}"));
        return None;
    }
    let mut team = Team::new();
    refuse_calls(&mut team, "namespaces");
    let writable = team.workspace().join(WRITABLE);
    let config = team.workspace().join("user-settings");
    fs::create_dir(&writable).unwrap();
    fs::create_dir_all(config.join("team")).unwrap();
    let settings = format!("[sandbox]\nlevel = \"read-only\"\nwrite = [{writable:?}]\n");
    write(&config.join("team/settings.toml"), settings);
    team.variable("XDG_CONFIG_HOME", &config.display().to_string());
    team.variable("TEAM_LANDLOCK_ABI", &version.to_string());
    can_wall(&team).then_some(team)
}

fn refusal(team: &Team) -> CommandResult {
    let model = script(team, &[calls("lead", &[bash("touch ran")])]);
    let said = headless(team, &model, "begin").expect(2);
    assert!(!team.workspace().join("ran").exists());
    assert!(!team.path("transcript/lead.jsonl").exists(), "the lead has started");
    said
}

#[test]
fn without_landlock_a_lead_in_a_sandbox_does_not_start() {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    team.variable("TEAM_LANDLOCK_ABI", "0");
    let said = refusal(&team);
    for part in ["sandbox.level = \"workspace\" cannot be kept", "Landlock: ", "ENOSYS", "\"off\""]
    {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    let doctor = team.team(&["doctor", "--json"]).expect(1);
    assert!(doctor.out.contains("Landlock: ENOSYS"), "{doctor:?}");
}

/// A filter as that of a container that is older than Landlock.
#[test]
fn a_filter_that_refuses_landlock_keeps_a_lead_in_a_sandbox_from_starting() {
    if !has_python("a filter that refuses Landlock") {
        return;
    }
    let mut team = Team::new();
    refuse_calls(&mut team, "landlock");
    for level in ["workspace", "read-only"] {
        team.variable("TEAM_SANDBOX_LEVEL", level);
        let said = refusal(&team);
        for part in [&format!("sandbox.level = \"{level}\" cannot be kept"), "Landlock: EPERM"] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
    }
}

/// A filter as that of Docker: the team folder is in the writable workspace, which only namespaces can hide.
#[test]
fn a_filter_that_refuses_namespaces_keeps_the_level_workspace_from_starting() {
    if !has_python("a filter that refuses namespaces") {
        return;
    }
    if landlock_version() == 0 {
        return skipped("the kernel has no Landlock, which would be named first");
    }
    let mut team = Team::new();
    refuse_calls(&mut team, "namespaces");
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    let said = refusal(&team);
    for part in ["namespaces: unshare: EPERM", ".team is in a writable folder", "cannot be kept"] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
}

/// An early Landlock has no wall for signals, which is said at the start.
#[test]
fn a_wall_that_the_level_can_do_without_is_named() {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    if !can_wall(&team) {
        return;
    }
    team.variable("TEAM_LANDLOCK_ABI", "3");
    let model = script(&team, &[calls("lead", &[bash("echo up")])]);
    let said = headless(&team, &model, "begin");
    assert!(said.err.contains("lacks a wall") && said.err.contains("Landlock 3"), "{said:?}");
    assert_eq!(tool_results(&team, "lead")[0].1, "up\n");
    let doctor = team.team(&["doctor", "--json"]);
    assert!(doctor.out.contains("missing: signals"), "{doctor:?}");
}

/// A machine without namespaces, as in many containers: root of a user namespace that may have no further one.
#[test]
fn without_namespaces_a_team_folder_in_the_workspace_is_refused_and_a_hidden_one_is_not() {
    let confined = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin \
                    --inh-caps=-sys_admin team \"$@\"";
    let run = |team: &Team, args: &[&str]| {
        let mut command =
            team.shell("exec unshare --user --map-root-user bash -c \"$CONFINED\" team \"$@\"");
        command.env("CONFINED", confined).arg("team").args(args).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let team = Team::new();
    let (code, said) = run(&team, &["--version"]);
    if code != Some(0) {
        return skipped(&format!(
            "namespaces cannot be taken away here: {said} (uid {})",
            geteuid()
        ));
    }
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    let model = script(&team, &[calls("lead", &[bash("echo x >new || echo refused")])]);
    let lead = ["lead", "-p", "begin", "--model", &model];
    let (code, said) = run(&team, &lead);
    assert_eq!(code, Some(2), "{said}");
    for part in ["namespaces: unshare: ENOSPC", ".team is in a writable folder", "cannot be kept"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without a writable workspace, rules alone hide the team folder.
    team.variable("TEAM_SANDBOX_LEVEL", "read-only");
    let (code, said) = run(&team, &lead);
    assert_ne!(code, Some(2), "{said}");
    assert!(said.contains("lacks a wall"), "{said}");
    let results = tool_results(&team, "lead");
    assert!(results[0].1.ends_with("refused\n"), "{results:?} {said}");
}
