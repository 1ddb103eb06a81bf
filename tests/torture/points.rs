//! R2: kills of a whole team at every failpoint.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::support::crash_rounds::run_at;
use agent_team::store::failpoint::{ENABLED, POINTS};

const TARGET: &str = "each reached, 0 lost, 0 twice, 0 out of order";

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let kills: u64 = run.of(1, 1, 100);
    // The short form leaves the other failpoints to the test `fault::failpoints`.
    let is_left_out = |point: &&str| point.starts_with("recover.");
    // The property test of `work` kills at those of clones, with seeds of its own, `lifecycle::undo` at those of undo, and
    // `lifecycle::background` at those of background commands, `lifecycle::timers` at those of timers,
    // `lifecycle::subagents` at those of subagents, `lifecycle::upkeep` at those of upkeep, and `team-host` at those of relays.
    let is_elsewhere = |point: &&str| {
        [
            "work.",
            "undo.",
            "served.",
            "background.",
            "timer.",
            "sub.",
            "upkeep.",
            "outbox.",
            "arrivals.",
        ]
        .iter()
        .any(|it| point.starts_with(it))
    };
    let all: Vec<&str> = POINTS.into_iter().filter(|point| !is_elsewhere(point)).collect();
    let short = all.iter().copied().filter(is_left_out).collect();
    let points: Vec<&str> = run.of(short, all.clone(), all);
    let measure = |kills| {
        format!("a team is killed at each of {} failpoints, {kills} times each", points.len())
    };
    if !ENABLED {
        let why = "this build has no failpoints: it needs `--features failpoints`";
        return vec![Finding::skipped(&measure(kills), TARGET, why)];
    }
    let summary = run_at(&points, kills, run.seed, run.until());
    let kills_each =
        points.iter().map(|point| summary.kills.get(point).copied().unwrap_or(0)).min();
    let reached = points.iter().filter(|point| summary.kills.contains_key(*point)).count();
    let killed: u64 = summary.kills.values().sum();
    for fault in &summary.faults {
        eprintln!("{fault}");
    }
    let result = format!(
        "{reached} reached, {killed} kills, {} messages acknowledged, {} faults",
        summary.told,
        summary.faults.len(),
    );
    let is_met = reached == points.len() && summary.faults.is_empty();
    let kills_each = kills_each.unwrap_or(0);
    let is_shorter = is_met && kills_each < kills;
    let verdict = if is_shorter { Verdict::Shorter } else { Verdict::of(is_met) };
    vec![Finding::new(&measure(kills_each), TARGET, &result, verdict)]
}
