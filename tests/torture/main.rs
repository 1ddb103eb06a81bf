//! The score card of reliability (docs/reliability.md): figures R1 to R18, R21, R23 and R24, each with its target.
//!
//! `scripts/torture` runs it in a chosen length; `scripts/check --all` runs the short form, in which every figure
//! has to meet its target at a small size. `cargo test` sees it as an ignored test. Speed is judged in release
//! builds only. No process that a figure starts may be left when the figure ends.

// Clippy's exemptions for tests then cover the helpers, too.
#![cfg(test)]

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "tests/it uses the rest")]
mod support;

mod aftermath;
mod bad_endpoint;
mod by_tests;
mod card;
mod checker;
mod crash_states;
mod disk;
mod endings;
mod full_disk;
mod idle;
mod latency;
mod long_run;
mod mount;
mod options;
mod points;
mod power_cuts;
mod publish;
mod random_kills;
mod rng;
mod run;
mod soak;
mod writers;

use card::{Cells, Finding, Row, Verdict};
use options::{Action, Options, Publish};
use run::{Length, Run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

type Measure = fn(Run) -> Vec<Finding>;

/// The figures, in the order of the score card.
const FIGURES: &[(&str, Measure)] = &[
    ("R1", random_kills::measure),
    ("R2", points::measure),
    ("R3", power_cuts::measure),
    ("R4", crash_states::measure),
    ("R5", writers::measure),
    ("R6", writers::of_shells),
    ("R7", latency::measure),
    ("R8", latency::of_wakes),
    ("R9", idle::measure),
    ("R9", idle::of_many),
    ("R10", by_tests::of_system_calls),
    ("R11", full_disk::measure),
    ("R12", endings::measure),
    ("R13", by_tests::of_escapes),
    ("R14", endings::of_leads),
    ("R15", endings::of_races),
    ("R16", by_tests::of_pids),
    ("R17", bad_endpoint::measure),
    ("R18", checker::measure),
    ("R21", soak::measure),
    ("R23", long_run::measure),
    ("R24", by_tests::of_tasks),
];

fn main() -> ExitCode {
    if support::child_process::work() {
        return ExitCode::SUCCESS;
    }
    match Options::read(std::env::args().skip(1), &is_figure) {
        Ok(Action::Run(options)) => run(&options),
        Ok(Action::List) => {
            println!("{}: test", options::NAME);
            ExitCode::SUCCESS
        }
        Ok(Action::Ignored) => {
            println!("test {} ... ignored, long: scripts/check --all runs it", options::NAME);
            println!("test result: ok. 0 passed; 0 failed; 1 ignored");
            ExitCode::SUCCESS
        }
        Ok(Action::Nothing) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: {why}\n{}", options::USAGE);
            ExitCode::from(2)
        }
    }
}

fn is_figure(id: &str) -> bool {
    FIGURES.iter().any(|(figure, _)| *figure == id)
}

fn run(options: &Options) -> ExitCode {
    aftermath::adopt_orphans();
    eprintln!("seed {}", options.run.seed);
    let mut rows = Vec::new();
    for (id, measure) in FIGURES.iter().copied() {
        if options.is_chosen(id) {
            eprintln!("{id} …");
            let met = measured(id, measure, options.run);
            for row in &met {
                eprintln!("{}", row.line());
            }
            rows.extend(met);
        }
    }
    let cells: Vec<Cells> = rows.iter().map(Row::cells).collect();
    println!("{}", card::table(&cells));
    if options.publish == Publish::Yes {
        publish::write(&cells);
    }
    let missed = rows.iter().filter(|row| row.finding.verdict == Verdict::Missed).count();
    if missed == 0 {
        println!("test {} ... ok ({} figures)", options::NAME, rows.len());
        println!("test result: ok. 1 passed; 0 failed; 0 ignored");
        ExitCode::SUCCESS
    } else {
        println!("test {} ... FAILED ({missed} missed, seed {})", options::NAME, options.run.seed);
        println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
        ExitCode::FAILURE
    }
}

/// Runs a figure. If it panics or leaves a process behind, it has missed its target.
fn measured(id: &'static str, measure: Measure, run: Run) -> Vec<Row> {
    let begun = Instant::now();
    let mut findings = catch_unwind(AssertUnwindSafe(|| measure(run))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        let said = said.and_then(|said| said.lines().next()).unwrap_or("it panicked");
        vec![Finding::new("it runs to its end", "no panic", said, Verdict::Missed)]
    });
    let left = aftermath::left_behind();
    if !left.is_empty() {
        let said = left.join(", ");
        findings.push(Finding::new("processes left behind", "0", &said, Verdict::Missed));
    }
    let seconds = begun.elapsed().as_secs_f64();
    findings.into_iter().map(|finding| Row { id, finding, seconds, run }).collect()
}
