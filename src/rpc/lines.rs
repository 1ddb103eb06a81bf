//! The framing of messages that come over a pipe: one a line, with a bound on the length of a line.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The maximum length of a message, in bytes. Lines of more than half a MiB are usual.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line without its end.
    Text(Vec<u8>),
    /// The beginning of a line that is longer than [`MAX_MESSAGE_BYTES`], whose rest will be skipped.
    TooLong,
}

/// Reads lines.
pub(crate) struct LineReader<R> {
    source: R,
    line: Vec<u8>,
    most: usize,
    is_skipping: bool,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, line: Vec::new(), most: MAX_MESSAGE_BYTES, is_skipping: false }
    }

    /// Returns the next line; `None` at the end of the source, where an incomplete line is dropped: its sender was killed
    /// while it wrote. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.source.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
            let is_too_long = !self.is_skipping && self.line.len() + part.len() > self.most;
            if is_too_long {
                self.line = Vec::new();
                self.is_skipping = true;
            } else if !self.is_skipping {
                self.line.extend_from_slice(part);
            }
            let used = end.map_or(read.len(), |end| end + 1);
            self.source.consume(used);
            let was_skipped = end.is_some() && std::mem::take(&mut self.is_skipping);
            if is_too_long {
                return Ok(Some(Line::TooLong));
            }
            if end.is_some() && !was_skipped {
                return Ok(Some(Line::Text(std::mem::take(&mut self.line))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    fn lines(text: &[u8], most: usize, piece: usize) -> Vec<Line> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let source = BufReader::with_capacity(piece, text);
            let mut reader = LineReader { most, ..LineReader::new(source) };
            let mut found = Vec::new();
            while let Some(line) = reader.next().await.unwrap() {
                found.push(line);
            }
            found
        })
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_an_incomplete_one_is_dropped() {
        let text = |line: &[u8]| Line::Text(line.to_vec());
        for piece in [1, 2, 3, 5, 64] {
            let found = lines(b"one\n\ntwo\nfour\nfives\nsix\nse", 3, piece);
            let two_long = [Line::TooLong, Line::TooLong, text(b"six")];
            let expected = [text(b"one"), text(b""), text(b"two")].into_iter().chain(two_long);
            assert_eq!(found, expected.collect::<Vec<_>>(), "pieces of {piece}");
            assert_eq!(lines(b"one\nfour", 3, piece), [text(b"one"), Line::TooLong]);
        }
        let long = format!("{}\n", "x".repeat(200_000));
        assert_eq!(lines(long.as_bytes(), 200_000, 64), [text(&long.as_bytes()[..200_000])]);
    }
}
