//! The structured log of an agent, `log/NAME.jsonl`, which is rotated by its size.
//!
//! *Invariant:* a log becomes `log/.old/NAME-1.jsonl` by a rename, after each older one was renamed to the next number, the
//! oldest first. A kill in between leaves a number free, which the next rotation uses; no log is lost that is not the oldest.

use super::file::read::known_if_there;
use super::file::tail::{LogPart, Tail, open_parts};
use super::teamdir::make_folder;
use super::{StoreError, TeamDir, failpoint};
use crate::os::file::{Access, At, open_or_create};
use crate::wire::limits::{LOG_BYTES, OLD_LOGS};
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

/// An open log, for the only process that writes it.
#[derive(Debug)]
pub(crate) struct ProcessLog {
    dir: TeamDir,
    name: AgentName,
    file: File,
    bytes: u64,
    /// The size at which the log is rotated; it rises if a rotation fails.
    most: u64,
}

impl ProcessLog {
    /// Opens the log for appending. Rotates one that is too large.
    pub(crate) fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        Self::with_most(dir, name, LOG_BYTES)
    }

    fn with_most(dir: &TeamDir, name: &AgentName, most: u64) -> Result<Self, StoreError> {
        let (file, bytes) = Self::open_file(dir, name)?;
        let mut log = Self { dir: dir.clone(), name: name.clone(), file, bytes, most };
        log.rotate_if_full();
        Ok(log)
    }

    fn open_file(dir: &TeamDir, name: &AgentName) -> Result<(File, u64), StoreError> {
        let path = dir.log(name);
        let file = open_or_create(&path, Access::Append)?;
        let bytes = file.metadata().at(&path)?.len();
        Ok((file, bytes))
    }

    /// Rotates a full log. One that cannot be rotated grows on, and is tried again when it has grown by as much.
    fn rotate_if_full(&mut self) {
        if self.bytes < self.most {
            return;
        }
        match rotate(&self.dir, &self.name).and_then(|()| Self::open_file(&self.dir, &self.name)) {
            Ok((file, bytes)) => (self.file, self.bytes) = (file, bytes),
            // No log line can tell of it.
            Err(_) => self.most = self.bytes.saturating_add(LOG_BYTES),
        }
    }
}

impl Write for ProcessLog {
    /// Appends a line, and rotates the log if it is full.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        self.rotate_if_full();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rotate(dir: &TeamDir, name: &AgentName) -> Result<(), StoreError> {
    make_folder(&dir.old_logs())?;
    let is_free = |number: &usize| !dir.old_log(name, *number).exists();
    let free = (1..OLD_LOGS).find(is_free).unwrap_or(OLD_LOGS);
    for number in (1..free).rev() {
        let older = dir.old_log(name, number);
        fs::rename(&older, dir.old_log(name, number + 1)).at(&older)?;
    }
    failpoint::hit("upkeep.rotated");
    let full = dir.log(name);
    fs::rename(&full, dir.old_log(name, 1)).at(&full)?;
    Ok(())
}

/// The paths of the rotated logs of an agent, the newest first.
fn older(dir: &TeamDir, name: &AgentName) -> Vec<PathBuf> {
    (1..=OLD_LOGS).map(|number| dir.old_log(name, number)).collect()
}

/// Returns a position in the log of an agent, at the beginning of its oldest file.
pub(crate) fn tail(dir: &TeamDir, name: &AgentName) -> Tail {
    Tail::rotated(dir.log(name), older(dir, name))
}

/// Opens the log of an agent and its rotated ones, the oldest first.
pub(crate) fn parts(dir: &TeamDir, name: &AgentName) -> Result<Vec<LogPart>, StoreError> {
    let mut parts = open_parts(&dir.log(name), &older(dir, name))?;
    parts.reverse();
    Ok(parts)
}

/// Returns the time of a line of a log.
pub(crate) fn time(line: &[u8]) -> Option<WallTime> {
    logged_at(&serde_json::from_slice(line).ok()?)
}

/// Returns the time of the object that a line of a log is: text by RFC 3339, or seconds since 1970.
pub(crate) fn logged_at(object: &Map<String, Value>) -> Option<WallTime> {
    let at = object.get("timestamp")?;
    let read = |text: &str| Some(text.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64());
    at.as_f64().or_else(|| read(at.as_str()?)).map(WallTime::from_secs)
}

/// Opens the file for the output of a spawned member. One that is too large becomes `log/.old/NAME.err`.
pub(crate) fn open_printed(dir: &TeamDir, name: &AgentName) -> Result<File, StoreError> {
    let path = dir.printed(name);
    if known_if_there(&path)?.is_some_and(|known| known.len() >= LOG_BYTES) {
        make_folder(&dir.old_logs())?;
        let old = dir.old_printed(name);
        fs::rename(&path, &old).at(&path)?;
    }
    Ok(open_or_create(&path, Access::Append)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::path::Path;

    fn numbers(dir: &TeamDir, name: &AgentName) -> Vec<(usize, String)> {
        let read = |number| Some((number, fs::read_to_string(dir.old_log(name, number)).ok()?));
        (1..OLD_LOGS + 3).filter_map(read).collect()
    }

    #[test]
    fn a_full_log_is_rotated_and_only_the_oldest_is_dropped() {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        let mut log = ProcessLog::with_most(&dir, &lead, 10).unwrap();
        for number in 1..=8 {
            log.write_all(format!("line {number} is full\n").as_bytes()).unwrap();
            log.write_all(b"short\n").unwrap();
        }
        let old = numbers(&dir, &lead);
        assert_eq!(old.len(), OLD_LOGS);
        assert_eq!(old[0], (1, "short\nline 8 is full\n".into()));
        assert_eq!(old[4], (5, "short\nline 4 is full\n".into()));
        assert_eq!(fs::read_to_string(dir.log(&lead)).unwrap(), "short\n");
    }

    #[test]
    fn a_rotation_that_was_cut_off_is_finished_without_a_loss() {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        make_folder(&dir.old_logs()).unwrap();
        let put =
            |path: &Path, text: &str| fs::File::create(path).unwrap().write_all(text.as_bytes());
        for number in 1..=OLD_LOGS {
            put(&dir.old_log(&lead, number), &number.to_string()).unwrap();
        }
        put(&dir.log(&lead), "the full one").unwrap();
        // The kill came after 5 was replaced by 4, and 4 by 3.
        for number in [4, 3] {
            fs::rename(dir.old_log(&lead, number), dir.old_log(&lead, number + 1)).unwrap();
        }
        let log = ProcessLog::with_most(&dir, &lead, 5).unwrap();
        assert_eq!(log.bytes, 0);
        let texts: Vec<_> = numbers(&dir, &lead).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["the full one", "1", "2", "3", "4"]);
    }
}
