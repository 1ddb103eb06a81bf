//! Puts the measured score card into docs/reliability.md, with what belongs to it: command, version, date,
//! machine.

use crate::card::{Row, table};
use crate::child;
use agent_team::store::{Clock, SystemClock};
use nix::sys::utsname::uname;
use std::path::Path;
use std::process::Command;

const BEGIN: &str = "<!-- card: scripts/torture --publish writes from here -->";
const END: &str = "<!-- to here -->";

pub(crate) fn write(rows: &[Row], seed: u64, command: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let about = about(seed, command);
    child::write(&path, format!("{before}{BEGIN}\n\n{about}\n{}\n\n{END}{after}", table(rows)));
}

fn about(seed: u64, command: &str) -> String {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cores = std::thread::available_parallelism().unwrap();
    let system = uname().unwrap();
    let kernel = system.release().to_string_lossy().into_owned();
    let kernel: Vec<&str> = kernel.split('.').take(2).collect();
    format!(
        "- Command: `{command}` ({build} build), version {}, {}, seed {seed}\n\
         - Machine: {cores} cores, {} {}, {}\n",
        env!("CARGO_PKG_VERSION"),
        today(),
        system.sysname().to_string_lossy(),
        kernel.join("."),
        file_system(),
    )
}

fn today() -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are enough for a date")]
    let now = jiff::Timestamp::from_second(SystemClock.now() as i64).unwrap();
    now.strftime("%Y-%m-%d").to_string()
}

/// Of the folder for temporary files, where the teams live.
fn file_system() -> String {
    let mut stat = Command::new("stat");
    stat.args(["-f", "-c", "%T"]).arg(tempfile::tempdir().unwrap().path());
    let said = stat.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().to_owned()
}
