//! R1: `kill -9` of senders and their receiver, and of a lead that gets mail, at random times.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::rng::Rng;
use crate::support::child_process::{
    ChildProcess, Job, line, policy, start_armed, team, was_killed,
};
use crate::support::harness::Team;
use crate::support::history::{Fault, Sent, Taken, check_history, finish_kills, sent, taken_in};
use crate::support::terminal::Terminal;
use agent_team::store::{Fsync, TeamDir, inbox};
use agent_team::wire::AgentName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The number of kills in one team folder. Then all mail is drained and checked. More kills need another folder,
/// because the checker reads whole transcripts.
const STORM: u32 = 500;

/// The number of team folders that are used at the same time.
const AT_ONCE: usize = 4;

const NONE: &str = "0 lost, 0 twice, 0 out of order";

/// Failpoints at which processes also kill themselves, with the probability at each pass.
const MAIL: [(&str, &str); 9] = [
    ("send.locked", "0.002"),
    ("send.written", "0.002"),
    ("drain.before_link", "0.01"),
    ("drain.linked", "0.02"),
    ("drain.renamed", "0.01"),
    ("drain.claimed", "0.02"),
    ("drain.reading", "0.01"),
    ("drain.delivered", "0.02"),
    ("drain.before_unlink", "0.02"),
];

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    vec![of_mailbox(run), of_lead(run)]
}

/// The number of acknowledged messages and the faults of a history.
#[derive(Debug, Default)]
struct Tally {
    acked: u64,
    /// The number of messages that are kept with the dead letters: five readers in a row were killed during their delivery.
    quarantined: u64,
    faults: Vec<Fault>,
}

impl Tally {
    fn finding(&self, measure: &str) -> Finding {
        let verdict = Verdict::of(self.faults.is_empty() && self.acked > 0);
        let faults = match self.faults.first() {
            None => "none".to_owned(),
            Some(first) => format!("{} faults, first {first:?}", self.faults.len()),
        };
        let kept = match self.quarantined {
            0 => String::new(),
            kept => format!("; {kept} kept as dead letters after five kills in a row"),
        };
        let result = format!("{faults} among {} acknowledged{kept}", self.acked);
        Finding::new(measure, NONE, &result, verdict)
    }
}

fn of_mailbox(run: Run) -> Finding {
    let kills = run.of(500, 2_000, 100_000);
    let storms: Vec<u64> = (0..u64::from(kills / STORM)).collect();
    let mut all = Tally::default();
    for several in storms.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let storms =
                several.iter().map(|number| scope.spawn(move || storm(&mut run.rng(100 + number))));
            for storm in storms.collect::<Vec<_>>() {
                let tally = storm.join().unwrap();
                all.acked += tally.acked;
                all.quarantined += tally.quarantined;
                all.faults.extend(tally.faults);
            }
        });
    }
    all.finding(&format!("{kills} kills -9 of 3 senders and their receiver"))
}

/// Runs three senders and the owner. Every few milliseconds one of them is killed and restarted; it continues as
/// a resumed agent does.
fn storm(rng: &mut Rng) -> Tally {
    let (folder, dir) = team();
    let log = |from: &str| folder.path().join(format!("{from}.log"));
    let senders = ["bob", "carl", "dora"];
    let job = |at: usize| match senders.get(at) {
        Some(from) => Job::Send {
            to: "alice".into(),
            from: (*from).into(),
            log: log(from),
            count: u64::MAX,
            fsync: *from == "dora",
        },
        None => Job::Read { name: "alice".into(), settle: false, fsync: true },
    };
    // A failpoint may also kill a process.
    let points = MAIL.map(|(point, chance)| format!("{point}:{chance}")).join(",");
    let begin = |rng: &mut Rng, at| start_armed(&dir, job(at), Some((&points, rng.next())));
    let mut children: Vec<ChildProcess> = (0..=senders.len()).map(|at| begin(rng, at)).collect();
    let mut kills = 0;
    while kills < STORM {
        rng.pause(Duration::from_millis(12));
        let victim = rng.index(children.len());
        for (at, child) in children.iter_mut().enumerate() {
            if child.is_over() {
                assert!(was_killed(child.wait()), "{:?} ended by itself", job(at));
            } else if at == victim {
                child.kill();
            } else {
                continue;
            }
            kills += 1;
            *child = begin(rng, at);
        }
    }
    children.iter_mut().for_each(ChildProcess::kill);
    let kept = finish_kills(&dir);
    let sent: BTreeMap<String, Sent> =
        senders.iter().map(|from| ((*from).to_owned(), sent(&log(from)))).collect();
    let acked = sent.values().map(|sent| sent.acked).sum();
    let mut taken = taken_in(&dir, "alice");
    let quarantined = add_quarantined(&mut taken, kept);
    Tally { acked, quarantined, faults: check_history(&sent, &taken) }
}

