//! The last words of `cargo test`: the tests that were skipped, each with its reason. This is no test; it runs after
//! the test binaries before it in the alphabet, and prints their records (tests/support/skips.rs).

use std::path::PathBuf;
use std::{env, fs, io::Write};

fn main() {
    // A runner that asks for the tests of this binary learns that there is none.
    if env::args().any(|arg| arg == "--list") {
        return;
    }
    let Some(folder) = option_env!("TEST_SKIPS").map(PathBuf::from) else { return };
    let records = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut skips: Vec<String> =
        records.filter_map(|record| fs::read_to_string(record.path()).ok()).collect();
    skips.sort();
    skips.dedup();
    let mut out = std::io::stdout();
    if !skips.is_empty() {
        let _unread =
            write!(out, "\nskipped {}, with the reason:\n  {}", skips.len(), skips.join("  "));
    }
    let _nothing_recorded = fs::remove_dir_all(folder);
}
