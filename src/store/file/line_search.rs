//! The lines of a file that hold one of some words. Only those lines are looked at one by one, so that a long file costs little
//! more than reading it.

use super::jsonl::LONGEST_LINE;
use super::read::open_if_there;
use crate::os::file::{At, FileError};
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// The number of bytes that are searched at once. A longer line is searched as a whole.
const BLOCK_BYTES: usize = 64 * 1024;

/// A whole line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundLine<'a> {
    pub(crate) offset: u64,
    /// The bytes without the newline.
    pub(crate) bytes: &'a [u8],
}

/// The line that is looked at after another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextLine {
    /// The next one that holds one of the words.
    Matching,
    /// The next one, whatever it holds.
    Following,
}

/// Passes every whole line from an offset on that holds one of the words to `meet`, and those that it asks for, up to the length
/// of the file at the start. The offset is that of a line. A line of more than [`LONGEST_LINE`] bytes with its newline is left out, as is a last one
/// without a newline.
pub(crate) fn matching_lines(
    mut file: File,
    path: &Path,
    from: u64,
    words: &[impl AsRef<[u8]>],
    meet: impl FnMut(FoundLine<'_>) -> NextLine,
) -> Result<(), FileError> {
    let length = file.metadata().at(path)?.len().saturating_sub(from);
    let room = usize::try_from(length).unwrap_or(usize::MAX).min(BLOCK_BYTES);
    file.seek(SeekFrom::Start(from)).at(path)?;
    let mut search = Search::new(words, from, meet);
    let mut reader = file.take(length);
    let (mut buffer, mut filled) = (vec![0; room], 0);
    let mut is_in_long_line = false;
    while let Some(free) = buffer.get_mut(filled..)
        && let read @ 1.. = reader.read(free).at(path)?
    {
        let new = filled..filled + read;
        filled = new.end;
        let newest = buffer.get(new.clone()).unwrap_or_default();
        let Some(last) = memrchr(b'\n', newest).map(|last| new.start + last + 1) else {
            if filled >= LONGEST_LINE {
                is_in_long_line = true;
                search.pass(filled);
                filled = 0;
            } else if filled == buffer.len() {
                buffer.resize(buffer.len() * 2, 0);
            }
            continue;
        };
        let mut block = buffer.get(..last).unwrap_or_default();
        if std::mem::take(&mut is_in_long_line)
            && let Some(end) = memchr(b'\n', block)
        {
            let (rest, lines) = block.split_at(end + 1);
            search.pass(rest.len());
            block = lines;
        }
        search.block(block);
        buffer.copy_within(last..filled, 0);
        filled -= last;
    }
    Ok(())
}

/// A search through the blocks of a file.
struct Search<'a, F> {
    words: Vec<Finder<'a>>,
    meet: F,
    next: NextLine,
    /// The offset of the next block.
    offset: u64,
}

impl<'a, F: FnMut(FoundLine<'_>) -> NextLine> Search<'a, F> {
    fn new(words: &'a [impl AsRef<[u8]>], offset: u64, meet: F) -> Self {
        let words: Vec<_> = words.iter().map(|word| Finder::new(word.as_ref())).collect();
        // A word that has another one in it is found with that.
        let shorter = |word: &Finder<'_>| {
            let found = |other: &Finder<'_>| {
                other.needle().len() < word.needle().len() && other.find(word.needle()).is_some()
            };
            !words.iter().any(found)
        };
        let words = words.iter().filter(|word| shorter(word)).cloned().collect();
        Self { words, meet, next: NextLine::Matching, offset }
    }

    fn pass(&mut self, bytes: usize) {
        self.offset += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// Searches whole lines.
    fn block(&mut self, block: &[u8]) {
        let mut hits: Vec<_> = self.words.iter().flat_map(|word| word.find_iter(block)).collect();
        hits.sort_unstable();
        let mut hits = hits.into_iter();
        let mut rest = block;
        while !rest.is_empty() {
            let passed = block.len() - rest.len();
            let skipped = match self.next {
                NextLine::Following => 0,
                NextLine::Matching => {
                    let Some(hit) = hits.find(|hit| *hit >= passed) else { break };
                    let before = rest.get(..hit - passed).unwrap_or_default();
                    memrchr(b'\n', before).map_or(0, |newline| newline + 1)
                }
            };
            let (_, from_line) = rest.split_at(skipped);
            let end = memchr(b'\n', from_line).unwrap_or(from_line.len());
            let (bytes, after) = from_line.split_at(end);
            let offset = self.offset + u64::try_from(passed + skipped).unwrap_or(u64::MAX);
            self.next = (self.meet)(FoundLine { offset, bytes });
            rest = after.get(1..).unwrap_or_default();
        }
        self.pass(block.len());
    }
}