/// Puts the quarantined messages that were not delivered where they belong in the order of their senders. Returns their number.
fn add_quarantined(taken: &mut Vec<Taken>, quarantined: Vec<Taken>) -> u64 {
    let mut count = 0;
    for message in quarantined {
        let of_sender = |other: &&Taken| other.from == message.from;
        if !taken.iter().filter(of_sender).any(|other| other.n == message.n) {
            let is_later = |other: &Taken| other.from == message.from && other.n > message.n;
            let place = taken.iter().position(is_later).unwrap_or(taken.len());
            taken.insert(place, message);
            count += 1;
        }
    }
    count
}

/// Kills a lead at its terminal at random moments while it gets mail. Each lead begins a new conversation. All
/// conversations together must contain the mail.
fn of_lead(run: Run) -> Finding {
    let kills = run.of(8, 40, 200);
    let mut rng = run.rng(2);
    let team = Team::new();
    let start =
        || Terminal::start(team.command("team", &["lead", "--new", "--model", "rehearsal"]));
    let mut lead = start();
    lead.expect("/quit ends the team");
    let dir = TeamDir::open(&team.path("")).unwrap();
    let to = AgentName::mailbox("lead").unwrap();
    let mut count = 0;
    let mut write = || {
        inbox::append(&dir, &to, line("bob", count, 30).as_bytes(), &policy(Fsync::Never)).unwrap();
        count += 1;
        count
    };
    for _ in 0..kills {
        for _ in 0..=rng.below(12) {
            rng.pause(Duration::from_millis(20));
            write();
        }
        kill(Pid::from_raw(i32::try_from(lead.child.id()).unwrap()), Signal::SIGKILL).unwrap();
        lead.wait();
        lead = start();
        // Some leads are killed while they start.
        if rng.below(4) > 0 {
            lead.expect("/quit ends the team");
        }
    }
    let acked = write();
    let is_last = |taken: &Taken| taken.n + 1 == acked;
    team.eventually("the last message is taken in", || {
        everything_taken(&team, &dir).iter().any(is_last)
    });
    lead.expect("/quit ends the team");
    lead.type_line("/quit");
    lead.wait();
    team.wait_no_process();
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: acked, acked })]);
    let faults = check_history(&sent, &everything_taken(&team, &dir));
    Tally { acked, quarantined: 0, faults }
        .finding(&format!("{kills} kills -9 of a lead that is written to"))
}

/// The mail of all conversations of the lead, in order.
fn everything_taken(team: &Team, dir: &TeamDir) -> Vec<Taken> {
    let archive = team.path("transcript/archive");
    let mut old: Vec<String> = fs::read_dir(&archive)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("lead-"))
        .collect();
    old.sort();
    let mut taken = Vec::new();
    for name in old {
        // `taken_in` cannot be used: it reads the current transcript of a name, not an archived one.
        let lines = team.lines(&format!("transcript/archive/{name}"));
        let mail = lines.iter().filter(|line| line["kind"] == "mail").map(|line| &line["message"]);
        taken.extend(mail.filter_map(|mail| {
            let n = mail["id"].as_str()?.strip_prefix("bob:")?.parse().ok()?;
            Some(Taken { from: "bob".into(), n, content: mail["content"].as_str()?.into() })
        }));
    }
    taken.extend(taken_in(dir, "lead").into_iter().filter(|taken| taken.from == "bob"));
    taken
}
