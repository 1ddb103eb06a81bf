//! The work of one host of a large team: two relays run, and this test plays all the other hosts (`TEAM_MACHINES_HOSTS` in all,
//! each with `TEAM_MACHINES_MEMBERS`). They tell of their members, and acknowledge each frame at once.

use super::roster::{first_fails, has_broadcast, known, number, time_of};
use super::{are_wanted, cost};
use crate::machines::{DEADLINE, Machine, Machines, TEAM};
use crate::played_host::{beat, claim_names, sign_in, tell_host, tell_member};
use crate::rig::process::wait_until;
use agent_team::store::{Fsync, LifeLock, roster};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Acknowledgement, Frame, HostName, LinkProgress, RELAY_PROTOCOL};
use agent_team::wire::roster::Status;
use futures_util::StreamExt;
use futures_util::stream::iter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};
use team_host::carrier::{Carrier, CarrierConfig};
use team_host::trust::Trust;

/// The real hosts, and one that joins when all are there.
const REAL: [&str; 3] = ["h1", "h2", "late"];

/// The requests of the played hosts that are on their way at a time.
const AT_ONCE: usize = 64;

/// The frames and lines that the played hosts have got.
#[derive(Default)]
struct Got {
    frames: AtomicU64,
    lines: AtomicU64,
    /// The members of which they have told, and those that have their names.
    told: AtomicU64,
    placed: AtomicU64,
}

/// The most names of one question.
const MOST_CLAIMED: usize = 200;

/// Tells of the members of a played host.
async fn tell(carrier: &Carrier, host: &HostName, members: usize, got: &Got) {
    let names: Vec<_> =
        (0..members).map(|at| AgentName::member(&format!("{host}-m{at}")).unwrap()).collect();
    let put = async |name: &AgentName| {
        tell_member(carrier, host, name).await;
        got.told.fetch_add(1, Ordering::Relaxed);
    };
    iter(&names).for_each_concurrent(AT_ONCE, put).await;
    for some in names.chunks(MOST_CLAIMED) {
        claim_names(carrier, host, some).await;
        got.placed.fetch_add(u64::try_from(some.len()).unwrap(), Ordering::Relaxed);
    }
    tell_host(carrier, host, &names, RELAY_PROTOCOL).await;
}

