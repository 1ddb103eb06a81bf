//! R4: every state in which a power cut can leave the mail folders, one by one.
//!
//! A process sends and takes in mail below strace ([`record`]); from its system calls follows which states
//! the disk may be in after a cut at any moment ([`disk`]); each is laid out in a folder, and the real
//! recovery is let loose on it. What was told to anybody before the cut must be there, once, whole, in
//! order; and mail must go on. To prove that this would be noticed, the same is done with each kind of
//! sync taken out of the record: then something must be missing.

mod disk;
mod record;

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::child_process::{line, open, policy};
use crate::support::history::{Fault, Sent, judge, taken_in};
use agent_team::store::{Fsync, TeamDir, inbox};
use agent_team::wire::AgentName;
use disk::{Op, State};
use record::{Record, record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is done: `m`, at the beginning: the inbox is missing and the owner makes it; `s` sends a message,
/// `d` takes mail in, `x` lets go of what was taken in.
const SHORT: [&str; 3] = ["sdx", "sdsx", "ms"];
const LONG: [&str; 10] =
    ["sdx", "sdsx", "ssdx", "sdsdx", "ssdsdx", "sdssdx", "sdsdsdx", "sdxsdxsd", "sssdx", "mssdsx"];

/// Without one of these syncs mail must be lost: its place, and the steps in which that shows.
const NEEDED: [(&str, &str); 5] = [
    ("inbox/alice.jsonl", "sdsx"),
    ("inbox/.claim", "sdsx"),
    ("inbox", "sdsx"),
    ("inbox", "ms"),
    ("transcript/alice.jsonl", "sdsx"),
];

const TARGET: &str = "0 violations";

/// Recoveries at once: each waits for the kernel most of the time, which takes its watches down slowly.
const WORKERS: usize = 8;

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let measure = "crash states of send and drain, each recovered by the real code";
    if !record::is_possible() {
        return vec![Finding::skipped(measure, TARGET, "strace cannot trace here")];
    }
    let stories = run.of(&SHORT[..], &LONG[..], &LONG[..]);
    let (mut states, mut violations) = (0, Vec::new());
    for steps in stories {
        let record = record(steps);
        let (count, found) = try_all(&record, &record.ops);
        states += count;
        violations.extend(found.into_iter().map(|what| format!("{steps}: {what}")));
    }
    let first = violations.first().map_or(String::new(), |first| format!(": {first}"));
    let result = format!(
        "{} violations in {states} states of {} stories{first}",
        violations.len(),
        stories.len()
    );
    let verdict = Verdict::of(violations.is_empty() && states > 0);
    vec![Finding::new(measure, TARGET, &result, verdict), without_syncs()]
}

/// Takes each needed sync out of the record of a correct run.
fn without_syncs() -> Finding {
    let mut unnoticed = Vec::new();
    for (place, steps) in NEEDED {
        let record = record(steps);
        let left: Vec<Op> = record.ops.iter().filter(|op| !op.syncs(place)).cloned().collect();
        assert!(left.len() < record.ops.len(), "{place} is never synced");
        if try_all(&record, &left).1.is_empty() {
            unnoticed.push(place);
        }
    }
    let result =
        format!("{}/{} {}", NEEDED.len() - unnoticed.len(), NEEDED.len(), unnoticed.join(", "));
    let measure = "each kind of sync left out (inbox, claims, inbox folder, a new inbox's folder, transcript): \
         mail is lost";
    Finding::new(measure, "5/5 noticed", result.trim(), Verdict::of(unnoticed.is_empty()))
}

/// Recovers from every state that these operations can leave; how many there are, and what went wrong.
fn try_all(record: &Record, ops: &[Op]) -> (usize, Vec<String>) {
    let mut met = BTreeSet::new();
    let mut states = Vec::new();
    for done in 0..=ops.len() {
        let possible = disk::states_after(&record.before, &ops[..done]);
        let new = possible.into_iter().filter(|state| met.insert(state.fingerprint()));
        states.extend(new.map(|state| (done, state)));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((done, state)) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
            let faults = recover(state);
            if !faults.is_empty() {
                found.push(format!("after {done} of {} operations: {faults:?}", ops.len()));
            }
        }
        found
    };
    let violations = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    (states.len(), violations)
}

/// Lays the state out, takes in what is there, and one message more.
fn recover(state: &State) -> Vec<Fault> {
    let folder = quick_folder();
    let root = folder.path().join(".team");
    let dir = TeamDir::create(&root).unwrap();
    state.lay_out(&root);
    let alice = AgentName::member("alice").unwrap();
    let mut owner = open(&dir, "alice");
    drop(owner.drain().unwrap());
    let next = state.begun;
    inbox::append(&dir, &alice, line("bob", next, 20).as_bytes(), &policy(Fsync::Never)).unwrap();
    drop(owner.drain().unwrap());
    let mut taken = taken_in(&dir, "alice");
    // It comes last and once; what was begun and not acknowledged need not come at all.
    let last = taken.pop().filter(|last| last.n == next);
    let sent =
        BTreeMap::from([("bob".to_owned(), Sent { begun: state.begun, acked: state.acked })]);
    let mut faults = judge(&sent, &taken);
    if last.is_none() {
        faults.push(Fault::Lost { from: "bob".into(), n: next });
    }
    faults
}

/// In memory where that is to be had: a sync of the recovery proves nothing here.
fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).unwrap()
}
