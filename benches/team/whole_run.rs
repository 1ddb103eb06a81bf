//! P15: a whole run of a lead in a new folder, in which the rehearsal model spawns one teammate.

use crate::bench_team::new_folder;
use crate::figure::{Figure, Size, Target, median};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The number of runs in each round.
const RUNS: usize = 3;

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let took: Vec<f64> = (0..size.rounds * RUNS).map(|_| run()).collect();
    vec![Figure {
        id: "P15",
        measure: "`team lead -p` with one spawn on the rehearsal model, whole run".into(),
        unit: "s",
        ours: median(&took),
        reference: None,
        target: Target::AtMost(0.15),
    }]
}

/// Returns the seconds from the start of a lead until it has exited and its teammate is stopped.
fn run() -> f64 {
    let folder = new_folder();
    let mut lead = Command::new(env!("CARGO_BIN_EXE_team"));
    lead.args(["lead", "-p", "Spawn alice (coder).", "--model", "rehearsal"]);
    // Without it, the folder of a team around this one would be taken.
    lead.arg("--dir").arg(folder.path().join(".team"));
    lead.current_dir(folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    lead.env("HOME", folder.path()).stdin(Stdio::null());
    let start = Instant::now();
    let output = lead.output().unwrap();
    let took = start.elapsed().as_secs_f64();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Spawned alice"), "{output:?}");
    took
}
