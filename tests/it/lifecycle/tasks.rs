//! The task list as seen from outside: `team task`, claims by several processes, killed owners, damaged files.

use crate::support::child_process::{ChildProcess, Job, start, start_armed, was_killed, write};
use crate::support::harness::{CommandResult, Team};
use agent_team::store::tasks::TaskList;
use agent_team::store::{Fsync, TeamDir};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

fn team() -> (Team, TeamDir) {
    let team = Team::new();
    let dir = TeamDir::create(&team.path("")).unwrap();
    (team, dir)
}

fn task(team: &Team, id: &str) -> Value {
    let text = fs::read_to_string(team.path(&format!("tasks/{id}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn add(team: &Team, words: &[&str]) -> String {
    let ran = team.team(&[&["task", "add"], words].concat()).expect(0);
    ran.out.trim().to_owned()
}

fn live(dir: &TeamDir, name: &str) -> ChildProcess {
    let mut child = start(dir, Job::Live { name: name.into() });
    assert_eq!(child.read_line(), "won");
    child
}

fn events(task: &Value) -> Vec<String> {
    let history = task["history"].as_array().unwrap().iter();
    history.map(|event| event["what"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn refused(ran: CommandResult, words: &[&str]) {
    let ran = ran.expect(1);
    assert!(ran.err.contains("why:") && ran.err.contains("now:"), "{ran:#?}");
    assert!(words.iter().all(|word| ran.err.contains(word)) && ran.out.is_empty(), "{ran:#?}");
}

#[test]
fn a_person_keeps_the_list() {
    let (team, _dir) = team();
    assert!(team.team(&["task", "ls"]).expect(0).out.contains("no tasks yet"));
    assert_eq!(add(&team, &["write the schema", "--description", "users and\norders"]), "1");
    assert_eq!(add(&team, &["fill it", "--after", "1"]), "2");
    assert_eq!(add(&team, &["--after", "1", "2", "check it"]), "3");
    let seen = team.team(&["task", "ls", "--json"]).expect(0).json();
    assert_eq!(seen["schema"], 1);
    let claimable: Vec<&Value> =
        seen["tasks"].as_array().unwrap().iter().map(|task| &task["claimable"]).collect();
    assert_eq!(claimable, [true, false, false]);
    assert!(team.team(&["task", "ls"]).expect(0).out.contains("waits for 1, 2"));

    refused(team.team(&["task", "claim", "2"]), &["task 2 waits for 1 (pending)"]);
    refused(team.team(&["task", "done", "3"]), &["task 3 waits for 1 (pending), 2 (pending)"]);
    team.team(&["task", "claim", "1"]).expect(0);
    assert_eq!(task(&team, "1")["owner"], "user");
    assert_eq!(task(&team, "1")["lease"], Value::Null, "the person needs no lease");
    let done = team.team(&["task", "done", "1", "--json"]).expect(0).json();
    assert_eq!((&done["status"], &done["ready"]), (&json!("completed"), &json!(["2"])));
    refused(team.team(&["task", "fail", "1"]), &["task 1 is completed already"]);
    team.team(&["task", "fail", "2"]).expect(0);
    refused(team.team(&["task", "claim", "3"]), &["2 (failed)", "reopen"]);
    team.team(&["task", "cancel", "3"]).expect(0);
    let shown = team.team(&["task", "show", "1"]).expect(0).out;
    for part in ["write the schema", "users and", "completed by user"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(events(&task(&team, "1")), ["created", "claimed", "completed"]);
    assert_eq!(team.team(&["task", "show", "3", "--json"]).expect(0).json()["status"], "cancelled");

    refused(team.team(&["task", "show", "9"]), &["no task 9", "1, 2, 3"]);
    refused(team.team(&["task", "add", "x", "--after", "9"]), &["no task 9"]);
    refused(team.team(&["task", "add", "x", "--owner", "zoe"]), &["zoe", "lead, user"]);
    refused(team.team(&["task", "add", " "]), &["subject"]);
    refused(team.team(&["task", "claim", "2", "--as", "alice"]), &["alice is not running"]);
    team.team(&["task", "show", "../1"]).expect(1);
    team.team(&["task", "add"]).expect(2);
    assert!(!team.path("tasks/4.json").exists(), "what was refused made nothing");
}

/// No id is used twice, even if files or the counter are lost.
#[test]
fn ids_are_never_used_twice() {
    let (team, _dir) = team();
    assert_eq!(add(&team, &["one"]), "1");
    assert_eq!(add(&team, &["two"]), "2");
    fs::remove_file(team.path("tasks/2.json")).unwrap();
    assert_eq!(add(&team, &["three"]), "3");
    for file in fs::read_dir(team.path("tasks")).unwrap().flatten() {
        drop(fs::remove_file(file.path()));
    }
    assert_eq!(add(&team, &["four"]), "4");
    write(&team.path("tasks/40.json"), r#"{"subject":"by hand"}"#);
    assert_eq!(add(&team, &["five"]), "41");
    fs::remove_file(team.path("tasks/41.json")).unwrap();
    fs::remove_file(team.path("run/.state/tasks.last")).unwrap();
    assert_eq!(add(&team, &["six"]), "41", "without a counter the files tell");
}

#[test]
fn damaged_files_are_named_and_block_no_member() {
    let (team, _dir) = team();
    assert_eq!(add(&team, &["good"]), "1");
    assert_eq!(add(&team, &["waits", "--after", "1"]), "2");
    write(&team.path("tasks/1.json"), "{ torn");
    write(&team.path("tasks/7.json"), r#"{"subject":"later","mood":"good","version":1}"#);
    write(&team.path("tasks/8.json"), r#"{"version":2,"subject":"of the future"}"#);
    write(&team.path("tasks/notes.txt"), "not ours");
    symlink("/etc/passwd", team.path("tasks/9.json")).unwrap();
    fs::create_dir(team.path("tasks/10.json")).unwrap();
    let seen = team.team(&["task", "ls", "--json"]).expect(0).json();
    let files: Vec<&str> =
        seen["problems"].as_array().unwrap().iter().map(|p| p["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["1.json", "10.json", "9.json"]);
    assert_eq!(seen["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(fs::read_to_string(team.path("tasks/1.json")).unwrap(), "{ torn");

    team.team(&["task", "claim", "7"]).expect(0);
    assert_eq!(task(&team, "7")["mood"], "good", "what is unknown is kept");
    let aside = fs::read_to_string(team.path("tasks/1.json.bad-1")).unwrap();
    assert_eq!(aside, "{ torn", "a writer puts a damaged file beside");
    refused(team.team(&["task", "claim", "2"]), &["1 (which does not exist)"]);
    refused(team.team(&["task", "claim", "8"]), &["format version 2"]);
    let warned = team.team(&["task", "ls"]).expect(0);
    for word in ["1.json.bad-1", "9.json", "10.json"] {
        assert!(warned.err.contains(word), "{warned:#?}");
    }
    assert_eq!(add(&team, &["next"]), "11", "nobody takes over the number of a bad file");
    assert_eq!(fs::read_link(team.path("tasks/9.json")).unwrap().to_str(), Some("/etc/passwd"));
}

#[test]
fn of_eight_concurrent_claims_one_succeeds() {
    let (team, dir) = team();
    let names: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
    let _lives: Vec<ChildProcess> = names.iter().map(|name| live(&dir, name)).collect();
    for round in 1..=5 {
        let id = add(&team, &["wanted"]);
        assert_eq!(id, round.to_string());
        let claims: Vec<_> =
            names.iter().map(|name| team.start(&["task", "claim", &id, "--as", name])).collect();
        let ended: Vec<_> =
            claims.into_iter().map(|claim| claim.wait_with_output().unwrap()).collect();
        let winners: Vec<_> = (0..8).filter(|at| ended[*at].status.code() == Some(0)).collect();
        assert_eq!(winners.len(), 1, "{ended:?}");
        assert_eq!(task(&team, &id)["owner"], names[winners[0]].as_str());
        for (at, lost) in ended.iter().enumerate().filter(|(at, _)| *at != winners[0]) {
            let said = String::from_utf8_lossy(&lost.stderr);
            assert!(said.contains(&format!("is {}'s", names[winners[0]])), "{at}: {said}");
        }
        assert_eq!(events(&task(&team, &id)), ["created", "claimed"]);
    }
}

#[test]
fn a_claim_ends_with_its_owner() {
    let (team, dir) = team();
    add(&team, &["work"]);
    let mut alice = live(&dir, "alice");
    team.team(&["task", "claim", "1", "--as", "alice"]).expect(0);
    team.team(&["task", "ls"]).expect(0);
    assert_eq!(task(&team, "1")["status"], "in_progress");
    alice.kill();
    let seen = team.team(&["task", "ls", "--json"]).expect(0).json();
    assert_eq!(seen["tasks"][0]["status"], "pending");
    let free = task(&team, "1");
    assert_eq!((&free["owner"], &free["lease"]), (&Value::Null, &Value::Null));
    let last = free["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["what"], &last["by"], &last["owner"], &last["note"]),
        (&json!("released"), &json!("system"), &json!("alice"), &json!("alice is gone"))
    );
    let _bob = live(&dir, "bob");
    team.team(&["task", "claim", "1", "--as", "bob"]).expect(0);
    assert_eq!(events(&task(&team, "1")), ["created", "claimed", "released", "claimed"]);
}

/// A new incarnation of a member does not hold the claims of the previous one.
#[test]
fn a_claim_is_not_inherited() {
    let (team, dir) = team();
    add(&team, &["work"]);
    let mut alice = live(&dir, "alice");
    team.team(&["task", "claim", "1", "--as", "alice"]).expect(0);
    alice.kill();
    let _alice = live(&dir, "alice");
    let seen = team.team(&["task", "ls", "--json"]).expect(0).json();
    assert_eq!(seen["tasks"][0]["status"], "pending", "{seen}");
}

/// A killed writer leaves no half-written task, causes no repeated id, and does not block the next writer.
#[test]
fn a_writer_killed_at_any_failpoint_does_no_harm() {
    for (point, made, next) in
        [("tasks.locked", false, "2"), ("tasks.counted", false, "3"), ("tasks.stored", true, "3")]
    {
        let (_team, dir) = team();
        let mut first = start(&dir, Job::AddTasks { times: 1 });
        assert_eq!(first.read_line(), "1");
        assert!(first.wait().success());
        let armed = format!("{point}:1");
        let mut child = start_armed(&dir, Job::AddTasks { times: 1 }, Some((&armed, 1)));
        assert!(was_killed(child.wait()), "{point}");
        let mut list = TaskList::of(&dir, Fsync::Never);
        list.look().unwrap();
        assert_eq!(
            (list.board().len(), list.problems()),
            (1 + usize::from(made), &[][..]),
            "{point}"
        );
        assert_eq!(start(&dir, Job::AddTasks { times: 1 }).read_line(), next, "{point}");
    }
}

#[test]
fn only_the_temporary_file_of_a_killed_writer_is_removed() {
    let (_team, dir) = team();
    let [unfinished, foreign] = [".7.json.new", ".7.json.swp"].map(|name| dir.tasks().join(name));
    for path in [&unfinished, &foreign] {
        write(path, "{");
    }
    let mut list = TaskList::of(&dir, Fsync::Never);
    list.look().unwrap();
    assert!(unfinished.exists(), "who looks changes nothing");
    assert_eq!(start(&dir, Job::AddTasks { times: 1 }).read_line(), "1");
    assert!(!unfinished.exists() && foreign.exists());
}

#[test]
fn no_id_is_given_twice_between_processes() {
    let (_team, dir) = team();
    let mut children: Vec<ChildProcess> =
        (0..8).map(|_| start(&dir, Job::AddTasks { times: 25 })).collect();
    let mut given: Vec<u32> = children
        .iter_mut()
        .flat_map(|child| (0..25).map(|_| child.read_line().parse().unwrap()).collect::<Vec<u32>>())
        .collect();
    given.sort_unstable();
    assert!(given.into_iter().eq(1..=200));
}
