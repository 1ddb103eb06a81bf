//! Skipped tests. A skip is printed past the capture of the test runner, and recorded for the summary of the run.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The folder of the records, from `.cargo/config.toml`.
const FOLDER: Option<&str> = option_env!("TEST_SKIPS");

/// Reports that the test of this thread is skipped, or a part of it, for this reason.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    let reason = reason.lines().next().unwrap_or_default();
    // `eprintln!` would be captured, and lost if the test passes.
    let _unseen = writeln!(std::io::stderr(), "SKIPPED: {reason} ({name})");
    if let Some(folder) = FOLDER.map(PathBuf::from) {
        // A folder that this user cannot write has no records; the line above was printed.
        let _exists = fs::create_dir_all(&folder);
        let file = format!("{}-{}", std::process::id(), name.replace([':', '/', ' '], "_"));
        let record = fs::File::create(folder.join(file));
        let _unwritten = record.and_then(|mut record| writeln!(record, "{name}: {reason}"));
    }
}
