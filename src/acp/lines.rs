//! The lines of an agent's output, read with a bound on their length.

use std::io;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;

pub(super) struct LineReader {
    source: BufReader<Receiver>,
    line: Vec<u8>,
    /// The longest line in bytes.
    most: usize,
}

impl LineReader {
    pub(super) fn new(source: Receiver, most: usize) -> Self {
        Self { source: BufReader::with_capacity(65_536, source), line: Vec::new(), most }
    }

    /// Returns the next line without its end; `None` at the end of the output, where an incomplete line is dropped.
    /// Fails if a line is too long. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let read = self.source.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
            if self.line.len() + part.len() > self.most {
                let why = format!("a line of its output is longer than {} bytes", self.most);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.line.extend_from_slice(part);
            let used = end.map_or(read.len(), |end| end + 1);
            self.source.consume(used);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    fn lines(text: &'static [u8], most: usize) -> (Vec<Vec<u8>>, Option<io::ErrorKind>) {
        let (output, mut input) = io::pipe().unwrap();
        let writer = std::thread::spawn(move || input.write_all(text).unwrap_or_default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let read = runtime.block_on(async {
            let source = Receiver::from_owned_fd(OwnedFd::from(output)).unwrap();
            let (mut reader, mut found) = (LineReader::new(source, most), Vec::new());
            loop {
                match reader.next().await {
                    Ok(Some(line)) => found.push(line),
                    Ok(None) => return (found, None),
                    Err(why) => return (found, Some(why.kind())),
                }
            }
        });
        writer.join().unwrap();
        read
    }

    #[test]
    fn lines_have_a_longest_length_and_an_incomplete_one_is_dropped() {
        let owned = |lines: &[&[u8]]| lines.iter().map(|line| line.to_vec()).collect::<Vec<_>>();
        assert_eq!(lines(b"one\n\ntwo\nthr", 3), (owned(&[b"one", b"", b"two"]), None));
        let too_long = Some(io::ErrorKind::InvalidData);
        assert_eq!(lines(b"one\nfour\n", 3), (owned(&[b"one"]), too_long));
        let long: &[u8] = Box::leak(format!("{}\n", "x".repeat(200_000)).into_bytes().into());
        assert_eq!(lines(long, 200_000).0.len(), 1);
    }
}