/// Returns the number of the line at an offset of a file, from 1.
pub(crate) fn line_number(path: &Path, offset: u64) -> Result<usize, FileError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(1) };
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, file.take(offset));
    let mut number = 1;
    loop {
        let bytes = reader.fill_buf().at(path)?;
        if bytes.is_empty() {
            return Ok(number);
        }
        number += memchr_iter(b'\n', bytes).count();
        let read = bytes.len();
        reader.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    type Line = (u64, usize, Vec<u8>);

    /// Searches, and asks for the line after each one that begins with `a`.
    fn found(bytes: &[u8], from: usize, words: &[&str]) -> Vec<Line> {
        let from = from as u64;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut lines = Vec::new();
        matching_lines(file.reopen().unwrap(), file.path(), from, words, |line| {
            let number = line_number(file.path(), line.offset).unwrap();
            lines.push((line.offset, number, line.bytes.to_vec()));
            if line.bytes.starts_with(b"a") { NextLine::Following } else { NextLine::Matching }
        })
        .unwrap();
        lines
    }

    /// The same, line by line.
    fn expected(bytes: &[u8], from: usize, words: &[&str]) -> Vec<Line> {
        let (mut lines, mut offset, mut is_wanted) = (Vec::new(), 0, false);
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line_bytes) = line.strip_suffix(b"\n") else { continue };
            let text = String::from_utf8_lossy(line_bytes);
            let is_before = offset < from as u64;
            if !is_before && (is_wanted || words.iter().any(|word| text.contains(word))) {
                lines.push((offset, index + 1, line_bytes.to_vec()));
                is_wanted = line.starts_with(b"a");
            }
            offset += line.len() as u64;
        }
        lines
    }

    #[test]
    fn lines_over_the_ends_of_blocks_are_found() {
        let mut text = Vec::new();
        for number in 0..100_u32 {
            let filler = if number == 50 { 3 * BLOCK_BYTES } else { BLOCK_BYTES / 7 };
            text.extend(format!("{number} ").bytes().chain(std::iter::repeat_n(b'x', filler)));
            text.extend_from_slice(if number % 7 == 1 { b" word\n" } else { b" other\na\n\n" });
        }
        text.extend(b"torn word");
        for words in [&["word"][..], &["word", "9 "], &["nothing"], &["50 "], &[""]] {
            assert_eq!(found(&text, 0, words), expected(&text, 0, words), "{words:?}");
        }
        assert_eq!(found(b"", 0, &["word"]), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_and_left_out() {
        let mut text = b"word 1\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', LONGEST_LINE + BLOCK_BYTES));
        text.extend(b" word\nword 3\n");
        let lines: Vec<_> = found(&text, 0, &["word"])
            .into_iter()
            .map(|(_, number, line)| (number, line))
            .collect();
        assert_eq!(lines, [(1, b"word 1".to_vec()), (3, b"word 3".to_vec())]);
    }

    proptest! {
        #[test]
        fn a_search_finds_what_reading_line_by_line_does(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), b'a'..=b'c'], 0..200),
            words in proptest::collection::vec("[a-c]{0,3}", 0..3),
            line in 0_usize..20,
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let from = ends.map(|(at, _)| at + 1).nth(line).unwrap_or_default();
            prop_assert_eq!(found(&bytes, from, &words), expected(&bytes, from, &words));
        }
    }
}
