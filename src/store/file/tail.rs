//! Reads a growing file of lines from the last position on, one line in memory at a time. The caller parses the
//! lines.

use super::jsonl::{LONGEST_LINE, Lines, Piece};
use super::read::open_if_there;
use crate::os::file::{At, FileError};
use crate::store::StoreError;
use crate::wire::WallTime;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// The size of the range at which the binary search for a time ends, in bytes.
const NEAR: u64 = 64 * 1024;

/// A position in a growing file.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// The inode of the file that was read, and the offset.
    place: Option<(u64, u64)>,
}

/// The lines that were appended since the last read.
#[derive(Debug)]
pub struct Fresh<'a> {
    tail: &'a mut Tail,
    /// `None` if there is no file.
    lines: Option<Lines>,
}

impl Tail {
    /// Starts at the beginning of a file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, place: None }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.place.map_or(0, |(_, offset)| offset)
    }

    /// Starts at an offset of the current file, or at its beginning if the file is shorter.
    pub(crate) fn at(path: PathBuf, offset: u64) -> Self {
        let known = std::fs::symlink_metadata(&path).ok().filter(|known| known.len() >= offset);
        Self { path, place: known.map(|known| (known.ino(), offset)) }
    }

    /// Starts `bytes` before the end of the file; the first line may be incomplete.
    pub(crate) fn of_last(path: PathBuf, bytes: u64) -> Self {
        let length = std::fs::symlink_metadata(&path).map_or(0, |known| known.len());
        Self::at(path, length.saturating_sub(bytes))
    }

    /// Starts near the first line that is not older than `since`, found by binary search. A few earlier lines may
    /// be returned as well. Fails if the file exists and cannot be read.
    pub fn since(
        path: PathBuf,
        since: WallTime,
        time: impl Fn(&[u8]) -> Option<WallTime>,
    ) -> Result<Self, StoreError> {
        let Some((file, known)) = open_if_there(&path)? else { return Ok(Self::new(path)) };
        // The first line after `early` is older than `since`, unless `early` is the beginning.
        let (mut early, mut late) = (0, known.len());
        while late - early > NEAR {
            let middle = early + (late - early) / 2;
            let first = first_time(&file, middle, late, &time).at(&path)?;
            if first.is_some_and(|first| first < since) {
                early = middle;
            } else {
                late = middle;
            }
        }
        let begin = if early == 0 { 0 } else { after_line(&file, early).at(&path)?.offset() };
        Ok(Self { path, place: Some((known.ino(), begin)) })
    }

    /// Starts at the last `count` lines. Fails if the file exists and cannot be read.
    pub fn last(path: PathBuf, count: usize) -> Result<Self, StoreError> {
        let Some((file, known)) = open_if_there(&path)? else { return Ok(Self::new(path)) };
        let mut block = vec![0; 64 * 1024];
        let mut end = known.len();
        // One more newline: the one that ends the preceding line.
        let mut wanted = count + 1;
        while end > 0 {
            let size = block.len().min(usize::try_from(end).unwrap_or(usize::MAX));
            let begin = end - size as u64;
            let bytes = block.get_mut(..size).unwrap_or_default();
            file.read_exact_at(bytes, begin).at(&path)?;
            for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                wanted -= 1;
                if wanted == 0 {
                    return Ok(Self { path, place: Some((known.ino(), begin + at as u64 + 1)) });
                }
            }
            end = begin;
        }
        Ok(Self { path, place: Some((known.ino(), 0)) })
    }

    /// Returns the inode of the file; a change means that a new file was read from its beginning.
    pub(crate) fn file(&self) -> Option<u64> {
        self.place.map(|(inode, _)| inode)
    }

    /// Returns the whole lines that were appended since the last read. A replaced file is read from its beginning.
    pub fn fresh(&mut self) -> Result<Fresh<'_>, StoreError> {
        let Some((file, known)) = open_if_there(&self.path)? else {
            return Ok(Fresh { tail: self, lines: None });
        };
        let begin = match self.place {
            Some((inode, offset)) if inode == known.ino() && offset <= known.len() => offset,
            Some(_) | None => 0,
        };
        let lines = Lines::from(file, begin, LONGEST_LINE).at(&self.path)?;
        self.place = Some((known.ino(), begin));
        Ok(Fresh { tail: self, lines: Some(lines) })
    }

    /// Reads the same lines as [`Tail::fresh`] into memory. Fails if the file exists and cannot be read.
    pub fn read_new(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        let mut fresh = self.fresh()?;
        while let Some(line) = fresh.next_line()? {
            found.push(line.to_vec());
        }
        Ok(found)
    }
}

impl Fresh<'_> {
    /// Reads the next line. Fails if the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, FileError> {
        let Self { tail, lines } = self;
        let Some(lines) = lines.as_mut() else { return Ok(None) };
        loop {
            let piece = match lines.next().at(&tail.path)?.map(|framed| framed.piece) {
                Some(Piece::Fragment) | None => return Ok(None),
                Some(piece) => piece,
            };
            tail.place = tail.place.map(|(inode, _)| (inode, lines.offset()));
            if piece == Piece::Line {
                return Ok(Some(lines.line()));
            }
        }
    }
}

/// Returns the time of the first line between `offset` and `end` that has one.
fn first_time(
    file: &File,
    offset: u64,
    end: u64,
    time: &impl Fn(&[u8]) -> Option<WallTime>,
) -> io::Result<Option<WallTime>> {
    let mut lines = after_line(file, offset)?;
    while lines.offset() < end
        && let Some(framed) = lines.next()?
    {
        if framed.piece == Piece::Line
            && let Some(at) = time(framed.bytes)
        {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn after_line(file: &File, offset: u64) -> io::Result<Lines> {
    let mut lines = Lines::from(file.try_clone()?, offset, LONGEST_LINE)?;
    lines.next()?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_once_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut tail = Tail::new(path.clone());
        assert!(tail.read_new().unwrap().is_empty());
        let append = |text: &str| {
            let mut options = File::options();
            let file = options.create(true).append(true).open(&path).unwrap();
            (&file).write_all(text.as_bytes()).unwrap();
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

    fn time(line: &[u8]) -> Option<WallTime> {
        let seconds: f64 = std::str::from_utf8(line).ok()?.split(' ').next()?.parse().ok()?;
        Some(seconds.into())
    }

    #[test]
    fn a_tail_starts_at_a_time_or_at_the_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let long = "x".repeat(3000);
        let lines: Vec<String> = (0..500).map(|at| format!("{at} {long}\n")).collect();
        let text = lines.concat();
        File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        let first = |mut tail: Tail| {
            tail.read_new().unwrap().first().and_then(|line| time(line)).map(WallTime::as_secs)
        };
        for since in [0.0, 1.0, 17.0, 250.5, 498.0, 499.0, 600.0] {
            let begin =
                first(Tail::since(path.clone(), since.into(), time).unwrap()).unwrap_or(500.0);
            assert!(begin <= since && since - begin < 150.0, "{since}: {begin}");
        }
        for (count, begin) in [(3, 497.0), (100, 400.0), (500, 0.0), (9000, 0.0)] {
            assert_eq!(first(Tail::last(path.clone(), count).unwrap()), Some(begin), "{count}");
        }
        let gone = folder.path().join("gone");
        assert_eq!(first(Tail::since(gone.clone(), 1.0.into(), time).unwrap()), None);
        assert_eq!(first(Tail::last(gone, 1).unwrap()), None);
    }
}
