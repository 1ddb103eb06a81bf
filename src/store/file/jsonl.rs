//! Framing of JSON Lines files: reading with offsets and bounded memory, and appending so that a line torn by a
//! crash or a full disk never joins the next one. This module does not interpret the lines.

use super::atomic::{Fsync, sync_data, sync_parent};
use super::read::{known_if_there, open_if_there};
use crate::os::file::{Access, At, FileError, create_new, open};
use crate::store::StoreError;
use memchr::memchr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The limits of the read buffer at first, in bytes. Its size is that of the unread part of the file, since most batches of
/// mail are small; it grows to that of the longest line.
const LEAST_AT_ONCE: usize = 512;
const MOST_AT_ONCE: usize = 64 * 1024;

/// The maximum length of a line that is read back from a file of this program, in bytes. Longer lines are skipped.
pub(crate) const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// The size of the parts in which a file is searched from its end, in bytes.
const BACKWARD_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Line,
    /// A part of a line that is longer than the limit.
    Chunk,
    /// The end of a file without a newline: its writer is at work or has exited.
    Fragment,
}

/// A piece of a file with its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Framed<'a> {
    pub(crate) piece: Piece,
    pub(crate) offset: u64,
    /// The bytes without the newline.
    pub(crate) bytes: &'a [u8],
}

/// The lines of a file from an offset on, read one at a time, without the position of its descriptor.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    /// No byte from here on is read.
    end: u64,
    limit: usize,
    /// The offset of the next piece.
    offset: u64,
    inside_long_line: bool,
    buffer: Vec<u8>,
    /// The part of the buffer that was read from the file and has no piece of it been returned yet.
    ready: Range<usize>,
    /// The place of the last piece in the buffer, without its newline.
    last: Range<usize>,
}

