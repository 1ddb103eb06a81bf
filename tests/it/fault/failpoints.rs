//! Failpoints: the list is complete, and a team survives a kill at each.

use crate::support::crash_rounds::run_at;
use agent_team::store::failpoint::POINTS;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// The failpoints that the sources pass to `hit` are exactly those of the list.
#[test]
fn the_list_of_failpoints_is_complete() {
    let mut met = BTreeMap::<String, u32>::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("hit(\"").skip(1) {
                *met.entry(rest.split('"').next().unwrap().to_owned()).or_default() += 1;
            }
        }
    }
    let listed: BTreeSet<&str> = POINTS.into_iter().collect();
    assert_eq!(listed.len(), POINTS.len(), "a failpoint is listed twice");
    let called: BTreeSet<&str> = met.keys().map(String::as_str).collect();
    assert_eq!(called, listed);
    let twice: Vec<_> = met.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "one name, one place: {twice:?}");
}

/// One kill at each failpoint of an agent or a lead. `mail::killed_senders_and_readers` tests those of the
/// mailbox, `work::tests::random` those of clones, `lifecycle::undo` those of undo,
/// `lifecycle::background` those of background commands, `lifecycle::subagents` those of subagents, `lifecycle::timers` those of timers, `lifecycle::upkeep` those of upkeep, `doors::mcp_member` those of served members,
/// the tests of `team-host` those of relays,
/// `doors::acp_failures` those of agents of other vendors. The score card (`scripts/torture --only R2`) tests all of them repeatedly.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_team_survives_a_kill_at_every_failpoint() {
    let seed = RandomState::new().hash_one(POINTS);
    println!("seed {seed}");
    let light = [
        "send.",
        "drain.",
        "recover.",
        "work.",
        "undo.",
        "served.",
        "acp.",
        "background.",
        "timer.",
        "sub.",
        "upkeep.",
        "outbox.",
        "arrivals.",
    ];
    let heavy = |point: &&str| !light.iter().any(|light| point.starts_with(light));
    let points: Vec<&'static str> = POINTS.into_iter().filter(heavy).collect();
    let summary = run_at(&points, 1, seed, None);
    println!("{:?}: {} messages acknowledged", summary.kills, summary.told);
    assert!(summary.faults.is_empty(), "{}", summary.faults.join("\n\n"));
    assert_eq!(summary.kills.len(), points.len());
}
