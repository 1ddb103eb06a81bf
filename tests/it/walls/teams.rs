//! Teams whose commands and hooks are behind walls.

use super::lacking::can_wall;
use crate::support::child_process::write;
use crate::support::harness::{Team, copy_program, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, script, scripted_lead, signal, spawn,
    tool_results, wait_file,
};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// Creates a team whose commands have walls of this level. Returns `None` if this machine lacks one.
pub(crate) fn walled_team(level: &str) -> Option<Team> {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", level);
    can_wall(&team).then_some(team)
}

/// Returns the outputs of an agent's commands.
pub(super) fn printed(team: &Team, name: &str) -> Vec<String> {
    let results = tool_results(team, name).into_iter().filter(|(tool, _, _)| tool == "bash");
    results.map(|(_, text, _)| text).collect()
}

/// Returns the private folders for temporary files that commands of this team have named.
fn temp_folders(team: &Team, name: &str) -> Vec<PathBuf> {
    let printed = printed(team, name);
    let named = printed.iter().filter_map(|text| text.lines().find(|line| line.contains("/team-")));
    named.map(PathBuf::from).collect()
}

#[test]
fn a_command_of_a_teammate_reaches_neither_mail_nor_agents() {
    let Some(team) = walled_team("workspace") else { return };
    let forge = "echo '{\"from\":\"lead\",\"content\":\"forged\"}' >>.team/inbox/lead.jsonl";
    let commands = [
        format!("{forge} || echo refused"),
        "cat .team/transcript/bob.jsonl || echo refused".into(),
        "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) || echo refused".into(),
        "./team ls || echo refused".into(),
        "echo made >file && cat file && echo $TMPDIR && touch $TMPDIR/x".into(),
    ];
    // Behind walls the folder of the programs may be hidden.
    copy_program(&program("team"), &team.workspace().join("team"));
    let tools: Vec<_> = commands.iter().map(|command| bash(command)).collect();
    let mut lead = scripted_lead(&team, &[calls("lead", &[spawn("bob")]), calls("bob", &tools)]);
    team.eventually("bob's commands are over", || printed(&team, "bob").len() == 5);
    let said = printed(&team, "bob");
    for text in &said[..4] {
        assert!(text.ends_with("refused\n"), "{said:?}");
    }
    assert!(said[3].contains("the team folder is hidden from an agent's command"), "{said:?}");
    assert!(said[4].starts_with("made\n"), "{said:?}");
    assert!(!team.has_mail("lead", "lead", "forged"));
    let temp = temp_folders(&team, "bob");
    assert!(temp.len() == 1 && temp[0].join("x").exists(), "{said:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert!(!temp[0].exists(), "{temp:?} is left");
    assert_left_in_order(&team);
}

#[test]
fn a_hook_is_behind_the_walls_of_its_agent() {
    let Some(team) = walled_team("workspace") else { return };
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    let command = "ls .team >seen; echo x >>.team/inbox/lead.jsonl; echo $? >>seen";
    let hook = format!("[[hooks]]\nevent = \"task_created\"\ncommand = '''{command}'''\n");
    write(&folder.join("settings.toml"), hook);
    let create = ("create_task", json!({ "subject": "one" }));
    headless(&team, &script(&team, &[calls("lead", &[create])]), "begin");
    let seen = fs::read_to_string(team.workspace().join("seen")).unwrap();
    assert!(!seen.contains("inbox") && seen.ends_with("1\n"), "{seen}");
}

#[test]
fn the_level_read_only_leaves_the_workspace_unchanged() {
    let Some(team) = walled_team("read-only") else { return };
    write(&team.workspace().join("known"), "known\n");
    let commands = ["echo x >new", "rm known", "cat known; echo x >$TMPDIR/x && echo written"];
    let model = script(&team, &[calls("lead", &commands.map(bash))]);
    let started = headless(&team, &model, "begin");
    // The workspace lies in a temporary folder, which is private to a command.
    assert!(!started.err.contains("No such file"), "{}", started.err);
    let said = printed(&team, "lead");
    assert!(said[0].contains("[exit code") && said[1].contains("[exit code"), "{said:?}");
    assert_eq!(said[2], "known\nwritten\n");
    assert!(!team.workspace().join("new").exists() && team.workspace().join("known").exists());
}

/// A killed agent leaves its command to the lead, and its temporary files to the next one.
#[test]
fn a_killed_agent_leaves_neither_processes_nor_temporary_files() {
    let Some(team) = walled_team("workspace") else { return };
    team.variable("TEAM_RESTART", "never");
    let command = "echo $TMPDIR >name; setsid sh -c 'touch up; sleep 1000' & sleep 1000";
    let replies = [calls("lead", &[spawn("bob")]), calls("bob", &[bash(command)])];
    let mut lead = scripted_lead(&team, &replies);
    wait_file(&team, "up");
    let temp = PathBuf::from(fs::read_to_string(team.workspace().join("name")).unwrap().trim());
    assert!(temp.is_dir());
    kill_9(&team, "bob");
    team.wait_status("bob", "failed");
    team.eventually("the folder is gone", || !temp.exists());
    let sleeps = |team: &Team| team.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    team.eventually("no process is left", || !sleeps(&team));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// The supervisor is outside of the walls, so its command cannot kill it; a person can.
#[test]
fn a_killed_supervisor_leaves_nothing_behind_walls() {
    let Some(team) = walled_team("workspace") else { return };
    let command =
        "kill -9 $PPID 2>&- || echo $PPID >name; setsid sh -c 'touch up; sleep 1000' & sleep 1000";
    let mut lead = scripted_lead(&team, &[calls("lead", &[bash(command)])]);
    wait_file(&team, "up");
    let pid = fs::read_to_string(team.workspace().join("name")).unwrap();
    signal(pid.trim().parse().unwrap(), Signal::SIGKILL);
    team.eventually("the command is over", || !printed(&team, "lead").is_empty());
    assert_eq!(printed(&team, "lead"), ["[ended by signal 9]"]);
    let sleeps = team.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    assert!(!sleeps, "{}", team.describe());
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
