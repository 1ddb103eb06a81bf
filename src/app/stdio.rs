//! Standard input and output of a program that a client has started, for the event loop.

use crate::error::{Failure, OrFail};
use crate::os::blocking_output::BlockingOutput;
use crate::store::asynchronous::offload;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};
use tokio::sync::mpsc::{Receiver, channel};

/// The size of a read, in bytes.
const PIECE: usize = 64 * 1024;

/// The standard input, which a thread reads until the end of the process: making its descriptor non-blocking would do the
/// same to other processes that have it.
#[derive(Debug)]
pub(super) struct Input {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    used: usize,
}

impl Input {
    /// Starts to read. Fails if there is no thread for it.
    pub(super) fn start() -> Result<Self, Failure> {
        let (sender, pieces) = channel(4);
        let read = move || {
            let mut input = io::stdin().lock();
            loop {
                let mut piece = vec![0; PIECE];
                let read = input.read(&mut piece).map(|length| {
                    piece.truncate(length);
                    piece
                });
                let is_end = read.as_ref().map_or(true, Vec::is_empty);
                if sender.blocking_send(read).is_err() || is_end {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("input".into()).spawn(read);
        thread.or_fail("the client cannot be read", "close other programs, and start it again")?;
        Ok(Self { pieces, piece: Vec::new(), used: 0 })
    }
}

impl AsyncBufRead for Input {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.used >= this.piece.len() {
            this.piece = ready!(this.pieces.poll_recv(context)).unwrap_or(Ok(Vec::new()))?;
            this.used = 0;
        }
        Poll::Ready(Ok(this.piece.get(this.used..).unwrap_or_default()))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().used += amount;
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.as_mut().poll_fill_buf(context))?;
        let length = bytes.len().min(buffer.remaining());
        buffer.put_slice(bytes.get(..length).unwrap_or_default());
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}

/// Writes a line to the standard output on another thread: a client that does not read must not stop the event loop.
pub(super) async fn write_line(line: Vec<u8>) -> io::Result<()> {
    offload(move || {
        let mut out = BlockingOutput(io::stdout().lock());
        out.write_all(&line)?;
        out.flush()
    })
    .await
}
