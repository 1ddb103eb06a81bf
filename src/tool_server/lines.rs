//! The tool server over lines: one message a line, as on the standard input and output of a program that a client has
//! started.

use super::{Answer, Incoming, MAX_MESSAGE_BYTES, ToolServer};
use rmcp::model::RequestId;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The maximum number of requests that are answered at once. The next line is read after one of them.
const AT_ONCE: usize = 32;

/// The time that running calls have after the end of the input.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The requests that are being answered, each with the sender that cancels it.
type Running = Rc<RefCell<Vec<(RequestId, oneshot::Sender<()>)>>>;

/// Serves until the end of the input or the first failed write. Calls that are still running a second later are
/// cancelled. `write_line` writes an answer, which ends in a line end. Fails if the input cannot be read.
pub(crate) async fn serve(
    tools: Rc<ToolServer>,
    mut input: impl AsyncBufRead + Unpin,
    write_line: impl AsyncFnMut(Vec<u8>) -> io::Result<()> + 'static,
) -> io::Result<()> {
    let (answers, queue) = mpsc::channel::<Answer>(AT_ONCE);
    let mut writing = tokio::task::spawn_local(write_all(queue, write_line));
    let running: Running = Rc::default();
    let mut line = Vec::new();
    let read = loop {
        let next = tokio::select! {
            next = read_line(&mut input, &mut line, MAX_MESSAGE_BYTES) => next,
            () = answers.closed() => break Ok(()),
        };
        let incoming = match next {
            Ok(LineRead::Line) if line.trim_ascii().is_empty() => continue,
            Ok(LineRead::Line) => Incoming::read(&line),
            Ok(LineRead::TooLong) => Incoming::too_long(),
            Ok(LineRead::End) => break Ok(()),
            Err(why) => break Err(why),
        };
        match incoming {
            Incoming::Request(request) => {
                let Ok(place) = answers.clone().reserve_owned().await else { break Ok(()) };
                let (tools, id) = (Rc::clone(&tools), request.id.clone());
                let (cancel, cancelled) = oneshot::channel();
                running.borrow_mut().push((id.clone(), cancel));
                let running = Rc::clone(&running);
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        answer = tools.answer(*request, None) => drop(place.send(answer)),
                        // The client expects no answer.
                        _ = cancelled => {}
                    }
                    running.borrow_mut().retain(|(other, _)| *other != id);
                });
            }
            Incoming::Cancel(id) => running.borrow_mut().retain(|(other, _)| *other != id),
            Incoming::Invalid(answer) => {
                if answers.send(*answer).await.is_err() {
                    break Ok(());
                }
            }
            Incoming::Ignored => {}
        }
    };
    drop(answers);
    if timeout(LAST_ANSWERS, &mut writing).await.is_err() {
        running.borrow_mut().clear();
        // A client that does not read its answers may hold up a write for ever.
        let _stuck = timeout(LAST_ANSWERS, &mut writing).await;
        writing.abort();
    }
    read
}

async fn write_all(
    mut answers: mpsc::Receiver<Answer>,
    mut write_line: impl AsyncFnMut(Vec<u8>) -> io::Result<()>,
) {
    while let Some(answer) = answers.recv().await {
        // The messages of the protocol have only keys of text, so that they can be serialized.
        let mut line = serde_json::to_vec(&answer.message).unwrap_or_default();
        line.push(b'\n');
        if let Err(why) = write_line(line).await {
            tracing::info!(%why, "the client reads no more answers");
            return;
        }
        answer.confirm();
    }
}

/// The outcome of reading a line.
pub(crate) enum LineRead {
    /// The line is in the buffer.
    Line,
    /// The line was too long, and was skipped.
    TooLong,
    End,
}

/// Reads a line of at most `most` bytes into the buffer. The rest after the last line end is no line: its sender was killed while it wrote.
pub(crate) async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<LineRead> {
    line.clear();
    let mut is_too_long = false;
    loop {
        let bytes = input.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(LineRead::End);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        is_too_long |= line.len() + part.len() > most;
        if is_too_long {
            *line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let read = end.map_or(bytes.len(), |end| end + 1);
        input.consume(read);
        if end.is_some() {
            return Ok(if is_too_long { LineRead::TooLong } else { LineRead::Line });
        }
    }
}
