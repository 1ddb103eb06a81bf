//! The roster: many writers, damaged files, newer versions, and many processes that start under one name.

use crate::support::child_process::{
    ChildProcess, Job, start, start_armed, team, was_killed, write,
};
use crate::support::harness::Team;
use agent_team::store::liveness::{LifeLock, LifeRecord};
use agent_team::store::roster::{effective_status, read, update};
use agent_team::store::{Fsync, Liveness, StoreError, TeamDir};
use agent_team::wire::roster::{Member, Roster, Status};
use agent_team::wire::{AgentName, WithUnknownFields};
use std::fs;

fn join(dir: &TeamDir, name: &str) {
    let member = Member { name: name.into(), status: Status::Idle, ..Member::default() };
    update(dir, Fsync::Always, |roster| roster.members.push(member.into())).unwrap();
}

fn names(dir: &TeamDir) -> Vec<String> {
    read(dir).unwrap().members.iter().map(|member| member.name.clone()).collect()
}

#[test]
fn no_update_is_lost_between_processes() {
    let (_folder, dir) = team();
    join(&dir, "alice");
    let mut children: Vec<ChildProcess> =
        (0..8).map(|_| start(&dir, Job::Count { times: 200 })).collect();
    while !children.iter_mut().all(ChildProcess::is_over) {
        assert_eq!(names(&dir), ["alice"], "a reader sees the old roster or the new one");
    }
    assert!(children.iter_mut().all(|child| child.wait().success()));
    assert_eq!(read(&dir).unwrap().member("alice").unwrap().restarts, 1600);
}

/// A reader sees the old roster or the new one, and the next writer is not blocked.
#[test]
fn a_writer_killed_at_any_failpoint_does_no_harm() {
    for (point, after) in [
        ("config.locked", 0),
        ("replace.written", 0),
        ("replace.renamed", 1),
        ("config.copied", 0),
        ("config.replaced", 1),
    ] {
        let (_folder, dir) = team();
        join(&dir, "alice");
        let restarts = || read(&dir).unwrap().member("alice").unwrap().restarts;
        let armed = format!("{point}:1");
        let mut child = start_armed(&dir, Job::Count { times: 1 }, Some((&armed, 1)));
        assert!(was_killed(child.wait()), "{point}");
        assert_eq!(restarts(), after, "{point}");
        assert!(start(&dir, Job::Count { times: 1 }).wait().success());
        assert_eq!(restarts(), after + 1, "{point}");
    }
}

#[test]
fn an_update_without_a_change_writes_nothing() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, dir) = team();
    join(&dir, "alice");
    let inode = || fs::metadata(dir.config()).unwrap().ino();
    let before = inode();
    assert_eq!(update(&dir, Fsync::Always, |roster| roster.members.len()).unwrap(), 1);
    assert_eq!(inode(), before);
}

#[test]
fn a_damaged_roster_is_quarantined_and_the_last_good_copy_is_used() {
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    for (n, damage) in
        ["", "{", "[]", "null", "{\"members\":7}", "\0\0\0", &deep].iter().enumerate()
    {
        let (_folder, dir) = team();
        for name in ["alice", "bob"] {
            join(&dir, name);
        }
        let count = |roster: &mut WithUnknownFields<Roster>| {
            roster.member_mut("bob").unwrap().restarts += 1;
        };
        update(&dir, Fsync::Never, count).unwrap();
        write(&dir.config(), damage);
        assert_eq!(names(&dir), ["alice", "bob"], "case {n}: nobody is missing from the copy");
        assert_eq!(fs::read_to_string(dir.config()).unwrap(), *damage, "a reader repairs nothing");
        join(&dir, "carl");
        assert_eq!(names(&dir), ["alice", "bob", "carl"]);
        let bad = fs::read_to_string(dir.root().join("config.json.bad-1")).unwrap();
        assert_eq!(bad, *damage);
    }
}

#[test]
fn without_a_copy_the_roster_is_rebuilt_from_the_life_locks() {
    let (_folder, dir) = team();
    let name = |name| AgentName::member(name).unwrap();
    drop(LifeLock::take(&dir, &name("dead"), LifeRecord::default()).unwrap());
    let record = LifeRecord { incarnation: "k3".into(), ..LifeRecord::of_this_process() };
    let _alive = LifeLock::take(&dir, &name("alive"), record.clone()).unwrap();
    let _lead = LifeLock::take(&dir, &AgentName::lead(), LifeRecord::default()).unwrap();
    write(&dir.config(), "garbage");
    update(&dir, Fsync::Always, |_| ()).unwrap();
    let roster = read(&dir).unwrap();
    assert_eq!(names(&dir), ["alive", "dead"]);
    let alive = roster.member("alive").unwrap();
    assert_eq!(
        (alive.status, alive.pid, &alive.incarnation),
        (Status::Idle, Some(record.pid), &record.incarnation)
    );
    assert_eq!(roster.member("dead").unwrap().status, Status::Failed);
}