impl Lines {
    /// Starts at `offset`. A line has at most `limit` bytes with its newline; longer lines are returned in chunks.
    pub(crate) fn from(file: File, offset: u64, limit: usize) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self::of(file, offset, size, u64::MAX, limit))
    }

    /// Like [`Self::from`], for a file of which no byte from `end` on is read.
    pub(crate) fn up_to(end: u64, file: File, offset: u64, limit: usize) -> Self {
        Self::of(file, offset, end, end, limit)
    }

    fn of(file: File, offset: u64, size: u64, end: u64, limit: usize) -> Self {
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let buffer = vec![0; left.clamp(LEAST_AT_ONCE, MOST_AT_ONCE)];
        let (ready, last) = (0..0, 0..0);
        Self { file, end, limit, offset, inside_long_line: false, buffer, ready, last }
    }

    /// Reads the next piece. A fragment is the last piece: later bytes belong to the same line.
    pub(crate) fn next(&mut self) -> io::Result<Option<Framed<'_>>> {
        let length = self.find()?;
        let begin = self.ready.start;
        (self.ready.start, self.last) = (begin + length, begin..begin + length);
        if length == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.offset += length as u64;
        let bytes = self.buffer.get(self.last.clone()).unwrap_or_default();
        let (piece, bytes) = match bytes.strip_suffix(b"\n") {
            Some(line) if self.inside_long_line => (Piece::Chunk, line),
            Some(line) => (Piece::Line, line),
            None if length == self.limit => (Piece::Chunk, bytes),
            None => (Piece::Fragment, bytes),
        };
        self.inside_long_line = bytes.len() == length;
        self.last.end = begin + bytes.len();
        Ok(Some(Framed { piece, offset, bytes }))
    }

    /// Reads until the next piece is in the buffer. Returns its length with the newline; 0 at the end of the file.
    fn find(&mut self) -> io::Result<usize> {
        let mut searched = 0;
        loop {
            let ready = self.buffer.get(self.ready.clone()).unwrap_or_default();
            let ready = ready.get(..self.limit).unwrap_or(ready);
            if let Some(at) = memchr(b'\n', ready.get(searched..).unwrap_or_default()) {
                return Ok(searched + at + 1);
            }
            searched = ready.len();
            if searched == self.limit || !self.fill()? {
                return Ok(searched);
            }
        }
    }

    /// Reads more bytes. Returns whether there were any.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ready.start > 0 {
            self.buffer.copy_within(self.ready.clone(), 0);
            self.ready = 0..self.ready.len();
        }
        if self.ready.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let position = self.offset + self.ready.len() as u64;
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX);
        let free = self.buffer.get_mut(self.ready.end..).unwrap_or_default();
        let length = free.len().min(left);
        let wanted = free.get_mut(..length).unwrap_or_default();
        let read = loop {
            match self.file.read_at(wanted, position) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.ready.end += read;
        Ok(read > 0)
    }

    /// Returns the last piece without its newline.
    pub(crate) fn line(&self) -> &[u8] {
        self.buffer.get(self.last.clone()).unwrap_or_default()
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

/// Passes every piece of a file to `meet`, up to its length at the start: writers may be faster than the reader.
pub(crate) fn each_piece(
    path: &Path,
    limit: usize,
    meet: impl FnMut(&Framed<'_>),
) -> Result<(), FileError> {
    open_if_there(path)?.map_or(Ok(()), |(file, _)| pieces_of(file, path, limit, meet))
}

/// Passes every whole line of a file to `meet`, like [`each_piece`].
pub(crate) fn each_line(path: &Path, mut meet: impl FnMut(&[u8])) -> Result<(), FileError> {
    each_piece(path, LONGEST_LINE, |framed| {
        if framed.piece == Piece::Line {
            meet(framed.bytes);
        }
    })
}

/// Passes the whole lines that begin in a range of a file to `meet`, each with its offset, until it breaks. A line that
/// begins before the range is left out.
pub(crate) fn lines_between(
    path: &Path,
    begin: u64,
    end: u64,
    mut meet: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
) -> Result<(), FileError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(()) };
    // The byte before the range tells whether a line begins with it.
    let mut lines = Lines::from(file, begin.saturating_sub(1), LONGEST_LINE).at(path)?;
    if begin > 0 {
        lines.next().at(path)?;
    }
    while lines.offset() < end
        && let Some(Framed { piece, offset, bytes }) = lines.next().at(path)?
    {
        if piece == Piece::Line && meet(offset, bytes).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the offset of the last whole line that is meant; `None` if there is none. The file is read from its end, no
/// further than to that line.
pub(crate) fn last_line(
    path: &Path,
    is_meant: impl Fn(&[u8]) -> bool,
) -> Result<Option<u64>, FileError> {
    let end = known_if_there(path)?.map_or(0, |known| known.len());
    last_line_before(path, end, is_meant)
}

/// Like [`last_line`], among the lines that begin before `end`.
pub(crate) fn last_line_before(
    path: &Path,
    mut end: u64,
    is_meant: impl Fn(&[u8]) -> bool,
) -> Result<Option<u64>, FileError> {
    while end > 0 {
        let begin = end.saturating_sub(BACKWARD_BYTES);
        let mut last = None;
        lines_between(path, begin, end, |offset, line| {
            if is_meant(line) {
                last = Some(offset);
            }
            ControlFlow::Continue(())
        })?;
        if last.is_some() {
            return Ok(last);
        }
        end = begin;
    }
    Ok(None)
}

/// Returns an offset from which on there are `count` whole lines that are meant, or few more; 0 if there are fewer. The file is read
/// from its end.
pub(crate) fn begin_of_last(
    path: &Path,
    count: usize,
    is_meant: impl Fn(&[u8]) -> bool,
) -> Result<u64, FileError> {
    let mut end = known_if_there(path)?.map_or(0, |known| known.len());
    let mut missing = count;
    while end > 0 && missing > 0 {
        let begin = end.saturating_sub(BACKWARD_BYTES);
        lines_between(path, begin, end, |_, line| {
            missing = missing.saturating_sub(usize::from(is_meant(line)));
            ControlFlow::Continue(())
        })?;
        end = begin;
    }
    Ok(end)
}

/// Like [`each_piece`], for an open file.
pub(crate) fn pieces_of(
    file: File,
    path: &Path,
    limit: usize,
    mut meet: impl FnMut(&Framed<'_>),
) -> Result<(), FileError> {
    let end = file.metadata().at(path)?.len();
    let mut lines = Lines::from(file, 0, limit).at(path)?;
    while lines.offset() < end
        && let Some(framed) = lines.next().at(path)?
    {
        meet(&framed);
    }
    Ok(())
}

/// Whether the file ends within a line.
pub(crate) fn is_torn(file: &File, size: u64) -> io::Result<bool> {
    let Some(last) = size.checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// A JSON Lines file that only this process appends to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// The size after the last append, or 0: a file of this size does not end within a line.
    whole: AtomicU64,
    is_named: bool,
    is_degraded: bool,
}

impl Log {
    /// Opens or creates the file, and seals a torn tail.
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = match open(&path, Access::Append) {
            Err(why) if why.is_missing() => return Self::create(path),
            other => other?,
        };
        let log =
            Self { path, file, whole: AtomicU64::default(), is_named: true, is_degraded: false };
        log.seal()?;
        Ok(log)
    }

    /// Creates the file. Fails if there is one.
    pub(crate) fn create(path: PathBuf) -> Result<Self, StoreError> {
        let file = create_new(&path, Access::Append)?;
        let whole = AtomicU64::default();
        Ok(Self { path, file, whole, is_named: false, is_degraded: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file.
    pub(crate) fn size(&self) -> Result<u64, FileError> {
        Ok(self.file.metadata().at(&self.path)?.len())
    }

    /// Whether its name may not be durable: the file was created, and its folder was not synced since.
    pub(crate) fn is_unnamed(&self) -> bool {
        !self.is_named
    }

    /// Notes that its folder was synced after it had been created.
    pub(crate) fn note_named(&mut self) {
        self.is_named = true;
    }

    /// Seals a torn tail; returns the size afterwards.
    fn seal(&self) -> Result<u64, StoreError> {
        let known = self.file.metadata().at(&self.path)?;
        if known.nlink() == 0 {
            return Err(StoreError::Gone(self.path.clone()));
        }
        let size = known.len();
        if self.whole.load(Ordering::Relaxed) != size && is_torn(&self.file, size).at(&self.path)? {
            (&self.file).write_all(b"\n").at(&self.path)?;
            return Ok(size + 1);
        }
        Ok(size)
    }

    /// Reads bytes at an offset.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), FileError> {
        self.file.read_exact_at(bytes, offset).at(&self.path)
    }

    /// Appends whole lines: all of them, or none on an error.
    pub(crate) fn append(&self, lines: &[u8]) -> Result<(), StoreError> {
        self.append_at(lines).map(drop)
    }

    /// Like [`Log::append`]; returns the offset of the first line.
    pub(crate) fn append_at(&self, lines: &[u8]) -> Result<u64, StoreError> {
        let size = self.seal()?;
        (&self.file).write_all(lines).at(&self.path).inspect_err(|_| {
            // If this fails too, the next append seals the rest.
            drop(self.file.set_len(size));
        })?;
        if lines.ends_with(b"\n") {
            self.whole.store(size + lines.len() as u64, Ordering::Relaxed);
        }
        Ok(size)
    }

    /// Makes the appended lines durable. The kernel reports a failure only once, so after one all later calls
    /// fail.
    pub(crate) fn sync(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        if self.is_degraded {
            return Err(StoreError::Degraded(self.path.clone()));
        }
        let synced = sync_data(&self.file, &self.path, fsync)
            .and_then(|()| if self.is_named { Ok(()) } else { sync_parent(&self.path, fsync) });
        self.is_named |= synced.is_ok();
        self.is_degraded = synced.is_err();
        Ok(synced?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(bytes: &[u8], limit: usize) -> Vec<(Piece, u64, Vec<u8>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut lines = Lines::from(file.reopen().unwrap(), 0, limit).unwrap();
        let mut found = Vec::new();
        while let Some(Framed { piece, offset, bytes }) = lines.next().unwrap() {
            found.push((piece, offset, bytes.to_vec()));
        }
        found
    }

    #[test]
    fn lines_long_lines_and_a_fragment() {
        let expected: Vec<(Piece, u64, Vec<u8>)> = vec![
            (Piece::Line, 0, b"ab".into()),
            (Piece::Line, 3, b"".into()),
            (Piece::Chunk, 4, b"12345".into()),
            (Piece::Chunk, 9, b"67".into()),
            (Piece::Line, 12, b"1234".into()),
            (Piece::Fragment, 17, b"x".into()),
        ];
        assert_eq!(pieces(b"ab\n\n1234567\n1234\nx", 5), expected);
    }

    #[test]
    fn the_last_line_that_is_meant_is_found_from_the_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut text = Vec::new();
        let mut offsets = Vec::new();
        for number in 0..40_u32 {
            offsets.push(text.len() as u64);
            // One line is longer than the parts that are read.
            let filler = if number == 20 { 3_000_000 } else { 100_000 };
            text.extend(format!("{number} ").bytes().chain(std::iter::repeat_n(b'x', filler)));
            text.push(b'\n');
        }
        text.extend(b"39 torn");
        file.as_file().write_all(&text).unwrap();
        for (number, offset) in offsets.iter().enumerate() {
            let begin = format!("{number} ");
            let found = last_line(file.path(), |line| line.starts_with(begin.as_bytes())).unwrap();
            assert_eq!(found, Some(*offset), "{number}");
        }
        assert_eq!(last_line(file.path(), |_| false).unwrap(), None);
        let read = std::cell::Cell::new(0);
        let count = |line: &[u8]| {
            read.set(read.get() + line.len() as u64);
            line.starts_with(b"38 ")
        };
        last_line(file.path(), count).unwrap();
        assert!(read.get() <= BACKWARD_BYTES, "no more than the end was read: {}", read.get());
    }

    #[test]
    fn the_last_lines_that_are_meant_begin_at_the_offset_that_is_returned() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |number: usize| {
            let kind = if number.is_multiple_of(3) { "mail" } else { "note" };
            // Some lines are longer than the parts that are read.
            let filler = if number.is_multiple_of(10) { 1_500_000 } else { 100_000 };
            format!("{kind} {}\n", "x".repeat(filler))
        };
        let text: String = (0..30).map(line).collect();
        file.as_file().write_all(text.as_bytes()).unwrap();
        let is_mail = |line: &[u8]| line.starts_with(b"mail");
        for count in [0, 1, 2, 5, 9, 10, 11] {
            let begin = begin_of_last(file.path(), count, is_mail).unwrap();
            let mut found = 0;
            lines_between(file.path(), begin, u64::MAX, |_, line| {
                found += usize::from(is_mail(line));
                ControlFlow::Continue(())
            })
            .unwrap();
            // A part has at most ten lines.
            assert!((count.min(10)..=count + 4).contains(&found), "{count}: {found}");
            assert_eq!(begin == 0, count >= 10, "{count}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_read_at_any_limit(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            limit in 1_usize..20,
        ) {
            for (_, offset, piece) in pieces(&bytes, limit) {
                let start = usize::try_from(offset).unwrap();
                prop_assert_eq!(&bytes[start..start + piece.len()], piece.as_slice());
                prop_assert!(piece.len() <= limit && !piece.contains(&b'\n'));
            }
            let without_newlines: Vec<u8> =
                bytes.iter().copied().filter(|byte| *byte != b'\n').collect();
            let joined: Vec<u8> =
                pieces(&bytes, limit).into_iter().flat_map(|(.., piece)| piece).collect();
            prop_assert_eq!(joined, without_newlines);
        }
    }
}
