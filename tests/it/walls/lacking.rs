//! Machines that lack a wall: the lead does not start, or names the wall.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team, has_python};
use crate::support::machines::{calls_filter, refuse_calls};
use crate::support::scripts::{bash, calls, headless, script, scripted_lead, spawn, tool_results};
use crate::support::skips::skipped;
use nix::unistd::geteuid;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Whether commands of a team can be behind the walls of its level on this machine; reports a skip if not.
pub(crate) fn can_wall(team: &Team) -> bool {
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

/// Returns the version of Landlock of this kernel.
pub(super) fn landlock_version() -> i32 {
    let mut asked = Command::new("python3");
    asked.arg("-B").arg(calls_filter()).arg("--landlock");
    String::from_utf8(asked.output().unwrap().stdout).unwrap().trim().parse().unwrap()
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
    assert!(doctor.out.contains("signals: no: Landlock 3"), "{doctor:?}");
}

/// Runs a program of the team as on a machine without namespaces, as in many containers: as root of a user namespace that
/// may have no further one. Returns its exit code and what it printed.
fn confined(team: &Team, args: &[&str]) -> (Option<i32>, String) {
    let confined = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin \
                    --inh-caps=-sys_admin team \"$@\"";
    let mut command =
        team.shell("exec unshare --user --map-root-user bash -c \"$CONFINED\" team \"$@\"");
    command.env("CONFINED", confined).arg("team").args(args).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Whether namespaces can be taken away from a team; reports a skip if not.
fn can_confine(team: &Team) -> bool {
    let (code, said) = confined(team, &["--version"]);
    if code != Some(0) {
        skipped(&format!("namespaces cannot be taken away: {said} (uid {})", geteuid()));
    }
    code == Some(0)
}

#[test]
fn without_namespaces_a_team_folder_in_the_workspace_is_refused_and_a_hidden_one_is_not() {
    let team = Team::new();
    if !can_confine(&team) {
        return;
    }
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    let model = script(&team, &[calls("lead", &[bash("echo x >new || echo refused")])]);
    let lead = ["lead", "-p", "begin", "--model", &model];
    let (code, said) = confined(&team, &lead);
    assert_eq!(code, Some(2), "{said}");
    for part in ["namespaces: unshare: ENOSPC", ".team is in a writable folder", "cannot be kept"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without a writable workspace, rules alone hide the team folder.
    team.variable("TEAM_SANDBOX_LEVEL", "read-only");
    let (code, said) = confined(&team, &lead);
    assert_ne!(code, Some(2), "{said}");
    assert!(said.contains("lacks a wall"), "{said}");
    let results = tool_results(&team, "lead");
    assert!(results[0].1.ends_with("refused\n"), "{results:?} {said}");
}

/// Whether walls are the default; reports a skip if not.
fn is_default_on() -> bool {
    let settings = Team::new().team(&["config", "--json"]).expect(0).json()["settings"].clone();
    let level = settings.as_array().unwrap().iter().find(|row| row["key"] == "sandbox.level");
    let level = level.unwrap()["value"].as_str().unwrap().to_owned();
    if level == "off" {
        skipped("the default level has no walls");
    }
    level == "workspace"
}

/// The walls that stand and those that are missing, as the lead has published them.
fn published(team: &Team) -> (String, Vec<String>, Vec<String>) {
    let sandbox = team.team(&["ls", "--json"]).expect(0).json()["sandbox"].clone();
    let words = |key: &str| -> Vec<String> {
        let words = sandbox[key].as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    (sandbox["level"].as_str().unwrap().to_owned(), words("walls"), words("missing"))
}

/// Nobody has asked for the level, so the team runs with the walls that are left, and says so.
#[test]
fn the_default_level_runs_with_the_walls_that_the_machine_has() {
    let team = Team::new();
    if !is_default_on() || !can_confine(&team) {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    let commands = [
        format!("echo x >>{} || echo refused", file.display()),
        "test -r .team/config.json && echo reached".into(),
        "kill -0 $(cut -d' ' -f4 /proc/$PPID/stat) || echo refused".into(),
    ];
    let tools: Vec<_> = commands.iter().map(|command| bash(command)).collect();
    let model = script(&team, &[calls("lead", &tools)]);
    let (code, said) = confined(&team, &["lead", "-p", "begin", "--model", &model]);
    assert_ne!(code, Some(2), "{said}");
    let warning = said.lines().find(|line| line.starts_with("WARNING: not all walls")).unwrap();
    for part in
        ["team folder", "namespaces: unshare: ENOSPC", "read its mail", "refuses such a start"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let results: Vec<String> =
        tool_results(&team, "lead").into_iter().map(|(_, text, _)| text).collect();
    assert!(results[0].ends_with("refused\n") && !file.exists(), "{results:?}");
    assert_eq!(results[1], "reached\n");
    let (level, walls, missing) = published(&team);
    assert_eq!(level, "workspace");
    assert!(walls.contains(&"files".to_owned()) && walls.contains(&"sockets".to_owned()));
    assert_eq!(missing[0], "team folder", "{walls:?} {missing:?}");
    // An early Landlock has one wall less.
    assert_eq!(results[2].ends_with("refused\n"), walls.contains(&"signals".to_owned()));
}

/// A folder's settings may hide more without trust. Paths without which no command runs must not leave commands unwalled.
#[test]
fn hidden_paths_that_keep_walls_from_standing_end_the_start() {
    let team = Team::new();
    if !is_default_on() || !can_wall(&team) {
        return;
    }
    for (path, why) in [("/usr", "could not be started"), ("/", "whole")] {
        fs::create_dir_all(team.path("")).unwrap();
        write(&team.path("settings.toml"), format!("[sandbox]\nhide = [{path:?}]\n"));
        let said = refusal(&team);
        assert!(said.err.contains(why) && !said.err.contains("WARNING"), "{path}: {said:?}");
    }
}

/// Without namespaces and Landlock, nothing is left.
#[test]
fn the_default_level_is_off_where_the_machine_has_no_walls() {
    let team = Team::new();
    if !is_default_on() || !can_confine(&team) {
        return;
    }
    team.variable("TEAM_LANDLOCK_ABI", "0");
    let model = script(&team, &[calls("lead", &[bash("echo x >new && echo done")])]);
    let lead = ["lead", "-p", "begin", "--model", &model];
    let (code, said) = confined(&team, &lead);
    assert_ne!(code, Some(2), "{said}");
    let warning = said.lines().find(|line| line.starts_with("WARNING: no walls")).unwrap();
    for part in
        ["Landlock: ENOSYS", "namespaces: unshare: ENOSPC", "read your keys", "sandbox.level"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(tool_results(&team, "lead")[0].1, "done\n");
    assert_eq!(published(&team), ("off".to_owned(), vec![], vec![]));
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    let (code, said) = confined(&team, &lead);
    assert_eq!(code, Some(2), "{said}");
}

/// Without Landlock, namespaces alone still hide the team folder.
#[test]
fn without_landlock_the_default_level_runs_with_namespaces() {
    let team = Team::new();
    if !is_default_on() || !can_wall(&team) {
        return;
    }
    team.variable("TEAM_LANDLOCK_ABI", "0");
    fs::create_dir(team.workspace().join(".ssh")).unwrap();
    write(&team.workspace().join(".ssh/id"), "secret\n");
    let command = "echo x >>.team/inbox/lead.jsonl || cat .ssh/id || echo refused";
    let model = script(&team, &[calls("lead", &[bash(command)])]);
    let said = headless(&team, &model, "begin");
    assert!(said.err.contains("WARNING: not all walls"), "{said:?}");
    assert!(said.err.contains("signals (Landlock: ENOSYS"), "{said:?}");
    assert!(tool_results(&team, "lead")[0].1.ends_with("refused\n"));
    assert_eq!(published(&team).2, ["signals"]);
}

/// Files named after the attempts of the start, anywhere near the team.
fn leftovers(team: &Team) -> Vec<PathBuf> {
    let workspace = team.workspace();
    let hooks = workspace.join(".git/hooks");
    let folders = [workspace.parent().unwrap(), workspace, &team.path("inbox"), &hooks];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let paths = entries.map(|entry| entry.path());
    let is_one =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(".walls-");
    paths.filter(is_one).collect()
}

/// Each wall in turn is put up so that it does not hold. The attempts of the start get through it.
#[test]
fn a_wall_that_does_not_hold_is_found_by_an_attempt_to_get_through() {
    let team = Team::new();
    for folder in [".git/hooks", ".ssh"] {
        fs::create_dir_all(team.workspace().join(folder)).unwrap();
    }
    write(&team.workspace().join(".ssh/id"), "secret\n");
    team.variable("TEAM_SANDBOX_NETWORK", "off");
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    if !can_wall(&team) {
        return;
    }
    headless(&team, &script(&team, &[]), "begin");
    let walls = published(&team).1;
    let tried =
        ["files", "team folder", "secrets", "signals", "network", "git files", "temporary folders"];
    for wall in tried.into_iter().filter(|wall| walls.iter().any(|it| it == wall)) {
        team.team(&["clean", "--purge", "--yes"]);
        team.variable("TEAM_OPEN_WALL", wall);
        let said = refusal(&team);
        let broken = said.err.split("do not hold: ").nth(1).and_then(|text| text.split('.').next());
        let is_named = broken.is_some_and(|words| words.split(", ").any(|word| word == wall));
        assert!(is_named, "{wall}: {said:?}");
        team.eventually("no file is left", || leftovers(&team).is_empty());
        let doctor = team.team(&["doctor", "--json"]).expect(1);
        assert!(doctor.out.contains("do not hold"), "{wall}: {doctor:?}");
    }
    if is_default_on() {
        team.variable("TEAM_SANDBOX_LEVEL", "");
        team.variable("TEAM_OPEN_WALL", "secrets");
        let said = headless(&team, &script(&team, &[]), "begin");
        assert!(said.err.contains("WARNING: not all walls"), "{said:?}");
        assert!(said.err.contains("secrets (a test command got through it)"), "{said:?}");
        assert_eq!(published(&team).2, ["secrets"]);
    }
}

/// A living lead shows its walls to everybody.
#[test]
fn the_table_of_the_team_has_the_walls_that_the_lead_has_published() {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", "read-only");
    if !can_wall(&team) {
        return;
    }
    let mut lead = scripted_lead(&team, &[calls("lead", &[spawn("bob")])]);
    team.wait_status("bob", "idle");
    let listed = team.team(&["ls"]).expect(0).out;
    assert!(listed.starts_with("walls: read-only"), "{listed}");
    let all = team.team(&["ls", "--json"]).expect(0).json();
    assert_eq!(all["sandbox"]["level"], "read-only");
    assert_eq!(all["sandbox"], all["lead"]["sandbox"]);
    assert_eq!(all["sandbox"], all["members"][0]["sandbox"], "bob has the walls of the lead");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert!(!team.team(&["ls"]).expect(0).out.contains("walls:"), "nobody is left behind walls");
    let doctor = team.team(&["doctor", "--json"]).out;
    assert!(doctor.contains("team folder: yes"), "{doctor}");
}
