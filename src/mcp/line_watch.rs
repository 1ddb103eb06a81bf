//! Watches what a server writes before the protocol reads it: a line that is too long ends the connection, and the last
//! line that is no message is kept, because it often says why a server does not answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// The maximum length of a line, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// The maximum length of what is kept of a line that is no message, in bytes.
const MAX_KEPT_BYTES: usize = 300;

/// The record of the lines of a server. It is shared with the reader, which the protocol owns.
#[derive(Debug, Clone, Default)]
pub(super) struct LineRecord(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    /// The length of the line that is being read, in bytes.
    length: usize,
    /// The beginning of that line, unless it is a message.
    begin: Vec<u8>,
    is_message: bool,
    stray: Option<String>,
    is_too_long: bool,
}

impl LineRecord {
    /// Returns the last line that was no message.
    pub(super) fn stray_line(&self) -> Option<String> {
        self.with(|lines| lines.stray.clone())
    }

    /// Whether the connection has ended because a line was too long.
    pub(super) fn has_too_long_line(&self) -> bool {
        self.with(|lines| lines.is_too_long)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Lines) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lines {
    /// Records bytes; returns whether the line is still short enough.
    fn take(&mut self, bytes: &[u8]) -> bool {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.length == 0 {
                self.is_message = piece.first() == Some(&b'{');
            }
            self.length += piece.len();
            if !self.is_message {
                let room = MAX_KEPT_BYTES.saturating_sub(self.begin.len()).min(piece.len());
                self.begin.extend_from_slice(piece.get(..room).unwrap_or_default());
            }
            if self.length > MAX_LINE_BYTES {
                self.is_too_long = true;
                return false;
            }
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
        true
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.begin).trim().to_owned();
        if !self.is_message && !line.is_empty() {
            self.stray = Some(line);
        }
        self.length = 0;
        self.begin.clear();
    }
}

/// A reader that records the lines which pass through it.
pub(super) struct WatchedReader<R> {
    inner: R,
    record: LineRecord,
}

impl<R> WatchedReader<R> {
    pub(super) fn new(inner: R, record: LineRecord) -> Self {
        Self { inner, record }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for WatchedReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        if this.record.with(|lines| lines.take(new)) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_is_no_message_is_kept_and_a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        assert!(lines.take(b"usage: ser"));
        assert!(lines.take(b"ver [OPTIONS]\n{\"jsonrpc\":"));
        assert!(lines.take(b"\"2.0\"}\n\n"));
        assert_eq!(lines.stray.as_deref(), Some("usage: server [OPTIONS]"));
        let piece = vec![b'x'; 1024 * 1024];
        let taken = (0..16).filter(|_| lines.take(&piece)).count();
        assert_eq!((taken, lines.take(b"x")), (16, false));
        assert!(lines.is_too_long && lines.begin.len() == MAX_KEPT_BYTES);
    }
}
