//! P3, P4: many processes send to one inbox while its owner drains it.
//!
//! The raw reference is the best that locked appends can do: it removes nothing, and its reader only counts text.
//! Our owner also parses, writes a transcript and removes claims.

use crate::bench_team::{BenchTeam, bus, live, mailbox, send, sender, text};
use crate::child_process::{ChildProcess, Job, Way, hear, say};
use crate::figure::{Figure, Size, Target, median};
use crate::peers::peer::Peer;
use crate::poll::wait;
use agent_team::store::mailbox::{Mailbox, SettleResult};
use agent_team::store::{Fsync, TeamDir};
use agent_team::wire::AgentName;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write, stdin};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time limit of an owner for a message that should arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of a writer.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    sent: u64,
    longest_ms: f64,
}

/// The result of the owner.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Taken {
    total: u64,
    /// The number of messages that arrived twice, or before an earlier one of the same writer.
    out_of_order: u64,
    #[serde(skip)]
    next: BTreeMap<usize, u64>,
}

/// The result of one measurement of one method.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    /// The number of messages that were lost, arrived twice or out of order.
    pub(crate) wrong: f64,
    pub(crate) slowest_of_fastest: f64,
    pub(crate) longest_ms: f64,
}

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let [mut raw, mut ours, mut raw_synced, mut ours_synced] = [(); 4].map(|()| Vec::new());
    let mut sqlite = Vec::new();
    for _ in 0..size.rounds {
        raw.push(with(size, |team| Way::Raw { file: team.make_raw() }));
        ours.push(with(size, |team| way(team, false)));
        sqlite.extend(sqlite_wal(size));
        raw_synced.push(with(size, |team| Way::RawSynced { file: team.make_raw() }));
        ours_synced.push(with(size, |team| way(team, true)));
    }
    let middle =
        |runs: &[Run], value: fn(&Run) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
    let wrong: f64 = ours.iter().chain(&ours_synced).map(|run| run.wrong).sum();
    let writers = size.writers;
    let figure = |id, measure: String, unit, ours, reference, target| Figure {
        id,
        measure,
        unit,
        ours,
        reference,
        target,
    };
    let speed = |run: &Run| run.per_second;
    let rate = middle(&ours, speed);
    let mut figures = vec![figure(
        "P3",
        format!("{writers} writers, one owner, `fsync = never`; locked appends, never removed"),
        "msg/s",
        rate,
        Some(middle(&raw, speed)),
        Target::TimesAtLeast(0.6),
    )];
    if !sqlite.is_empty() {
        let reference = Some(median(&sqlite));
        let measure = "the same; SQLite WAL (python3's sqlite3)".into();
        figures.push(figure("P3", measure, "msg/s", rate, reference, Target::TimesAtLeast(1.5)));
    }
    let (fair, longest) = (|run: &Run| run.slowest_of_fastest, |run: &Run| run.longest_ms);
    figures.extend([
        figure(
            "P3",
            "lost, twice or out of order, all rounds of P3 and P4".into(),
            "",
            wrong,
            None,
            Target::Below(1.0),
        ),
        figure(
            "P3",
            "sends of the slowest writer / of the fastest".into(),
            "",
            middle(&ours, fair),
            Some(middle(&raw, fair)),
            Target::AtLeast(0.3),
        ),
        figure(
            "P3",
            "longest single send; the reference's".into(),
            "ms",
            middle(&ours, longest),
            Some(middle(&raw, longest)),
            Target::TimesAtMost(1.5),
        ),
        figure(
            "P4",
            format!("{writers} writers, one owner, `fsync = always`; fdatasync under the lock"),
            "msg/s",
            middle(&ours_synced, speed),
            Some(middle(&raw_synced, speed)),
            Target::TimesAtLeast(2.0),
        ),
    ]);
    figures
}

fn way(team: &BenchTeam, is_synced: bool) -> Way {
    Way::Team { dir: team.dir.root().into(), is_synced }
}

fn with(size: &Size, way: impl FnOnce(&BenchTeam) -> Way) -> Run {
    let team = BenchTeam::new();
    run(&way(&team), size.writers, size.seconds)
}

