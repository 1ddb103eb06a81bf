//! Results of tools that are too long for a model, whole: `log/.out/NAME-NUMBER.txt`, which it may read.
//!
//! *Invariant:* of one agent there are never more than [`MOST`], the oldest goes first, and none is longer
//! than [`LONGEST`]. What stands in them, and what of it is a secret, is the caller's business.

use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, create_new};
use crate::wire::AgentName;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How many of one agent are kept.
pub const MOST: usize = 16;

/// Bytes of the longest one; it fits what file tools read.
pub const LONGEST: usize = 8 * 1024 * 1024;

/// A result that is being kept.
#[derive(Debug)]
pub struct OutputSpill {
    file: File,
    path: PathBuf,
    room: usize,
    /// It has been longer than may be kept.
    is_cut: bool,
}

impl OutputSpill {
    /// Begins one, in the place of the agent's oldest if it has enough of them.
    ///
    /// # Errors
    /// The folder refused.
    pub fn begin(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let earlier = all(dir, name)?;
        for (_, path) in earlier.iter().rev().skip(MOST - 1) {
            fs::remove_file(path).at(path)?;
        }
        let number = earlier.last().map_or(0, |(number, _)| *number).saturating_add(1);
        let path = dir.kept(name, number);
        let file = create_new(&path, Access::Append)?;
        Ok(Self { file, path, room: LONGEST, is_cut: false })
    }

    /// Adds to it what there is room for.
    ///
    /// # Errors
    /// The disk refused.
    pub fn push(&mut self, text: &str) -> Result<(), StoreError> {
        let fits = text.get(..text.floor_char_boundary(self.room)).unwrap_or_default();
        self.file.write_all(fits.as_bytes()).at(&self.path)?;
        if fits.len() < text.len() {
            // Nothing after a gap.
            (self.room, self.is_cut) = (0, true);
        } else {
            self.room -= fits.len();
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its end is missing.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Takes it away again.
    pub fn discard(self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Everything that is kept of an agent, the oldest first.
pub(super) fn all(dir: &TeamDir, name: &AgentName) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let folder = dir.kept_results();
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).at(&folder)? {
        let path = entry.at(&folder)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Names may have dashes in them, too.
        let parts = file.strip_suffix(".txt").and_then(|stem| stem.rsplit_once('-'));
        let number = parts.filter(|(owner, _)| *owner == name.as_str());
        found.extend(number.and_then(|(_, number)| Some((number.parse().ok()?, path))));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn team() -> (tempfile::TempDir, TeamDir, AgentName) {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, dir, AgentName::member("a-1").unwrap())
    }

    #[test]
    fn the_oldest_goes_and_no_number_comes_twice() {
        let (_folder, dir, alice) = team();
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
        assert_eq!(last.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(other.path().exists(), "it is somebody else's");
        OutputSpill::begin(&dir, &alice).unwrap().discard();
        assert_eq!(all(&dir, &alice).unwrap().len(), MOST - 1);
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_nothing_after_a_gap() {
        let (_folder, dir, alice) = team();
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
