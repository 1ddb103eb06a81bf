//! Tool results that are too long for a model, stored whole in `log/.out/NAME-NUMBER.txt`, where the model can
//! read them.
//!
//! The output of background commands is in `log/.out/NAME-ID.txt`, whatever its length.
//!
//! *Invariant:* an agent has at most [`MOST`] of the first kind, the oldest is removed first, and none is longer than
//! [`LONGEST`]. The caller redacts secrets.

use super::file::read::{known_if_there, numbered};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, create_new};
use crate::wire::AgentName;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The maximum number of stored results of one agent.
pub(crate) const MOST: usize = 16;

/// The maximum size of a stored result in bytes; file tools can read files of this size.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct OutputSpill {
    file: File,
    path: PathBuf,
    room: usize,
    is_cut: bool,
}

impl OutputSpill {
    /// Creates the file, and removes the oldest one if the agent has [`MOST`] of them.
    pub(crate) fn begin(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let earlier = all(dir, name)?;
        for (_, path) in earlier.iter().rev().skip(MOST - 1) {
            fs::remove_file(path).at(path)?;
        }
        let number = earlier.last().map_or(0, |(number, _)| *number).saturating_add(1);
        let path = dir.kept_results().join(format!("{name}-{number}.txt"));
        let file = create_new(&path, Access::Append)?;
        Ok(Self { file, path, room: LONGEST, is_cut: false })
    }

    /// Creates the file of the output of a background command.
    pub(crate) fn of_command(
        dir: &TeamDir,
        name: &AgentName,
        id: &str,
    ) -> Result<Self, StoreError> {
        let path = dir.command_output(name, id);
        if known_if_there(&path)?.is_some() {
            fs::remove_file(&path).at(&path)?;
        }
        let file = create_new(&path, Access::Append)?;
        Ok(Self { file, path, room: LONGEST, is_cut: false })
    }

    /// Appends as much of the text as fits. Fails if the disk is full.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), StoreError> {
        let fits = text.get(..text.floor_char_boundary(self.room)).unwrap_or_default();
        self.file.write_all(fits.as_bytes()).at(&self.path)?;
        if fits.len() < text.len() {
            // Nothing more is written, since later text would follow a gap.
            (self.room, self.is_cut) = (0, true);
        } else {
            self.room -= fits.len();
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the end of the result was cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(crate) fn discard(self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Returns the number and the path of every stored result of an agent, oldest first.
pub(super) fn all(dir: &TeamDir, name: &AgentName) -> Result<Vec<(u64, PathBuf)>, FileError> {
    numbered(&dir.kept_results(), name, ".txt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn the_oldest_is_removed_and_numbers_do_not_repeat() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("a-1").unwrap();
        let other = OutputSpill::begin(&dir, &AgentName::member("a").unwrap()).unwrap();
        for number in 1..=MOST as u64 + 5 {
            let mut kept = OutputSpill::begin(&dir, &alice).unwrap();
            kept.push(&format!("result {number}")).unwrap();
        }
        let left = all(&dir, &alice).unwrap();
        let numbers: Vec<u64> = left.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (6..=21).collect::<Vec<u64>>());
        let (_, last) = left.last().unwrap();
        assert_eq!(fs::read_to_string(last).unwrap(), "result 21");
        assert!(other.path().exists(), "it belongs to another agent");
        OutputSpill::begin(&dir, &alice).unwrap().discard();
        assert_eq!(all(&dir, &alice).unwrap().len(), MOST - 1);
    }

    #[test]
    fn a_result_is_cut_at_the_limit_without_a_gap() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("a-1").unwrap();
        let mut kept = OutputSpill::begin(&dir, &alice).unwrap();
        let half = "ä".repeat(LONGEST / 4);
        kept.push(&half).unwrap();
        kept.push("x").unwrap();
        assert!(!kept.is_cut());
        kept.push(&half).unwrap();
        kept.push("y").unwrap();
        assert!(kept.is_cut());
        let text = fs::read_to_string(kept.path()).unwrap();
        assert!(text.len() <= LONGEST && text.len() > LONGEST - 2, "{}", text.len());
        assert!(text.ends_with('ä'), "a character was torn, or something stands after a gap");
    }
}
