//! Reads a growing file of lines from the last position on, one line in memory at a time, also across its rotation. The
//! caller parses the lines.

use super::jsonl::{LONGEST_LINE, Lines, Piece};
use super::read::open_if_there;
use crate::os::file::{At, FileError};
use crate::store::StoreError;
use crate::wire::WallTime;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The size of the range at which the binary search for a time ends, in bytes.
const NEAR: u64 = 64 * 1024;

/// A position in a growing file, which may be rotated.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// The paths that the file has after its rotations, the newest first.
    older: Vec<PathBuf>,
    /// The inode of the file that was read, and the offset.
    place: Option<(u64, u64)>,
}

/// The lines that were appended since the last read.
#[derive(Debug)]
pub struct Fresh<'a> {
    tail: &'a mut Tail,
    /// `None` if there is no file.
    lines: Option<Lines>,
    /// The parts that follow, the newest first.
    later: Vec<LogPart>,
}

/// One of the files of a rotated log, open for reading.
#[derive(Debug)]
pub(crate) struct LogPart {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) known: Metadata,
}

impl LogPart {
    /// Returns the offset of a line near the first one that is not older than `since`, found by binary search; 0 if it may be
    /// the first one.
    pub(crate) fn offset_at(
        &self,
        since: WallTime,
        time: &impl Fn(&[u8]) -> Option<WallTime>,
    ) -> Result<u64, FileError> {
        // The first line after `early` is older than `since`, unless `early` is the beginning.
        let (mut early, mut late) = (0, self.known.len());
        while late - early > NEAR {
            let middle = early + (late - early) / 2;
            let first = first_time(&self.file, middle, late, time).at(&self.path)?;
            if first.is_some_and(|first| first < since) {
                early = middle;
            } else {
                late = middle;
            }
        }
        if early == 0 {
            return Ok(0);
        }
        Ok(after_line(&self.file, early).at(&self.path)?.offset())
    }
}

/// Opens a file and the `older` ones into which it is rotated, the newest first. Those that are missing are left out. A file
/// that is rotated meanwhile is opened once.
pub(crate) fn open_parts(path: &Path, older: &[PathBuf]) -> Result<Vec<LogPart>, StoreError> {
    let mut parts: Vec<LogPart> = Vec::new();
    // A rotation moves files towards the older names, so that none is missed in this order.
    for path in std::iter::once(path).chain(older.iter().map(PathBuf::as_path)) {
        let Some((file, known)) = open_if_there(path)? else { continue };
        if parts.iter().all(|it| it.known.ino() != known.ino()) {
            parts.push(LogPart { path: path.to_owned(), file, known });
        }
    }
    Ok(parts)
}

impl Tail {
    /// Starts at the beginning of a file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self::rotated(path, Vec::new())
    }

    /// Starts at the beginning of the oldest file of those into which a file is rotated; `older` are their paths, the newest
    /// first.
    pub(crate) fn rotated(path: PathBuf, older: Vec<PathBuf>) -> Self {
        Self { path, older, place: None }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.place.map_or(0, |(_, offset)| offset)
    }

    /// Starts at an offset of the current file, or at its beginning if the file is shorter.
    pub(crate) fn at(path: PathBuf, offset: u64) -> Self {
        let known = std::fs::symlink_metadata(&path).ok().filter(|known| known.len() >= offset);
        Self { place: known.map(|known| (known.ino(), offset)), ..Self::new(path) }
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
        Self::new(path).starting_at(since, time)
    }

    /// Starts at a time as [`Tail::since`] does, in the rotated file that has it.
    pub(crate) fn starting_at(
        self,
        since: WallTime,
        time: impl Fn(&[u8]) -> Option<WallTime>,
    ) -> Result<Self, StoreError> {
        let mut place = None;
        for part in open_parts(&self.path, &self.older)? {
            let begin = part.offset_at(since, &time)?;
            place = Some((part.known.ino(), begin));
            if begin > 0 {
                break;
            }
        }
        Ok(Self { place, ..self })
    }

    /// Starts at the last `count` lines. Fails if the file exists and cannot be read.
    pub fn last(path: PathBuf, count: usize) -> Result<Self, StoreError> {
        Self::new(path).starting_at_last(count)
    }

    /// Starts at the last `count` lines of a file and of those into which it is rotated.
    pub(crate) fn starting_at_last(self, count: usize) -> Result<Self, StoreError> {
        // One more newline: the one that ends the preceding line.
        let mut wanted = count + 1;
        let mut place = None;
        for part in open_parts(&self.path, &self.older)? {
            let begin = last_newline(&part, &mut wanted).at(&part.path)?;
            place = Some((part.known.ino(), begin.map_or(0, |newline| newline + 1)));
            if begin.is_some() {
                break;
            }
        }
        Ok(Self { place, ..self })
    }

    /// Returns the inode of the file; a change means that a new file was read from its beginning.
    pub(crate) fn file(&self) -> Option<u64> {
        self.place.map(|(inode, _)| inode)
    }

    /// Returns the whole lines that were appended since the last read. A replaced file is read from its beginning, a rotated
    /// one to its end before its successors.
    pub fn fresh(&mut self) -> Result<Fresh<'_>, StoreError> {
        let mut parts = open_parts(&self.path, &[])?;
        let is_of = |part: &LogPart, (inode, offset): (u64, u64)| {
            part.known.ino() == inode && offset <= part.known.len()
        };
        let is_in_first = |place| parts.first().is_some_and(|part| is_of(part, place));
        if !self.older.is_empty() && !self.place.is_some_and(is_in_first) {
            parts = open_parts(&self.path, &self.older)?;
        }
        let begin = self.place.map_or(0, |place| {
            let at = parts.iter().position(|part| is_of(part, place));
            match at {
                Some(at) => parts.truncate(at + 1),
                // The file is gone. Those that were rotated before it are not read again.
                None => parts.retain(|part| part.path == self.path),
            }
            at.map_or(0, |_| place.1)
        });
        let Some(part) = parts.pop() else {
            return Ok(Fresh { tail: self, lines: None, later: Vec::new() });
        };
        let lines = Lines::from(part.file, begin, LONGEST_LINE).at(&part.path)?;
        self.place = Some((part.known.ino(), begin));
        Ok(Fresh { tail: self, lines: Some(lines), later: parts })
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
        let Self { tail, lines, later } = self;
        while let Some(open) = lines.as_mut() {
            let piece = match open.next().at(&tail.path)?.map(|framed| framed.piece) {
                Some(Piece::Fragment) | None => {
                    let Some(next) = later.pop() else { return Ok(None) };
                    tail.place = Some((next.known.ino(), 0));
                    *lines = Some(Lines::from(next.file, 0, LONGEST_LINE).at(&next.path)?);
                    continue;
                }
                Some(piece) => piece,
            };
            tail.place = tail.place.map(|(inode, _)| (inode, open.offset()));
            if piece == Piece::Line {
                break;
            }
        }
        Ok(lines.as_ref().map(Lines::line))
    }
}

