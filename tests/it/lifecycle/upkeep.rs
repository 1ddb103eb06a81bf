//! Long lives: ended tasks are archived, logs are rotated, earlier sessions are indexed and removed by the settings, and a
//! kill in the middle of each of it loses nothing.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{assert_left_in_order, lead};
use crate::support::terminal::{ANY_SIZE, Terminal};
use agent_team::store::{Clock, SystemClock};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The number of ended tasks that stay in the list's folder.
const TASKS_KEPT: usize = 100;

/// The size at which a log is rotated.
const FULL_LOG: usize = 10 * 1024 * 1024;

fn quit(team: &Team, mut lead: Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

/// Makes a team folder in which a lead has run.
fn used_team() -> Team {
    let team = Team::new();
    quit(&team, lead(&team, "rehearsal"));
    team
}

/// Starts a lead that is killed at this failpoint.
fn kill_at(team: &Team, point: &str) {
    let token = team.workspace().join("token");
    fs::File::create(&token).unwrap();
    team.variable("TEAM_FAILPOINTS", &format!("lead/{point}={}", token.display()));
    let command = team.command("team", &["lead", "--new", "--model", "rehearsal"]);
    let mut lead = Terminal::of_size(command, ANY_SIZE);
    assert_eq!(lead.wait().signal(), Some(9), "{point}: {}", lead.screen());
    assert!(!token.exists(), "{point}");
}

fn names_in(team: &Team, folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(team.path(folder)).into_iter().flatten().flatten();
    entries
        .filter(|it| it.path().is_file())
        .map(|it| it.file_name().into_string().unwrap())
        .collect()
}

fn tasks_shown(team: &Team, args: &[&str]) -> Vec<String> {
    let listed = team.team(&[&["task", "ls", "--json"], args].concat()).expect(0).json();
    assert_eq!(listed["problems"], json!([]));
    let tasks = listed["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// All tasks are in one of both folders after a kill and at the end, and a task that was archived is shown, waited for and
/// reopened.
#[test]
fn ended_tasks_are_archived_through_a_kill_and_can_be_used() {
    let team = used_team();
    let last = TASKS_KEPT + 5;
    for id in 1..=last {
        let status = if id == 4 { "failed" } else { "completed" };
        let task = json!({"subject": format!("task {id}"), "status": status, "updated_at": id});
        write(&team.path(&format!("tasks/{id}.json")), task.to_string());
    }
    kill_at(&team, "upkeep.archived+1");
    let (listed, archived) = (names_in(&team, "tasks"), names_in(&team, "tasks/.archive"));
    assert_eq!((listed.len(), archived.len()), (last - 2, 2), "{listed:?} {archived:?}");
    let running = lead(&team, "rehearsal");
    team.eventually("the rest is archived", || names_in(&team, "tasks/.archive").len() == 5);
    quit(&team, running);
    let all: Vec<String> = (1..=last).map(|id| id.to_string()).collect();
    assert_eq!((tasks_shown(&team, &[]), tasks_shown(&team, &["--all"])), (all[5..].into(), all));
    let text = team.team(&["task", "ls"]).expect(0).out;
    assert!(text.contains("earlier tasks that have ended: team task ls --all"), "{text}");
    assert!(!team.team(&["task", "ls", "--all"]).expect(0).out.contains("earlier tasks"));
    assert!(team.team(&["task", "show", "2"]).expect(0).out.contains("task 2: task 2"));
    let next = team.team(&["task", "add", "the next", "--after", "3"]).expect(0).out;
    assert_eq!(next.trim(), (last + 1).to_string(), "no id is used twice");
    let claimable = team.team(&["task", "show", next.trim(), "--json"]).expect(0).json();
    assert_eq!(claimable["claimable"], true, "task 3 is completed: {claimable}");
    team.team(&["task", "reopen", "4"]).expect(0);
    assert!(names_in(&team, "tasks").contains("4.json"));
    assert!(!names_in(&team, "tasks/.archive").contains("4.json"));
}

fn line(value: &Value) -> String {
    value.to_string() + "\n"
}

/// Writes an earlier session of the lead, last used so many days ago: a prompt, a call that sends a message, and the
/// answer to it.
fn earlier_session(team: &Team, number: u32, days: u64) -> PathBuf {
    let path = team.path(&format!("transcript/archive/lead-{number:06}.jsonl"));
    let usage = json!({"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0});
    let call = json!({"type": "tool_use", "id": format!("call-{number}"), "name": "send_message",
        "input": {"to": "bob", "content": "hi"}});
    let answer = json!({"type": "message", "from": "bob", "to": "lead", "content": "done",
        "timestamp": 5.0, "id": format!("bob:answer-{number}")});
    let lines = [
        json!({"kind": "session", "at": 1.0, "incarnation": format!("incarnation-{number:08}"),
            "pid": 1, "model": "rehearsal"}),
        json!({"kind": "user", "at": 2.0, "content": format!("prompt {number}")}),
        json!({"kind": "assistant", "at": 3.0, "blocks": [call], "stop_reason": "tool_use",
            "usage": usage, "model": "m"}),
        json!({"kind": "tool_result", "at": 4.0, "tool_use_id": format!("call-{number}"),
            "content": "sent", "is_error": false}),
        json!({"kind": "mail", "at": 6.0, "gen": format!("{number:012}-00000000"), "offset": 0,
            "message": answer}),
        json!({"kind": "turn_end", "at": 7.0, "outcome": "done", "rounds": 1}),
    ];
    write(&path, lines.iter().map(line).collect::<Vec<_>>().concat());
    let now = Duration::from_secs_f64(SystemClock.now().as_secs());
    let used = SystemTime::UNIX_EPOCH + now - Duration::from_secs(days * 24 * 3600);
    fs::File::options().append(true).open(&path).unwrap().set_modified(used).unwrap();
    path
}

/// Returns all that the commands show of the earlier sessions, without the times that pass meanwhile.
fn shown(team: &Team) -> Vec<Value> {
    let out = |done: CommandResult| done.expect(0).json();
    let mut shown = vec![out(team.team(&["sessions", "--json"]))];
    for id in ["lead:call-2", "bob:answer-3", "answer-1"] {
        shown.push(out(team.team(&["trace", id, "--json"])));
    }
    shown
}

/// An index changes nothing that is shown, whether it is there, half made, stale, or damaged.
#[test]
fn the_index_of_earlier_sessions_shows_what_they_say() {
    let team = used_team();
    let paths: Vec<PathBuf> =
        (1..=4).map(|number| earlier_session(&team, number, number.into())).collect();
    let before = shown(&team);
    assert_eq!(before[1]["events"].as_array().unwrap().len(), 2, "{:#}", before[1]);
    kill_at(&team, "upkeep.indexed+1");
    assert_eq!(names_in(&team, "run/.state/index").len(), 2);
    assert_eq!(shown(&team), before);
    let running = lead(&team, "rehearsal");
    let index = || names_in(&team, "run/.state/index");
    team.eventually("all are indexed", || index().len() == 4);
    quit(&team, running);
    assert_eq!(shown(&team), before);
    team.team(&["trace", "lead:call-9"]).expect(1);
    // A session that was changed by hand is read itself; so is one whose index is damaged.
    let text = fs::read_to_string(&paths[0]).unwrap();
    write(&paths[0], text.replace("prompt 1", "prompt 7"));
    write(&team.path("run/.state/index/lead-000002"), "damaged");
    let titles = |shown: &Value| {
        let sessions = shown["sessions"].as_array().unwrap().iter();
        sessions.map(|it| it["title"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let now = shown(&team);
    assert!(titles(&now[0]).contains("prompt 7") && titles(&now[0]).contains("prompt 2"));
    assert_eq!(now[1..], before[1..]);
    // The index of a session that is gone is removed.
    fs::remove_file(&paths[3]).unwrap();
    let running = lead(&team, "rehearsal");
    team.eventually("its index is removed", || !index().contains("lead-000004"));
    quit(&team, running);
}

/// Sessions are kept without a setting. With one, the oldest are removed, through a kill, and the last ones stay.
#[test]
fn earlier_sessions_are_removed_only_by_a_setting_of_the_user() {
    let team = used_team();
    for (number, days) in [(1, 400), (2, 30), (3, 300), (4, 200), (5, 100)] {
        earlier_session(&team, number, days);
    }
    let there = || names_in(&team, "transcript/archive");
    let running = lead(&team, "rehearsal");
    team.eventually("all are indexed", || names_in(&team, "run/.state/index").len() == 5);
    quit(&team, running);
    assert_eq!(there().len(), 5);
    // A folder's own setting has no effect without trust.
    write(&team.path("settings.toml"), "[retention]\nsessions_days = 1\n");
    let told = team.team(&["doctor"]).out;
    assert!(
        told.contains("storage: 5 earlier sessions") && told.contains("kept without a limit"),
        "{told}"
    );
    team.variable("TEAM_RETENTION_SESSIONS_DAYS", "60");
    assert!(team.team(&["doctor"]).out.contains("kept for 60 days"));
    kill_at(&team, "upkeep.removed");
    assert_eq!(there().len(), 4, "{:?}", there());
    let running = lead(&team, "rehearsal");
    team.eventually("the old ones are removed", || there().len() == 2);
    quit(&team, running);
    let left: Vec<String> = there().into_iter().collect();
    assert_eq!(left, ["lead-000002.jsonl", "lead-000005.jsonl"], "the last one stays");
    let removed = team.lines("log/lead.jsonl").into_iter().filter(|line| {
        line["message"]
            .as_str()
            .is_some_and(|it| it.starts_with("an earlier conversation was removed"))
    });
    assert_eq!(removed.count(), 2, "the kill came before the line about the first one");
    assert_eq!(names_in(&team, "run/.state/index").len(), 2);
}

#[test]
fn a_full_log_is_rotated_through_a_kill() {
    let team = used_team();
    let full = |mark: &str| line(&json!({"message": mark})) + &"x".repeat(FULL_LOG) + "\n";
    write(&team.path("log/lead.jsonl"), full("first"));
    kill_at(&team, "upkeep.rotated");
    assert_eq!(names_in(&team, "log/.old").len(), 0);
    for number in 1..=2 {
        quit(&team, lead(&team, "rehearsal"));
        assert_eq!(names_in(&team, "log/.old").len(), number);
        write(&team.path("log/lead.jsonl"), full("second"));
    }
    let begins = |file: &str| fs::read_to_string(team.path(file)).unwrap()[..20].to_owned();
    assert!(begins("log/.old/lead-2.jsonl").contains("first"));
    assert!(begins("log/.old/lead-1.jsonl").contains("second"));
}
