//! The newest line of output of an agent's running command, in `run/.state/NAME.output`; only that agent writes it.
//!
//! For display only: the line is overwritten in place and never synced, and a failed write is left out.

use crate::store::TeamDir;
use crate::wire::AgentName;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The maximum size of a line that is read, in bytes.
const LONGEST: usize = 4 * 1024;

#[derive(Debug)]
pub(crate) struct LastOutput(File);

impl LastOutput {
    /// Opens the file of an agent, empty.
    pub(crate) fn open(dir: &TeamDir, name: &AgentName) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        file.open(dir.last_output(name)).map(Self)
    }

    /// Sets the line; an empty one for no running command.
    pub(crate) fn set(&self, line: &str) {
        let end = (0..=line.len().min(LONGEST - 1)).rev().find(|at| line.is_char_boundary(*at));
        let mut bytes = line.as_bytes().get(..end.unwrap_or_default()).unwrap_or_default().to_vec();
        if !bytes.is_empty() {
            bytes.push(b'\n');
        }
        let written =
            self.0.write_all_at(&bytes, 0).and_then(|()| self.0.set_len(bytes.len() as u64));
        written.unwrap_or_default();
    }
}

/// Returns the newest line of output of an agent's running command; empty if there is none.
pub(crate) fn read(dir: &TeamDir, name: &AgentName) -> String {
    let bytes = fs::read(dir.last_output(name)).unwrap_or_default();
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line.get(..LONGEST.min(line.len())).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn the_last_line_is_read_until_it_is_cleared() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(read(&dir, &alice), "");
        let output = LastOutput::open(&dir, &alice).unwrap();
        for line in ["a long line of output", "short", "é", ""] {
            output.set(line);
            assert_eq!(read(&dir, &alice), line);
        }
        output.set(&"é".repeat(LONGEST));
        assert_eq!(read(&dir, &alice), "é".repeat((LONGEST - 1) / 2));
        // A process that begins again has no command.
        LastOutput::open(&dir, &alice).unwrap();
        assert_eq!(read(&dir, &alice), "");
    }
}