/// Plays hosts for ever.
async fn play(hosts: Vec<(HostName, Arc<Trust>)>, url: String, members: usize, got: Arc<Got>) {
    let mut carriers = BTreeMap::new();
    let trusts: BTreeMap<_, _> = hosts.iter().cloned().collect();
    for (host, trust) in hosts {
        let config = CarrierConfig::new(vec![url.clone()], TEAM, host.as_str(), trust);
        carriers.insert(host, Carrier::start(config).await.unwrap());
    }
    let carriers = Arc::new(carriers);
    let beating = Arc::clone(&carriers);
    let beats = async move {
        for count in 1.. {
            for carrier in beating.values() {
                beat(carrier, count).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let (telling, told) = (Arc::clone(&carriers), Arc::clone(&got));
    let tell = async move {
        for (host, carrier) in telling.iter() {
            tell(carrier, host, members, &told).await;
        }
    };
    // Read as the relays publish it, without the stream: its consumers would have to be read for each host.
    let client = async_nats::connect(&url).await.unwrap();
    let mut frames = client.subscribe(format!("t.{TEAM}.mail.>")).await.unwrap();
    let answer = async move {
        while let Some(message) = frames.next().await {
            let mut parts = message.subject.split('.').skip(3);
            let to = HostName::parse(parts.next().unwrap()).unwrap();
            let Some(carrier) = carriers.get(&to) else { continue };
            let opened = trusts[&to].open(message.subject.as_str(), &message.payload).unwrap();
            let frame = Frame::parse(&opened.body).unwrap();
            let mut next = BTreeMap::new();
            got.frames.fetch_add(1, Ordering::Relaxed);
            got.lines.fetch_add(frame.lines.len() as u64, Ordering::Relaxed);
            for line in frame.lines {
                next.insert(line.to, line.seq + 1);
            }
            let progress =
                |(to, next)| LinkProgress { to, next, refused: BTreeMap::new(), again: false };
            let links = next.into_iter().map(progress).collect();
            let (v, epoch) = (RELAY_PROTOCOL, frame.head.epoch);
            let answer = Acknowledgement { v, epoch, links, pending: None };
            let body = serde_json::to_vec(&answer).unwrap();
            carrier.publish_ack(frame.head.src.as_str(), body.into()).await.unwrap();
        }
    };
    tokio::join!(beats, tell, answer);
}

/// Plays the other hosts on a thread of its own.
fn start_others(machines: &Machines, hosts: usize, members: usize) -> Arc<Got> {
    let (first, url) = (machines.get(REAL[0]), machines.server.url());
    let signed = (3..=hosts).map(|at| {
        let name = format!("h{at}");
        let trust = sign_in(first, &url, &name);
        (HostName::parse(&name).unwrap(), trust)
    });
    let (signed, got): (Vec<_>, Arc<Got>) = (signed.collect(), Arc::default());
    let (hub, told) = (machines.network.hub().clone(), Arc::clone(&got));
    thread::spawn(move || {
        hub.enter(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(play(signed, url, members, told));
        });
    });
    got
}

/// Prints what a relay has used since the last time.
fn print_cost(machine: &Machine, before: &mut u64, what: &str) {
    let (memory, now) = cost(machine.relay_pid());
    let used = now - std::mem::replace(before, now);
    println!(
        "{what}: the relay of {} took {used} ms of processor time; {memory:.1} MiB",
        machine.name
    );
}

#[test]
fn of_one_host_of_many() {
    if !are_wanted() {
        return;
    }
    let (hosts, each) = (number("TEAM_MACHINES_HOSTS", 10), number("TEAM_MACHINES_MEMBERS", 100));
    let Some(mut machines) = Machines::or_skip(&REAL) else { return };
    machines.get_mut(REAL[2]).kill_relay();
    println!("{hosts} hosts with {each} members each; all but two are played");
    let start = Instant::now();
    let lives: Vec<_> = machines.all[..2].iter().map(|it| it.play_members(each)).collect();
    let got = start_others(&machines, hosts, each);
    println!("the others have joined: {:.1} s", start.elapsed().as_secs_f64());
    let all = hosts * each;
    let placed = u64::try_from(all - 2 * each).unwrap();
    let start = Instant::now();
    let is_known = || {
        got.placed.load(Ordering::Relaxed) == placed
            && machines.all[..2].iter().all(|machine| known(machine) == all)
    };
    let is_ready = wait_until(DEADLINE * 5, is_known);
    let counts: Vec<_> = machines.all.iter().map(known).collect();
    assert!(is_ready, "{counts:?}, {:?}\n{}", got.placed, machines.all[0].describe());
    println!("all are known to both: {:.1} s", start.elapsed().as_secs_f64());
    let (mut used, mut used_2) = (0, 0);
    print_cost(&machines.all[0], &mut used, "the beginning");
    print_cost(&machines.all[1], &mut used_2, "the beginning");
    thread::park_timeout(Duration::from_secs(10));
    print_cost(&machines.all[1], &mut used_2, "10 s at rest");

    let start = Instant::now();
    machines.get_mut(REAL[2]).start_relay();
    machines.eventually("the late host knows all", || known(machines.get(REAL[2])) == all);
    println!("a host that joins knows all: {:.2} s", start.elapsed().as_secs_f64());
    let mut used_late = 0;
    print_cost(machines.get(REAL[2]), &mut used_late, "until then");
    thread::park_timeout(Duration::from_secs(10));
    print_cost(machines.get(REAL[2]), &mut used_late, "10 s later");
    machines.get_mut(REAL[2]).kill_relay();

    let first = &machines.all[0];
    println!("config.json: {} kB", fs::metadata(first.dir.config()).unwrap().len() / 1000);
    println!("team ls: {:.0} ms", time_of(first, &["ls"]));
    println!("team send: {:.0} ms to another host", time_of(first, &["send", "h3-m0", "x"]));
    println!("team send: {:.0} ms to the same host", time_of(first, &["send", "h1-m0", "x"]));
    for text in ["a first text", "a second text"] {
        println!("a broadcast of {text}:");
        broadcast(&machines, &lives, &got, text);
    }
    rewrites(&machines);
}

/// Measures a broadcast of the first host.
fn broadcast(machines: &Machines, lives: &[Vec<LifeLock>], got: &Got, text: &str) {
    let first = &machines.all[0];
    let (mut used, mut used_2) = (cost(first.relay_pid()).1, cost(machines.all[1].relay_pid()).1);
    let (frames, lines) = (got.frames.load(Ordering::Relaxed), got.lines.load(Ordering::Relaxed));
    let others = got.told.load(Ordering::Relaxed);
    let start = Instant::now();
    let sent = thread::scope(|scope| {
        let sent = scope.spawn(|| {
            first.team_ok(&["broadcast", text]);
            start.elapsed().as_secs_f64()
        });
        let mut left: Vec<_> = lives[1].iter().collect();
        machines.eventually("the other real host has the broadcast", || {
            first_fails(&mut left, |life| has_broadcast(&machines.all[1], life.name(), text))
                .is_none()
        });
        println!("the broadcast is in all inboxes of h2: {:.2} s", start.elapsed().as_secs_f64());
        machines.eventually("the played hosts have it", || {
            got.lines.load(Ordering::Relaxed) - lines >= others
        });
        let count = got.frames.load(Ordering::Relaxed) - frames;
        let seconds = start.elapsed().as_secs_f64();
        println!("the played hosts have it: {seconds:.2} s, in {count} frames");
        sent.join().unwrap()
    });
    println!("team broadcast itself: {sent:.2} s");
    thread::park_timeout(Duration::from_secs(3));
    print_cost(first, &mut used, "the broadcast");
    print_cost(&machines.all[1], &mut used_2, "the broadcast");
}

/// Counts how often the second host rewrites its roster while a member of the first one is busy.
fn rewrites(machines: &Machines) {
    let (first, second) = (&machines.all[0], &machines.all[1]);
    let (mut used, begin) = (cost(second.relay_pid()).1, Instant::now());
    let mut files = std::collections::BTreeSet::new();
    let mut changes = 0;
    while begin.elapsed() < Duration::from_secs(10) {
        let status = if changes % 2 == 0 { Status::Working } else { Status::Idle };
        roster::update(&first.dir, Fsync::Never, |roster| {
            roster.enter("h1-m0", 1.0).status = status;
        })
        .unwrap();
        changes += 1;
        let known = fs::metadata(second.dir.config()).unwrap();
        files.insert(known.modified().unwrap());
        thread::park_timeout(Duration::from_millis(100));
    }
    println!("{changes} changes of a status in 10 s: {} rosters on h2", files.len());
    print_cost(second, &mut used, "the changes");
}
