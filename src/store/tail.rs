//! Reading a growing file of lines from where one stopped the last time.

use super::StoreError;
use super::jsonl::{Lines, Piece};
use crate::os::file::{Access, At, open_known};
use crate::wire::message::MAX_LINE_BYTES;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Longest line that is shown whole; longer ones are left out.
const LONGEST: usize = 4 * MAX_LINE_BYTES;

/// A place in a growing file.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// The file that was read, and how far.
    place: Option<(u64, u64)>,
}

impl Tail {
    /// From the beginning of the file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, place: None }
    }

    /// Where the next read begins.
    pub(crate) fn offset(&self) -> u64 {
        self.place.map_or(0, |(_, offset)| offset)
    }

    /// From a known place of the file that is there now; from its beginning when it is shorter.
    pub(crate) fn at(path: PathBuf, offset: u64) -> Self {
        let known = std::fs::symlink_metadata(&path).ok().filter(|known| known.len() >= offset);
        Self { path, place: known.map(|known| (known.ino(), offset)) }
    }

    /// From the last `bytes` of the file on; the first line may then be a piece of one.
    pub(crate) fn of_last(path: PathBuf, bytes: u64) -> Self {
        let length = std::fs::symlink_metadata(&path).map_or(0, |known| known.len());
        Self::at(path, length.saturating_sub(bytes))
    }

    /// Which file was read; another number means that it was read from its beginning.
    pub(crate) fn file(&self) -> Option<u64> {
        self.place.map(|(inode, _)| inode)
    }

    /// The whole lines that came since. A file that was replaced is read from its beginning.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read_new(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let (file, known) = match open_known(&self.path, Access::Read) {
            Err(why) if why.is_missing() => return Ok(Vec::new()),
            other => other?,
        };
        let begin = match self.place {
            Some((inode, offset)) if inode == known.ino() && offset <= known.len() => offset,
            Some(_) | None => 0,
        };
        let mut lines = Lines::from(file, begin, LONGEST).at(&self.path)?;
        let mut found = Vec::new();
        let mut end = begin;
        while let Some(framed) = lines.next().at(&self.path)? {
            match framed.piece {
                Piece::Line => found.push(framed.bytes.to_vec()),
                Piece::Chunk => {}
                Piece::Fragment => break,
            }
            end = lines.offset();
        }
        self.place = Some((known.ino(), end));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn lines_come_once_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut tail = Tail::new(path.clone());
        assert!(tail.read_new().unwrap().is_empty());
        let append = |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("one\ntw");
        assert_eq!(tail.read_new().unwrap(), [b"one"]);
        append("o\n");
        assert_eq!(tail.read_new().unwrap(), [b"two"]);
        std::fs::remove_file(&path).unwrap();
        append("new\n");
        assert_eq!(tail.read_new().unwrap(), [b"new"]);
        assert!(tail.read_new().unwrap().is_empty());
    }
}
