//! P7: the time from a send until the waiting owner has the message.
//!
//! The reference is an owner that waits for inotify events of one file and reads the lines that are appended under
//! a lock. Our owner claims the inbox, parses the mail and writes the transcript.

use crate::bench_team::{BenchTeam, bus, live, mailbox, send, sender, text};
use crate::child_process::{ChildProcess, Job, Way, say};
use crate::figure::{Figure, Size, Target, median, percentile};
use crate::peers::peer::Peer;
use crate::poll::wait;
use crate::scripts::Scripts;
use crate::writers::{locked_append, policy, watch};
use agent_team::store::mailbox::SettleResult;
use agent_team::store::{Clock, Fsync, SystemClock, TeamDir};
use std::fs::File;
use std::io::{Read, stdin};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The pause between two messages, after which the owner waits again.
const PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours, mut raw_late, mut ours_late, mut among] = [(); 5].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        let took = through_file(&team, size.wakes);
        raw.push(median(&took));
        raw_late.push(percentile(&took, 99.0));
        let took = through_team(&team, size.wakes);
        ours.push(median(&took));
        ours_late.push(percentile(&took, 99.0));
    }
    let team = BenchTeam::new();
    let members = Scripts::of_teammates(&team, size.many);
    for _ in 0..size.rounds {
        among.push(percentile(&through_team(&team, size.wakes), 99.0));
    }
    drop(members);
    let figure = |measure: String, ours: &[f64], reference, target| Figure {
        id: "P7",
        measure,
        unit: "ms",
        ours: median(ours),
        reference,
        target,
    };
    let (raw, raw_late) = (Some(median(&raw)), Some(median(&raw_late)));
    vec![
        figure(
            "send -> the owner has it, p50; raw file event".into(),
            &ours,
            raw,
            Target::TimesAtMost(2.5),
        ),
        figure("the same, p99".into(), &ours_late, raw_late, Target::Below(5.0)),
        figure(
            format!("the same among {} idle teammates, p99", size.many),
            &among,
            None,
            Target::Below(20.0),
        ),
    ]
}

fn through_file(team: &BenchTeam, times: usize) -> Vec<f64> {
    let file = team.make_raw();
    let owner = ChildProcess::start(&Job::Wake { way: Way::Raw { file: file.clone() } });
    each(owner, times, |text| drop(locked_append(&file, text)))
}

fn through_team(team: &BenchTeam, times: usize) -> Vec<f64> {
    let way = Way::Team { dir: team.dir.root().into(), is_synced: false };
    let owner = ChildProcess::start(&Job::Wake { way });
    let (bus, from) = (bus(&team.dir, Fsync::Never), sender());
    each(owner, times, |text| send(&bus, &from, text.to_owned()))
}

/// Returns the latencies in milliseconds, as the owner measured them.
fn each(mut owner: ChildProcess, times: usize, send: impl Fn(&str)) -> Vec<f64> {
    let pass = |_| {
        std::thread::park_timeout(PAUSE);
        send(&text(&SystemClock.now().to_string()));
        owner.hear::<f64>()
    };
    (0..times).map(pass).collect()
}

/// Runs an owner, which reports the latency of each message until stdin is closed.
pub(crate) fn own(way: &Way) {
    match way {
        Way::Team { dir, is_synced } => own_mailbox(dir, policy(*is_synced)),
        Way::Raw { file } | Way::RawSynced { file } => own_raw(file),
        Way::Peer(peer) => own_peer(peer),
    }
}

fn own_peer(peer: &Peer) {
    let mut receive = peer.receiver();
    say(&"ready");
    while !is_over() {
        receive(Duration::from_secs(1), &mut tell);
    }
}

fn own_mailbox(dir: &Path, fsync: Fsync) {
    let dir = TeamDir::open(dir).unwrap();
    let life = live(&dir);
    let mut mailbox = mailbox(&dir, &life, fsync);
    drop(mailbox.drain().unwrap());
    say(&"ready");
    let mut settle_in = Duration::from_secs(1);
    while !is_over() {
        if wait(mailbox.watch_fd(), settle_in) {
            mailbox.acknowledge_events().unwrap();
        }
        if mailbox.has_unread() {
            for mail in mailbox.drain().unwrap().mail {
                tell(&mail.message.content);
            }
            mailbox.mark_taken().unwrap();
        }
        settle_in = match mailbox.settle().unwrap() {
            SettleResult::Again { after } => after,
            SettleResult::Grown => Duration::ZERO,
            SettleResult::Done => Duration::from_secs(1),
        };
    }
}

fn own_raw(path: &Path) {
    let inotify = watch(path);
    let mut file = File::open(path).unwrap();
    say(&"ready");
    let mut appended = String::new();
    while !is_over() {
        wait(inotify.as_fd(), Duration::from_secs(1));
        let _none_yet = inotify.read_events();
        appended.clear();
        file.read_to_string(&mut appended).unwrap();
        appended.lines().for_each(tell);
    }
}

fn tell(sent_at: &str) {
    let sent_at: f64 = sent_at.trim().parse().unwrap();
    say(&(SystemClock.now().since(sent_at.into()).as_secs_f64() * 1e3));
}

/// Whether the parent has closed stdin, as it does when it exits.
fn is_over() -> bool {
    let mut stdin = stdin().lock();
    wait(stdin.as_fd(), Duration::ZERO) && stdin.read(&mut [0]).is_ok_and(|read| read == 0)
}