#[test]
fn a_newer_roster_is_read_and_never_written() {
    let (_folder, dir) = team();
    let newer = r#"{"version":2,"members":[{"name":"alice","status":"idle","mood":"good"}]}"#;
    write(&dir.config(), newer);
    assert_eq!(names(&dir), ["alice"]);
    let refused = update(&dir, Fsync::Always, |roster| roster.members.clear());
    assert!(matches!(refused, Err(StoreError::Newer { found: 2, .. })), "{refused:?}");
    let stranger = r#"{"version":9,"members":{"alice":{}}}"#;
    write(&dir.config(), stranger);
    assert!(matches!(read(&dir), Err(StoreError::Newer { found: 9, .. })));
    assert!(update(&dir, Fsync::Always, |_| ()).is_err());
    assert_eq!(fs::read_to_string(dir.config()).unwrap(), stranger);
}

#[test]
fn unknown_fields_survive() {
    let (_folder, dir) = team();
    write(&dir.config(), r#"{"version":1,"x":[1],"members":[{"name":"alice","y":{"z":null}}]}"#);
    join(&dir, "bob");
    let text = fs::read_to_string(dir.config()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["x"][0], 1);
    assert!(value["members"][0]["y"]["z"].is_null() && value["members"][0]["y"].is_object());
    assert_eq!(value["members"][1]["name"], "bob");
}

#[test]
fn a_member_without_a_process_has_failed_whatever_the_roster_says() {
    use Status::{Failed, Idle, Shutdown, Starting, Stopping, Waiting, Working};
    let alive = Liveness::Alive(None);
    for (status, life, lead, shown) in [
        (Working, &alive, &Liveness::Dead, Working),
        (Working, &Liveness::Dead, &alive, Failed),
        (Idle, &Liveness::Dead, &alive, Failed),
        (Waiting, &Liveness::Dead, &Liveness::Dead, Failed),
        (Stopping, &Liveness::Dead, &alive, Failed),
        (Stopping, &alive, &alive, Stopping),
        (Starting, &Liveness::Dead, &alive, Starting),
        (Starting, &Liveness::Dead, &Liveness::Dead, Failed),
        (Shutdown, &Liveness::Dead, &alive, Shutdown),
        (Failed, &Liveness::Dead, &alive, Failed),
    ] {
        let member = Member { status, ..Member::default() };
        assert_eq!(effective_status(&member, life, lead), shown, "{status:?} {life:?}");
    }
}

/// Fifty processes start under one name at once. One gets the name, the others quickly get an error.
#[test]
fn one_of_fifty_gets_the_name() {
    let (_folder, dir) = team();
    let live = || start(&dir, Job::Live { name: "alice".into() });
    let mut children: Vec<ChildProcess> = (0..50).map(|_| live()).collect();
    let said: Vec<_> = children.iter_mut().map(ChildProcess::read_line).collect();
    let winners: Vec<_> = (0..50).filter(|at| said[*at] == "won").collect();
    assert_eq!(winners.len(), 1, "{said:?}");
    let pid = children[winners[0]].pid();
    let told = said.iter().filter(|said| said.contains(&format!("in use by pid {pid}"))).count();
    assert!(told > 0, "{said:?}");
    assert!(said.iter().all(|said| said == "won" || said.contains("in use")), "{said:?}");
    children[winners[0]].kill();
    assert_eq!(live().read_line(), "won", "the name is free again at once");
}

#[test]
fn a_team_has_the_name_of_its_folder_or_of_the_settings_and_keeps_it() {
    let run = |team: &Team, args: &[&str]| {
        team.team(&[args, &["--model", "rehearsal"]].concat()).expect(0);
        team.roster()["team_name"].as_str().unwrap().to_owned()
    };
    let (folders, own) = (Team::new(), Team::new());
    let folder = folders.workspace().file_name().unwrap().to_str().unwrap().to_owned();
    let lead = ["lead", "-p", "hello", "--timeout", "600"];
    assert_eq!(run(&folders, &lead), folder);
    fs::create_dir(own.path("")).unwrap();
    write(&own.path("settings.toml"), "team_name = \"My site\"\n");
    let bob = ["teammate", "bob", "--once", "--prompt", "hello"];
    assert_eq!(run(&own, &bob), "My site");
    for team in [&folders, &own] {
        write(&team.path("settings.toml"), "team_name = \"another\"\n");
    }
    assert_eq!((run(&folders, &lead), run(&own, &lead)), (folder, "My site".into()));
    write(&own.path("settings.toml"), "\nteam_name = \"a\\u001bb\"\n");
    let why = own.team(&lead).expect(2).err;
    assert!(why.contains("line 2") && why.contains("not a valid team name"), "{why}");
}
