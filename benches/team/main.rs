//! Compares the team with the best that the machine can do. `scripts/bench` runs it with the full sizes.
//!
//! This program measures every reference in the same run, alternating with our code, and compares medians,
//! because absolute figures differ between machines. `scripts/check --all` runs it with tiny sizes and checks
//! only that every figure is produced.

// Tells clippy that this is test code: a benchmark counts as a test.
#![cfg(test)]

#[path = "../../tests/support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "tests/it uses the rest")]
mod support;

mod bench_team;
mod bulk;
mod calls;
mod child_process;
mod commands;
mod figure;
mod installed;
mod large;
mod long_life;
mod members;
mod peers;
mod poll;
mod scripts;
mod send;
mod terminal;
mod tokens;
mod views;
mod wake;
mod walls;
mod whole_run;
mod whole_team;
mod writers;

use child_process::Job;
use figure::{Figure, Size};
use std::process::ExitCode;

/// The ids of figures, and the function that measures them.
type Group = (&'static [&'static str], fn(&Size) -> Vec<Figure>);

const BENCHES: [Group; 17] = [
    (&["P1", "P2"], send::measure),
    (&["P3", "P4"], writers::measure),
    (&["P5"], bulk::behind_a_queue),
    (&["P6"], bulk::taking_in),
    (&["P7"], wake::measure),
    (&["P8"], bulk::to_many),
    (&["P9", "P10"], members::measure),
    (&["P11"], large::measure),
    (&["P12"], calls::measure),
    (&["P13"], commands::measure),
    (&["P14", "P21"], long_life::measure),
    (&["P15"], whole_run::measure),
    (&["P16"], tokens::measure),
    (&["P17"], walls::measure),
    (&["P19"], installed::measure),
    (&["P20"], whole_team::measure),
    (&["V1", "V2", "V3", "V4", "V5"], views::measure),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, job] = words.as_slice()
        && flag == child_process::FLAG
    {
        work(&serde_json::from_str(job).unwrap());
        return ExitCode::SUCCESS;
    }
    let has = |flag: &str| words.iter().any(|word| word == flag);
    if !has("--bench") {
        return smoke(&words);
    }
    if let Some((_, folder)) =
        words.iter().zip(words.iter().skip(1)).find(|(flag, _)| *flag == "--in")
    {
        bench_team::make_in(folder);
    }
    if has("--peers") {
        peers::print(&peers::FULL, has("--json"));
        return ExitCode::SUCCESS;
    }
    let only: Vec<&str> =
        words.iter().map(String::as_str).filter(|w| w.starts_with(['P', 'V'])).collect();
    let figures = run(&only, &figure::FULL);
    if has("--json") {
        println!("{}", figure::json(&figures));
    } else {
        println!("{}", figure::table(&figures));
    }
    ExitCode::SUCCESS
}

/// Does the job of a child process.
fn work(job: &Job) {
    match job {
        Job::Write { way, number, seconds } => writers::write(way, *number, *seconds),
        Job::Own { way } => writers::own(way),
        Job::Wake { way } => wake::own(way),
        Job::Notify { way } => peers::jobs::notify(way),
        Job::Time { way, times } => peers::jobs::time(way, *times),
        Job::Fill { way, count } => peers::jobs::fill(way, *count),
        Job::Idle => members::idle(),
    }
}

fn run(only: &[&str], size: &Size) -> Vec<Figure> {
    let chosen = |id: &str| only.is_empty() || only.contains(&id);
    let mut figures = Vec::new();
    for (ids, measure) in BENCHES {
        if ids.iter().any(|id| chosen(id)) {
            eprintln!("measuring {} …", ids.join(", "));
            figures.extend(measure(size).into_iter().filter(|figure| chosen(figure.id)));
        }
    }
    figures
}

/// Measures tiny sizes as a test: every figure must be produced and valid. To the usual test harness, whose
/// filters and options arrive here too, it is an ignored test called `bench`.
fn smoke(words: &[String]) -> ExitCode {
    let has = |flag: &str| words.iter().any(|word| word == flag);
    let is_meant =
        words.iter().all(|word| word.starts_with('-') || "bench".contains(word.as_str()));
    if has("--list") {
        println!("bench: test");
    } else if is_meant && (has("--ignored") || has("--include-ignored")) {
        let figures = run(&[], &figure::TINY);
        figure::check(&figures);
        peers::check();
        println!("test bench ... ok ({} figures)", figures.len());
        println!("test result: ok. 1 passed; 0 failed; 0 ignored");
    } else if is_meant {
        println!("test bench ... ignored, long: scripts/check --all runs it");
        println!("test result: ok. 0 passed; 0 failed; 1 ignored");
    }
    ExitCode::SUCCESS
}
