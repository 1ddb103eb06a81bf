//! R5: many senders and one owner. R6: shells that append without taking the locks of the inbox.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::child_process::{ChildProcess, Job, start, team};
use crate::support::history::{Sent, check_history, finish, taken_in};
use agent_team::store::{Fsync, TeamDir, inbox, roster};
use agent_team::wire::AgentName;
use agent_team::wire::roster::{Member, Status};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The target of R5, in messages a second.
const TARGET_RATE: f64 = 60_000.0;

fn owner(dir: &TeamDir, fsync: bool) -> ChildProcess {
    inbox::ensure(dir, &AgentName::member("alice").unwrap()).unwrap();
    start(dir, Job::Read { name: "alice".into(), settle: false, fsync })
}

/// Checks alice's messages from senders that have all finished.
fn finding(measure: &str, target: &str, dir: &TeamDir, names: &[String], each: u64) -> Finding {
    finish(dir);
    let done = |name: &String| (name.clone(), Sent { begun: each, acked: each });
    let sent: BTreeMap<String, Sent> = names.iter().map(done).collect();
    let taken = taken_in(dir, "alice");
    let faults = check_history(&sent, &taken);
    let result = match faults.first() {
        None => format!("{} in, {} out", u64::try_from(names.len()).unwrap() * each, taken.len()),
        Some(first) => format!("{} faults, first {first:?}", faults.len()),
    };
    Finding::new(measure, target, &result, Verdict::of(faults.is_empty()))
}

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let writers: u64 = run.of(16, 64, 64);
    let each = run.of(200, 1_000, 100_000);
    let (_folder, dir) = team();
    // A sender asks whether its recipient is on the roster and alive.
    roster::update(&dir, Fsync::Never, |roster| {
        let alice = Member { name: "alice".into(), status: Status::Idle, ..Member::default() };
        roster.members.push(alice.into());
    })
    .unwrap();
    let mut owner = owner(&dir, false);
    let names: Vec<String> = (0..writers).map(|n| format!("w{n}")).collect();
    let begin = |from: &String| {
        start(&dir, Job::Flood { to: "alice".into(), from: from.clone(), count: each })
    };
    let mut children: Vec<ChildProcess> = names.iter().map(begin).collect();
    for child in &mut children {
        assert_eq!(child.read_line(), "ready");
    }
    let begun = Instant::now();
    children.iter_mut().for_each(ChildProcess::release);
    let longest =
        children.iter_mut().map(|child| child.read_line().parse::<u64>().unwrap()).max().unwrap();
    for child in &mut children {
        assert!(child.wait().success());
    }
    assert!(owner.wait().success());
    let took = begun.elapsed();
    let measure = format!("{writers} writers x {each} messages, one owner");
    let all = finding(&measure, "in = out, in order", &dir, &names, each);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = (writers * each) as f64 / took.as_secs_f64();
    let result = format!(
        "{rate:.0}/s; longest send {:.1} ms",
        Duration::from_micros(longest).as_secs_f64() * 1e3
    );
    let verdict = Verdict::of_speed(rate > TARGET_RATE);
    vec![all, Finding::new("the same, messages per second, no sync", "> 60000/s", &result, verdict)]
}

pub(crate) fn of_shells(run: Run) -> Vec<Finding> {
    let each: u64 = run.of(1_000, 5_000, 25_000);
    let (_folder, dir) = team();
    let mut owner = owner(&dir, true);
    let inbox = dir.inbox(&AgentName::member("alice").unwrap());
    let names: Vec<String> = (0..4).map(|n| format!("shell{n}")).collect();
    let mut shells: Vec<_> = names
        .iter()
        .map(|from| {
            let text = format!(
                "i=0; while [ $i -lt {each} ]; do \
                 echo '{{\"from\":\"{from}\",\"id\":\"{from}:'$i'\",\"content\":\"'$i' of {from} \"}}' \
                 >> \"$INBOX\"; i=$((i+1)); done"
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &text]).env("INBOX", &inbox).stdin(Stdio::null());
            shell.spawn().unwrap()
        })
        .collect();
    for shell in &mut shells {
        assert!(shell.wait().unwrap().success());
    }
    assert!(owner.wait().success());
    let measure =
        format!("4 shells x {each} `echo >>`, no lock, an owner that drains all the time");
    vec![finding(&measure, "0 lost", &dir, &names, each)]
}
