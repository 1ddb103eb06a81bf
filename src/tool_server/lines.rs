//! The tool server over lines: one message a line, as on the standard input and output of a program that a client has
//! started.

use super::{Answer, CALL, Incoming, ToolServer};
use crate::rpc::lines::{Line, LineReader};
use serde_json::Value;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncBufRead;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The maximum number of requests that are answered at once. The next line is read after one of them.
const AT_ONCE: usize = 32;

/// The time that running calls of tools have after the end of the input.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The time that all other requests have then. None of them waits for anything but this machine, which may be busy.
const LAST_ANSWERS: Duration = Duration::from_secs(20);

/// A request that is being answered.
struct Running {
    id: Value,
    /// Whether it calls a tool.
    is_call: bool,
    /// Cancels it when it is dropped.
    _cancel: oneshot::Sender<()>,
}

/// Serves until the end of the input or the first failed write. Calls of tools that are still running a second later are
/// cancelled; a handshake is answered. `write_line` writes an answer, which ends in a line end. Fails if the input cannot
/// be read.
pub(crate) async fn serve(
    tools: Rc<ToolServer>,
    input: impl AsyncBufRead + Unpin,
    write_line: impl AsyncFnMut(Vec<u8>) -> io::Result<()> + 'static,
) -> io::Result<()> {
    let (answers, queue) = mpsc::channel::<Answer>(AT_ONCE);
    let mut writing = tokio::task::spawn_local(write_all(queue, write_line));
    let running: Rc<RefCell<Vec<Running>>> = Rc::default();
    let mut input = LineReader::new(input);
    let read = loop {
        let next = tokio::select! {
            next = input.next() => next,
            () = answers.closed() => break Ok(()),
        };
        let incoming = match next {
            Ok(Some(Line::Text(line))) if line.trim_ascii().is_empty() => continue,
            Ok(Some(Line::Text(line))) => Incoming::read(&line),
            Ok(Some(Line::TooLong)) => Incoming::too_long(),
            Ok(None) => break Ok(()),
            Err(why) => break Err(why),
        };
        match incoming {
            Incoming::Request(id, request) => {
                let Ok(place) = answers.clone().reserve_owned().await else { break Ok(()) };
                let tools = Rc::clone(&tools);
                let (cancel, cancelled) = oneshot::channel();
                let is_call = request.method == CALL;
                running.borrow_mut().push(Running { id: id.clone(), is_call, _cancel: cancel });
                let running = Rc::clone(&running);
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        answer = tools.answer(id.clone(), request, None) => {
                            drop(place.send(answer));
                        }
                        // The client expects no answer.
                        _ = cancelled => {}
                    }
                    running.borrow_mut().retain(|it| it.id != id);
                });
            }
            Incoming::Cancel(id) => running.borrow_mut().retain(|it| it.id != id),
            Incoming::Invalid(answer) => {
                if answers.send(answer).await.is_err() {
                    break Ok(());
                }
            }
            Incoming::Ignored => {}
        }
    };
    drop(answers);
    if timeout(LAST_CALLS, &mut writing).await.is_ok() {
        return read;
    }
    running.borrow_mut().retain(|it| !it.is_call);
    let limit = if running.borrow().is_empty() { LAST_CALLS } else { LAST_ANSWERS };
    // A client that does not read its answers may hold up a write for ever.
    if timeout(limit, &mut writing).await.is_err() {
        running.borrow_mut().clear();
        writing.abort();
    }
    read
}

async fn write_all(
    mut answers: mpsc::Receiver<Answer>,
    mut write_line: impl AsyncFnMut(Vec<u8>) -> io::Result<()>,
) {
    while let Some(answer) = answers.recv().await {
        let line = format!("{}\n", answer.message).into_bytes();
        if let Err(why) = write_line(line).await {
            tracing::info!(%why, "the client reads no more answers");
            return;
        }
        answer.confirm();
    }
}
