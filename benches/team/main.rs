//! Measures the team against what the machine can do at best: `scripts/bench` runs it, in full.
//!
//! Every reference is measured by this program in the same run, round by round in turn with ours, and
//! medians are compared: absolute figures move from machine to machine. `cargo test` runs the same with
//! tiny sizes and looks only at whether every figure comes out; how long anything took is no test.

// For clippy: a benchmark counts as a test.
#![cfg(test)]

mod bulk;
mod calls;
mod child_process;
mod commands;
mod crowd;
mod figure;
mod large;
mod members;
mod place;
mod scripts;
mod send;
mod views;
mod wake;

use child_process::Job;
use figure::{Figure, Size};
use std::process::ExitCode;

/// Which figures a function measures.
type TaskContext = (&'static [&'static str], fn(&Size) -> Vec<Figure>);

const BENCHES: [TaskContext; 12] = [
    (&["P1", "P2"], send::measure),
    (&["P3", "P4"], crowd::measure),
    (&["P5"], bulk::behind_a_queue),
    (&["P6"], bulk::taking_in),
    (&["P7"], wake::measure),
    (&["P8"], bulk::to_many),
    (&["P9", "P10"], members::measure),
    (&["P11"], large::team),
    (&["P12"], calls::measure),
    (&["P13"], commands::measure),
    (&["P14"], large::long_life),
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
        place::make_in(folder);
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
        Job::Write { way, number, seconds } => crowd::write(way, *number, *seconds),
        Job::Own { way } => crowd::own(way),
        Job::Wake { way } => wake::own(way),
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

/// What `cargo test` sees of this: every figure comes out and can be read. Test filters and options of
/// the usual harness arrive here too; a filter that does not name this means another test.
fn smoke(words: &[String]) -> ExitCode {
    let is_meant =
        words.iter().all(|word| word.starts_with('-') || "bench".contains(word.as_str()));
    if words.iter().any(|word| word == "--list") {
        println!("bench: test");
    } else if is_meant {
        let figures = run(&[], &figure::TINY);
        figure::check(&figures);
        println!("test bench ... ok ({} figures)", figures.len());
    }
    ExitCode::SUCCESS
}
