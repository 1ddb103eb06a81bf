//! Writes measured figures into the score card of docs/reliability.md, with date, version and machine. They
//! replace the figures of the same number.

use crate::card::{Cells, table};
use crate::support::child_process;
use agent_team::store::{Clock, SystemClock};
use nix::sys::utsname::uname;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- written by scripts/torture --publish, from here -->";
const END: &str = "<!-- to here -->";

pub(crate) fn write(measured: &[Cells]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (card, after) = rest.split_once(END).unwrap();
    let is_new = |id: &str| measured.iter().any(|row| row[0] == id);
    let mut rows: Vec<Cells> = published(card).into_iter().filter(|row| !is_new(&row[0])).collect();
    rows.extend(measured.to_vec());
    rows.sort_by_key(|row| row[0].trim_start_matches('R').parse::<u32>().unwrap());
    child_process::write(
        &path,
        format!("{before}{BEGIN}\n\n{}\n\n{}\n\n{END}{after}", about(), table(&rows)),
    );
}

/// The rows that the score card has already.
fn published(card: &str) -> Vec<Cells> {
    let rows = card.lines().filter(|line| line.starts_with("| R"));
    let cells = |row: &str| {
        let cells: Vec<String> =
            row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap()
    };
    rows.map(cells).collect()
}

fn about() -> String {
    let cores = std::thread::available_parallelism().unwrap();
    let system = uname().unwrap();
    let kernel = system.release().to_string_lossy().into_owned();
    let kernel: Vec<&str> = kernel.split('.').take(2).collect();
    format!(
        "Version {}, last run on {}. Machine: {cores} cores, {} {}, {}.",
        env!("CARGO_PKG_VERSION"),
        today(),
        system.sysname().to_string_lossy(),
        kernel.join("."),
        file_system(),
    )
}

fn today() -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are enough for a date")]
    let now = jiff::Timestamp::from_second(SystemClock.now().as_secs() as i64).unwrap();
    now.strftime("%Y-%m-%d").to_string()
}

/// The file system of the folder for temporary files, from the mount table, because `stat` cannot distinguish
/// ext2, ext3 and ext4.
fn file_system() -> String {
    let folder = tempfile::tempdir().unwrap();
    let here = fs::canonicalize(folder.path()).unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let around = mounts.filter(|(place, _)| here.starts_with(place));
    let nearest = around.max_by_key(|(place, _)| place.len());
    nearest.map_or("unknown file system", |(_, kind)| kind).to_owned()
}