/// Lets processes send for some seconds while an owner takes their messages.
pub(crate) fn run(way: &Way, writers: usize, seconds: f64) -> Run {
    let mut owner = ChildProcess::start(&Job::Own { way: way.clone() });
    let write = |number| Job::Write { way: way.clone(), number, seconds };
    let mut writers = ChildProcess::start_all(&(0..writers).map(write).collect::<Vec<_>>());
    let start = Instant::now();
    for writer in &mut writers {
        writer.say(&"go");
    }
    let written: Vec<Written> = writers.iter_mut().map(ChildProcess::hear).collect();
    let sent: u64 = written.iter().map(|writer| writer.sent).sum();
    owner.say(&sent);
    let taken: Taken = owner.hear();
    let took = start.elapsed().as_secs_f64();
    let of_writers = |pick: fn(f64, f64) -> f64| {
        written.iter().map(|writer| count(writer.sent)).reduce(pick).unwrap_or(f64::NAN)
    };
    Run {
        per_second: count(sent) / took,
        wrong: count(sent.abs_diff(taken.total) + taken.out_of_order),
        slowest_of_fastest: of_writers(f64::min) / of_writers(f64::max),
        longest_ms: written.iter().map(|writer| writer.longest_ms).fold(0.0, f64::max),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 messages")]
fn count(messages: u64) -> f64 {
    messages as f64
}

/// Returns the messages per second through a `SQLite` table in WAL mode, or `None` if python3 has no sqlite3.
fn sqlite_wal(size: &Size) -> Option<f64> {
    let team = BenchTeam::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/team/sqlite.py");
    let arguments = [size.writers.to_string(), size.seconds.to_string()];
    let output = Command::new("python3").arg(script).arg(team.raw()).args(arguments).output();
    let Ok(output) = output else { return None };
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Runs a writer.
pub(crate) fn write(way: &Way, number: usize, seconds: f64) {
    let mut write = writer(way, number);
    say(&"ready");
    let Some::<String>(_go) = hear() else { return };
    let (start, mut written) = (Instant::now(), Written { sent: 0, longest_ms: 0.0 });
    let mut before = start;
    while before.duration_since(start).as_secs_f64() < seconds {
        write(&text(&format!("{number} {}", written.sent)));
        let now = Instant::now();
        written.longest_ms = written.longest_ms.max(now.duration_since(before).as_secs_f64() * 1e3);
        (before, written.sent) = (now, written.sent + 1);
    }
    say(&written);
}

/// Returns the function that sends a text, and returns once the text is accepted.
pub(crate) fn writer(way: &Way, number: usize) -> Box<dyn FnMut(&str)> {
    match way {
        Way::Team { dir, is_synced } => {
            let bus = bus(&TeamDir::open(dir).unwrap(), policy(*is_synced));
            let from = AgentName::member(&format!("{}-{number}", sender())).unwrap();
            Box::new(move |text| send(&bus, &from, text.to_owned()))
        }
        Way::Raw { file } => {
            let file = file.clone();
            Box::new(move |text| drop(locked_append(&file, text)))
        }
        Way::RawSynced { file } => {
            let file = file.clone();
            Box::new(move |text| locked_append(&file, text).sync_data().unwrap())
        }
        Way::Peer(peer) => peer.sender(),
    }
}

pub(crate) fn policy(is_synced: bool) -> Fsync {
    if is_synced { Fsync::Always } else { Fsync::Never }
}

/// Appends a line under a lock, which is held until the file is dropped.
pub(crate) fn locked_append(path: &Path, text: &str) -> File {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    fs4::FileExt::lock(&file).unwrap();
    file.write_all([text, "\n"].concat().as_bytes()).unwrap();
    file
}

/// Runs an owner, which drains until it has the number of messages that its parent reports.
pub(crate) fn own(way: &Way) {
    let taken = match way {
        Way::Team { dir, is_synced } => {
            let dir = TeamDir::open(dir).unwrap();
            let life = live(&dir);
            own_mailbox(&mut mailbox(&dir, &life, policy(*is_synced)))
        }
        Way::Raw { file } | Way::RawSynced { file } => own_raw(file),
        Way::Peer(peer) => own_peer(peer),
    };
    say(&taken);
}

fn own_mailbox(mailbox: &mut Mailbox) -> Taken {
    say(&"ready");
    let mut settle_in = Duration::from_secs(1);
    let mut due = Due::default();
    due.until_done(|taken, limit| {
        let is_woken = wait(mailbox.watch_fd(), settle_in.min(limit));
        if is_woken {
            mailbox.acknowledge_events().unwrap();
        }
        for mail in mailbox.drain().unwrap().mail {
            taken.meet(&mail.message.content);
        }
        mailbox.mark_taken().unwrap();
        settle_in = match mailbox.settle().unwrap() {
            SettleResult::Again { after } => after,
            SettleResult::Grown => Duration::ZERO,
            SettleResult::Done => Duration::from_secs(1),
        };
    })
}

fn own_raw(path: &Path) -> Taken {
    let inotify = watch(path);
    say(&"ready");
    let mut file = File::open(path).unwrap();
    let mut rest = Vec::new();
    let mut due = Due::default();
    due.until_done(|taken, limit| {
        wait(inotify.as_fd(), limit);
        let _none_yet = inotify.read_events();
        file.read_to_end(&mut rest).unwrap();
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in rest.drain(..whole).collect::<Vec<_>>().split_inclusive(|byte| *byte == b'\n') {
            taken.meet(std::str::from_utf8(line).unwrap());
        }
    })
}

fn own_peer(peer: &Peer) -> Taken {
    let mut receive = peer.receiver();
    say(&"ready");
    let mut due = Due::default();
    due.until_done(|taken, limit| receive(limit, &mut |text| taken.meet(text)))
}

/// Returns an inotify instance for the changes of one file.
pub(crate) fn watch(path: &Path) -> Inotify {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
    inotify.add_watch(path, AddWatchFlags::IN_MODIFY).unwrap();
    inotify
}

/// The number of messages for the owner, once its parent knows it.
#[derive(Default)]
struct Due(Option<u64>);

impl Due {
    fn until_done(&mut self, mut take: impl FnMut(&mut Taken, Duration)) -> Taken {
        let mut taken = Taken::default();
        let mut progress = (0, Instant::now());
        while self.0.is_none_or(|due| taken.total < due) && progress.1.elapsed() < PATIENCE {
            take(&mut taken, Duration::from_millis(5));
            if taken.total > progress.0 {
                progress = (taken.total, Instant::now());
            }
            if self.0.is_none() && wait(stdin().as_fd(), Duration::ZERO) {
                // `hear` returns no number if the parent has exited; then no message is due.
                self.0 = Some(hear().unwrap_or_default());
                progress.1 = Instant::now();
            }
        }
        taken
    }
}

impl Taken {
    /// Counts a text, which begins with the numbers of its writer and of itself.
    fn meet(&mut self, text: &str) {
        let mut numbers = text.split_whitespace();
        let mut number = || numbers.next().and_then(|word| word.parse::<u64>().ok()).unwrap();
        let (writer, sent) = (usize::try_from(number()).unwrap(), number());
        let next = self.next.entry(writer).or_insert(0);
        if sent == *next {
            *next += 1;
        } else {
            self.out_of_order += 1;
        }
        self.total += 1;
    }
}