/// Returns the offset of the last but `wanted - 1` newline of a file; `None` if it has fewer, which are then no longer
/// wanted.
fn last_newline(part: &LogPart, wanted: &mut usize) -> io::Result<Option<u64>> {
    let mut block = vec![0; 64 * 1024];
    let mut end = part.known.len();
    while end > 0 {
        let size = block.len().min(usize::try_from(end).unwrap_or(usize::MAX));
        let begin = end - size as u64;
        let bytes = block.get_mut(..size).unwrap_or_default();
        part.file.read_exact_at(bytes, begin)?;
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            *wanted -= 1;
            if *wanted == 0 {
                return Ok(Some(begin + at as u64));
            }
        }
        end = begin;
    }
    Ok(None)
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

    /// Rotates `log` into `log.1` and `log.2`, and returns their paths.
    struct RotatedFiles {
        _folder: tempfile::TempDir,
        path: PathBuf,
        older: Vec<PathBuf>,
    }

    impl RotatedFiles {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let older = [1, 2].map(|number| folder.path().join(format!("log.{number}")));
            Self { path, older: older.into(), _folder: folder }
        }

        fn append(&self, text: &str) {
            let mut options = File::options();
            let file = options.create(true).append(true).open(&self.path).unwrap();
            (&file).write_all(text.as_bytes()).unwrap();
        }

        /// Moves the older file, and the current one if `is_whole`.
        fn rotate(&self, is_whole: bool) {
            drop(std::fs::rename(&self.older[0], &self.older[1]));
            if is_whole {
                std::fs::rename(&self.path, &self.older[0]).unwrap();
            }
        }

        fn tail(&self) -> Tail {
            Tail::rotated(self.path.clone(), self.older.clone())
        }
    }

    fn words(tail: &mut Tail) -> String {
        let lines = tail.read_new().unwrap().into_iter();
        lines.map(|line| String::from_utf8(line).unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_tail_goes_on_across_rotations() {
        let files = RotatedFiles::new();
        files.append("a\nb\n");
        let mut tail = files.tail();
        assert_eq!(words(&mut tail), "a b");
        files.append("c\nto");
        files.rotate(true);
        assert_eq!(words(&mut tail), "c", "there is no new file yet");
        files.append("d\n");
        assert_eq!(words(&mut tail), "d", "the torn line never came");
        files.append("e\n");
        files.rotate(true);
        files.append("f\n");
        files.rotate(false);
        assert_eq!(words(&mut tail), "e f", "the rotation is at work");
        assert_eq!(words(&mut files.tail()), "d e f", "the oldest is dropped");
        files.rotate(true);
        files.append("g\n");
        files.rotate(true);
        files.append("h\n");
        assert_eq!(words(&mut tail), "g h");
        std::fs::remove_file(&files.path).unwrap();
        assert_eq!(words(&mut tail), "", "older files are not read again");
    }

    #[test]
    fn a_tail_of_rotated_files_starts_at_a_time_or_at_the_last_lines() {
        let files = RotatedFiles::new();
        let long = "x".repeat(2000);
        for at in 0..300 {
            if [100, 200].contains(&at) {
                files.rotate(true);
            }
            files.append(&format!("{at} {long}\n"));
        }
        let first = |mut tail: Tail| {
            let lines = tail.read_new().unwrap();
            let times: Vec<f64> = lines.iter().map(|line| time(line).unwrap().as_secs()).collect();
            assert!(times.is_sorted() && times.last() == Some(&299.0), "{times:?}");
            times.first().copied()
        };
        for since in [0.0, 1.0, 90.0, 100.0, 150.0, 199.0, 201.0, 299.0] {
            let begin = first(files.tail().starting_at(since.into(), time).unwrap()).unwrap();
            assert!(begin <= since && since - begin < 100.0, "{since}: {begin}");
        }
        for (count, begin) in
            [(1, 299.0), (100, 200.0), (101, 199.0), (150, 150.0), (300, 0.0), (900, 0.0)]
        {
            assert_eq!(
                first(files.tail().starting_at_last(count).unwrap()),
                Some(begin),
                "{count}"
            );
        }
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
