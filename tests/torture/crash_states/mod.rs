//! R4: recovery from every state in which a power cut can leave the mail folders.
//!
//! A process sends and drains under strace ([`record`]). The possible states of the disk after a cut at any
//! moment follow from its system calls ([`disk`]). Each state is created in a folder and recovered by the
//! real code: every acknowledged message must be delivered once, complete and in order, and so must new mail.
//! To prove that the checker would notice a loss, each kind of sync is removed from the record; then a fault
//! must be found.

mod disk;
mod record;

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::child_process::{line, open, policy};
use crate::support::history::{Fault, Sent, check_history, taken_in};
use agent_team::store::{Fsync, TeamDir, inbox};
use agent_team::wire::AgentName;
use disk::{Op, State};
use record::{Record, record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The scenarios, each a sequence of steps: `s` sends a message, `d` drains, `x` settles the claims. A leading
/// `m` means that the inbox is missing and the owner creates it.
const SHORT: [&str; 3] = ["sdx", "sdsx", "ms"];
const LONG: [&str; 10] =
    ["sdx", "sdsx", "ssdx", "sdsdx", "ssdsdx", "sdssdx", "sdsdsdx", "sdxsdxsd", "sssdx", "mssdsx"];

/// The syncs without which mail is lost: the synced path, and the scenario that shows the loss.
const NEEDED: [(&str, &str); 5] = [
    ("inbox/alice.jsonl", "sdsx"),
    ("inbox/.claim", "sdsx"),
    ("inbox", "sdsx"),
    ("inbox", "ms"),
    ("transcript/alice.jsonl", "sdsx"),
];

const TARGET: &str = "0 violations";

/// The number of concurrent recoveries. Each mostly waits for the kernel to remove its inotify watches.
const WORKERS: usize = 8;

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let measure = "crash states of send and drain, each recovered by the real code";
    if !record::is_possible() {
        return vec![Finding::skipped(measure, TARGET, "strace cannot trace here")];
    }
    let scenarios = run.of(&SHORT[..], &LONG[..], &LONG[..]);
    let (mut states, mut violations) = (0, Vec::new());
    for steps in scenarios {
        let record = record(steps);
        let (count, found) = try_all(&record, &record.ops);
        states += count;
        violations.extend(found.into_iter().map(|what| format!("{steps}: {what}")));
    }
    let first = violations.first().map_or(String::new(), |first| format!(": {first}"));
    let result = format!(
        "{} violations in {states} states of {} scenarios{first}",
        violations.len(),
        scenarios.len()
    );
    let verdict = Verdict::of(violations.is_empty() && states > 0);
    vec![Finding::new(measure, TARGET, &result, verdict), without_syncs()]
}

/// Removes each required sync from the record of a correct run, and reports the removals without a fault.
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

/// Recovers from every state that these operations can leave. Returns the number of states and the faults.
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

/// Creates the state, drains it, and delivers one more message.
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
    // The new message must come last. A send that was not acknowledged need not be delivered.
    let last = taken.pop().filter(|last| last.n == next);
    let sent =
        BTreeMap::from([("bob".to_owned(), Sent { begun: state.begun, acked: state.acked })]);
    let mut faults = check_history(&sent, &taken);
    if last.is_none() {
        faults.push(Fault::Lost { from: "bob".into(), n: next });
    }
    faults
}

/// A temporary folder, in memory if possible: the syncs of the recovery need no real disk.
fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).unwrap()
}
