//! P5, P6, P8: much mail at once: a send behind a long queue, a large drain, and a broadcast.

use crate::bench_team::{BenchTeam, OWNER, bus, live, mailbox, owner, send, sender, text};
use crate::figure::{Figure, Size, Target, median};
use crate::writers::locked_append;
use agent_team::bus::Outgoing;
use agent_team::store::liveness::{LifeLock, LifeRecord};
use agent_team::store::{Fsync, TeamDir, inbox, roster};
use agent_team::wire::AgentName;
use agent_team::wire::message::{Body, OutgoingMessage};
use agent_team::wire::roster::{Member, Status};
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::time::Instant;

/// Measures P5.
pub(crate) fn behind_a_queue(size: &Size) -> Vec<Figure> {
    let [mut empty, mut behind] = [(); 2].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let teams = [BenchTeam::new(), BenchTeam::new()];
        queue(&teams[1].dir, size.backlog);
        let _lives = teams.each_ref().map(|team| live(&team.dir));
        let buses = teams.each_ref().map(|team| bus(&team.dir, Fsync::Never));
        // The sends alternate, so that other load affects both.
        for _ in 0..size.sends {
            for (bus, took) in buses.iter().zip([&mut empty, &mut behind]) {
                took.push(microseconds(|| send(bus, &sender(), text(""))));
            }
        }
    }
    vec![Figure {
        id: "P5",
        measure: format!("send behind a queue of {}; of none", size.backlog),
        unit: "us",
        ours: median(&behind),
        reference: Some(median(&empty)),
        target: Target::TimesAtMost(1.1),
    }]
}

/// Measures P6.
pub(crate) fn taking_in(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours] = [(); 2].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        queue(&team.dir, size.backlog);
        raw.push(microseconds(|| copy_parsed(&team)) / 1e3);
        let life = live(&team.dir);
        let mut mailbox = mailbox(&team.dir, &life, Fsync::Always);
        ours.push(
            microseconds(|| {
                assert_eq!(mailbox.drain().unwrap().mail.len(), size.backlog);
            }) / 1e3,
        );
    }
    vec![Figure {
        id: "P6",
        measure: format!(
            "draining {}, `fsync = always`; read + parse + append + fdatasync",
            size.backlog
        ),
        unit: "ms",
        ours: median(&ours),
        reference: Some(median(&raw)),
        target: Target::TimesAtMost(2.0),
    }]
}

/// Does the least that a drain must do: read, parse, append and sync.
fn copy_parsed(team: &BenchTeam) {
    let lines = BufReader::new(File::open(team.dir.inbox(&owner())).unwrap());
    let mut copy = Vec::new();
    for line in lines.lines() {
        let line = line.unwrap();
        let object: Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert!(object.contains_key("content"));
        copy.extend_from_slice(line.as_bytes());
        copy.push(b'\n');
    }
    let mut file = OpenOptions::new().append(true).open(team.make_raw()).unwrap();
    file.write_all(&copy).unwrap();
    file.sync_data().unwrap();
}

/// Measures P8.
pub(crate) fn to_many(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours, mut raw_sync, mut ours_synced] = [(); 4].map(|()| Vec::new());
    let team = BenchTeam::new();
    let _lives: Vec<_> = (0..size.many).map(|number| join(&team.dir, number)).collect();
    let file = team.make_raw();
    let kept = OpenOptions::new().append(true).open(&file).unwrap();
    for _ in 0..size.rounds * size.runs {
        raw.push(microseconds(|| {
            (0..size.many).for_each(|_| drop(locked_append(&file, &text(""))));
        }));
        ours.push(broadcast(&team, Fsync::Never, size.many));
        raw_sync.push(microseconds(|| {
            (&kept).write_all(b"x\n").unwrap();
            kept.sync_data().unwrap();
        }));
        ours_synced.push(broadcast(&team, Fsync::Always, size.many));
    }
    let figure = |measure, ours: &[f64], reference: &[f64], most| Figure {
        id: "P8",
        measure,
        unit: "us",
        ours: median(ours),
        reference: Some(median(reference)),
        target: Target::TimesAtMost(most),
    };
    let many = size.many;
    vec![
        figure(
            format!("broadcast to {many}, `fsync = never`; as many locked appends"),
            &ours,
            &raw,
            2.5,
        ),
        figure(
            format!("broadcast to {many}, `fsync = always`; one append + fdatasync"),
            &ours_synced,
            &raw_sync,
            60.0,
        ),
    ]
}

fn broadcast(team: &BenchTeam, fsync: Fsync, many: usize) -> f64 {
    let bus = bus(&team.dir, fsync);
    // The first send opens the lock files.
    let receivers = || bus.broadcast(&sender(), &Outgoing::broadcast(text(""))).unwrap();
    drop(receivers());
    microseconds(|| {
        let sent = receivers();
        // The lead is also a recipient.
        assert_eq!(sent.len(), many + 1);
        assert!(sent.iter().all(|(_, outcome)| outcome.is_ok()));
    })
}

/// Adds another member in this process. [`OWNER`] is the first.
pub(crate) fn join(dir: &TeamDir, number: usize) -> LifeLock {
    if number == 0 {
        return live(dir);
    }
    let name = AgentName::member(&format!("member-{number}")).unwrap();
    inbox::ensure(dir, &name).unwrap();
    roster::update(dir, Fsync::Never, |roster| {
        let name = name.to_string();
        let member = Member { name, status: Status::Idle, ..Member::default() };
        roster.members.push(member.into());
    })
    .unwrap();
    LifeLock::take(dir, &name, LifeRecord::of_this_process()).unwrap()
}

/// Appends messages to the inbox of [`OWNER`], as senders do.
pub(crate) fn queue(dir: &TeamDir, count: usize) {
    let mut lines = String::new();
    for number in 0..count {
        let message = OutgoingMessage {
            id: format!("{}:{number}", sender()),
            from: sender(),
            to: owner(),
            content: text(&number.to_string()),
            timestamp: 1_763_690_000.125.into(),
            correlation: None,
            body: Body::text(),
            extra: Map::new(),
        };
        lines.push_str(&message.line().unwrap());
    }
    let inbox = dir.inbox(&AgentName::member(OWNER).unwrap());
    let mut file = OpenOptions::new().append(true).open(inbox).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

fn microseconds(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64() * 1e6
}
