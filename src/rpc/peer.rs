//! The other side of a connection over lines: calls to it with their answers, and the calls that it makes.
//!
//! The output of the other side is read only as fast as [`Incoming::next`] is called, so that it cannot fill the memory. A
//! side that does not read its input ends the connection.

use super::lines::{Line, LineReader, MAX_MESSAGE_BYTES};
use super::message::{Message, MethodCall, RpcError, number_of};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The maximum size of the messages that wait to be written, in bytes.
const MAX_QUEUED_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// The size that a message has at least in this count, in bytes.
const MIN_QUEUED_BYTES: usize = 128;

/// The maximum number of lines without a message that are logged.
const MAX_LOGGED_LINES: u32 = 20;

/// The maximum length of what is kept of a line without a message, in bytes.
const MAX_STRAY_BYTES: usize = 300;

/// The reason for which a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The other side has answered with an error.
    #[error("{0}")]
    Answered(#[from] RpcError),
    /// The connection is over, for this reason.
    #[error("{0}")]
    Closed(String),
    /// There was no answer in time.
    #[error("it did not answer {method} within {} s", within.as_secs())]
    Late { method: &'static str, within: Duration },
}

/// The reason for which the other side sends nothing more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputEnd {
    #[error("it closed its output")]
    Closed,
    #[error("it wrote a line of more than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    TooLong,
    #[error("it does not read its input")]
    Unread,
    #[error("{0}")]
    Failed(io::Error),
}

/// The other side.
#[derive(Clone)]
pub(crate) struct Peer(Rc<Shared>);

struct Shared {
    last_id: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
    /// The lines for the other side; `None` once its input is closed.
    outgoing: RefCell<Option<UnboundedSender<String>>>,
    /// The size of the lines that are not written yet, in bytes.
    queued: Cell<usize>,
    /// Notified when there are too many of them.
    unread: Notify,
    /// The reason for which the connection is over, once it is.
    closed: RefCell<Option<String>>,
    /// The last line that was no message.
    stray_line: RefCell<Option<String>>,
    stray_lines: Cell<u32>,
}

/// The calls that the other side makes.
pub(crate) struct Incoming<R> {
    peer: Peer,
    lines: LineReader<R>,
}

/// Returns the other side of a connection, its calls, and the future that writes to it.
pub(crate) fn open<R: AsyncBufRead + Unpin>(
    output: R,
    input: impl AsyncWrite + Unpin,
) -> (Peer, Incoming<R>, impl Future<Output = ()>) {
    let (outgoing, lines) = unbounded_channel();
    let peer = Peer(Rc::new(Shared {
        last_id: Cell::new(0),
        waiting: RefCell::default(),
        outgoing: RefCell::new(Some(outgoing)),
        queued: Cell::new(0),
        unread: Notify::new(),
        closed: RefCell::default(),
        stray_line: RefCell::default(),
        stray_lines: Cell::new(0),
    }));
    let incoming = Incoming { peer: peer.clone(), lines: LineReader::new(output) };
    let writing = write_all(input, lines, peer.clone());
    (peer, incoming, writing)
}

async fn write_all(
    mut input: impl AsyncWrite + Unpin,
    mut lines: UnboundedReceiver<String>,
    peer: Peer,
) {
    while let Some(line) = lines.recv().await {
        if let Err(why) = input.write_all(line.as_bytes()).await {
            // The end of its output, which comes next, has a better reason.
            tracing::warn!(%why, "the other program does not read its input any more");
            return;
        }
        peer.0.queued.update(|queued| queued - cost(&line));
    }
}

/// Returns the size of a line in the count of those that wait.
fn cost(line: &str) -> usize {
    line.len().max(MIN_QUEUED_BYTES)
}

impl Peer {
    /// Sends a request. The future resolves with its answer; dropping it forgets the request.
    pub(crate) fn call(&self, method: &'static str, params: Value) -> Call {
        let id = self.0.last_id.get() + 1;
        self.0.last_id.set(id);
        let (answer, answered) = oneshot::channel();
        if !self.is_closed() {
            self.0.waiting.borrow_mut().insert(id, answer);
        }
        self.send(Message::Call(MethodCall { id: Some(id.into()), method: method.into(), params }));
        Call { peer: self.clone(), id, method, answered, cancelled_by: None }
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(Message::Call(MethodCall { id: None, method: method.into(), params }));
    }

    /// Answers a request of the other side.
    pub(crate) fn answer(&self, id: Value, result: Result<Value, RpcError>) {
        self.send(Message::Response { id, result });
    }

    fn send(&self, message: Message) {
        let mut outgoing = self.0.outgoing.borrow_mut();
        let Some(sender) = &*outgoing else { return };
        let line = message.into_line();
        let queued = self.0.queued.get() + cost(&line);
        if queued > MAX_QUEUED_BYTES {
            *outgoing = None;
            self.0.unread.notify_one();
            return;
        }
        self.0.queued.set(queued);
        // The writer ends with the input of the other side; then the connection is about to be over.
        let _closed = sender.send(line);
    }

    /// Closes the input of the other side, after the messages that wait.
    pub(crate) fn end_input(&self) {
        self.0.outgoing.borrow_mut().take();
    }

    /// Ends all open calls for a reason. Returns whether the connection was open.
    pub(crate) fn close(&self, why: &str) -> bool {
        let mut closed = self.0.closed.borrow_mut();
        if closed.is_some() {
            return false;
        }
        *closed = Some(why.to_owned());
        self.0.waiting.borrow_mut().clear();
        true
    }

    /// Whether the connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.borrow().is_some()
    }

    /// Returns the beginning of the last line that was no message. It often says why a program does not answer.
    pub(crate) fn stray_line(&self) -> Option<String> {
        self.0.stray_line.borrow().clone()
    }

    fn skip(&self, line: &[u8]) {
        let start = line.get(..MAX_STRAY_BYTES).unwrap_or(line).trim_ascii();
        if start.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(start).into_owned();
        let count = self.0.stray_lines.get();
        self.0.stray_lines.set(count.saturating_add(1));
        if count < MAX_LOGGED_LINES {
            tracing::warn!(line = text, "another program printed a line that is no message");
        }
        *self.0.stray_line.borrow_mut() = Some(text);
    }
}

impl<R: AsyncBufRead + Unpin> Incoming<R> {
    /// Returns the next call that the other side makes, and the length of its line in bytes. Answers on the way reach
    /// their callers; lines that are no messages are skipped. Fails once nothing more can come; the caller then closes the
    /// connection.
    pub(crate) async fn next(&mut self) -> Result<(MethodCall, usize), InputEnd> {
        loop {
            let line = tokio::select! {
                line = self.lines.next() => line.map_err(InputEnd::Failed)?,
                () = self.peer.0.unread.notified() => return Err(InputEnd::Unread),
            };
            let text = match line {
                Some(Line::Text(text)) => text,
                Some(Line::TooLong) => return Err(InputEnd::TooLong),
                None => return Err(InputEnd::Closed),
            };
            match Message::read(&text) {
                Ok(Message::Call(call)) => return Ok((call, text.len())),
                Ok(Message::Response { id, result }) => {
                    let id = number_of(&id);
                    let answer = id.and_then(|id| self.peer.0.waiting.borrow_mut().remove(&id));
                    if let Some(answer) = answer {
                        // Its receiver is dropped at the same time as the entry.
                        let _late = answer.send(result);
                    }
                }
                Err(_) => self.peer.skip(&text),
            }
        }
    }
}

/// A request that was sent.
pub(crate) struct Call {
    peer: Peer,
    id: u64,
    method: &'static str,
    answered: oneshot::Receiver<Result<Value, RpcError>>,
    cancelled_by: Option<&'static str>,
}

impl Call {
    /// Lets the drop of the unanswered call send this notification, with the id of the request as `requestId`.
    pub(crate) fn cancelled_by(mut self, notification: &'static str) -> Self {
        self.cancelled_by = Some(notification);
        self
    }

    /// Waits for an answer within this time.
    pub(crate) async fn within(self, within: Duration) -> Result<Value, CallError> {
        let method = self.method;
        timeout(within, self).await.map_err(|_elapsed| CallError::Late { method, within })?
    }
}

impl Future for Call {
    type Output = Result<Value, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = ready!(Pin::new(&mut self.answered).poll(context));
        Poll::Ready(match answered {
            Ok(result) => result.map_err(CallError::Answered),
            Err(_dropped) => {
                let why = self.peer.0.closed.borrow().clone();
                Err(CallError::Closed(why.unwrap_or_else(|| "it was ended".into())))
            }
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let was_open = self.peer.0.waiting.borrow_mut().remove(&self.id).is_some();
        if let Some(method) = self.cancelled_by.filter(|_| was_open) {
            self.peer.notify(method, json!({ "requestId": self.id }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream};

    type Theirs = (BufReader<DuplexStream>, DuplexStream);

    fn run<F: Future<Output = ()>>(
        test: impl FnOnce(Peer, Incoming<BufReader<DuplexStream>>, Theirs) -> F,
    ) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let options = tokio::runtime::LocalOptions::default();
        let runtime = builder.enable_all().build_local(options).unwrap();
        runtime.block_on(async {
            let (output, their_output) = tokio::io::duplex(4096);
            let (input, their_input) = tokio::io::duplex(4096);
            let (peer, incoming, writing) = open(BufReader::new(output), input);
            tokio::task::spawn_local(writing);
            let test = test(peer, incoming, (BufReader::new(their_input), their_output));
            timeout(Duration::from_secs(30), test).await.unwrap();
        });
    }

    async fn line(input: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        input.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn answers_reach_their_calls_and_all_else_is_handed_on_or_skipped() {
        run(|peer, mut incoming, (mut input, mut output)| async move {
            let (first, second) = (peer.call("a", json!({})), peer.call("b", Value::Null));
            assert_eq!(line(&mut input).await["method"], "a");
            assert_eq!(line(&mut input).await["id"], 2);
            let text = concat!(
                "Welcome!\n\n",
                r#"{"jsonrpc":"2.0","id":2,"result":"two"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":"1","error":{"code":7,"message":"no"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":1,"result":"again"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":"x1","result":"forged"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":"x","method":"ask"}"#,
                "\n",
            );
            output.write_all(text.as_bytes()).await.unwrap();
            let (asked, length) = incoming.next().await.unwrap();
            assert_eq!((asked.id, asked.method.as_str(), length), (Some("x".into()), "ask", 41));
            assert_eq!(second.await, Ok(json!("two")));
            assert_eq!(first.await, Err(CallError::Answered(RpcError::new(7, "no"))));
            assert_eq!(peer.stray_line().as_deref(), Some("Welcome!"));
            let open = peer.call("c", Value::Null);
            drop(output);
            assert!(matches!(incoming.next().await, Err(InputEnd::Closed)));
            assert!(peer.close("gone") && !peer.close("again") && peer.is_closed());
            assert_eq!(open.await, Err(CallError::Closed("gone".into())));
            let late = peer.call("d", Value::Null).await;
            assert_eq!(late, Err(CallError::Closed("gone".into())));
        });
    }

    #[test]
    fn a_call_that_is_dropped_is_cancelled_unless_it_was_answered() {
        run(|peer, mut incoming, (mut input, mut output)| async move {
            let answered = peer.call("a", Value::Null).cancelled_by("cancel");
            drop(peer.call("b", Value::Null).cancelled_by("cancel"));
            drop(peer.call("c", Value::Null));
            let answers = b"{\"id\":1,\"result\":1}\n{\"method\":\"m\"}\n";
            output.write_all(answers).await.unwrap();
            incoming.next().await.unwrap();
            assert_eq!(answered.await, Ok(json!(1)));
            peer.notify("end", Value::Null);
            let mut seen = Vec::new();
            while seen.last().is_none_or(|last: &Value| last["method"] != "end") {
                seen.push(line(&mut input).await);
            }
            let methods: Vec<_> = seen.iter().map(|it| it["method"].as_str().unwrap()).collect();
            assert_eq!(methods, ["a", "b", "cancel", "c", "end"]);
            assert_eq!(seen[2]["params"], json!({ "requestId": 2 }));
            let late = peer.call("d", Value::Null).within(Duration::from_millis(1)).await;
            assert!(matches!(late, Err(CallError::Late { method: "d", .. })), "{late:?}");
            assert!(peer.0.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn a_program_that_reads_nothing_ends_the_connection_before_it_fills_the_memory() {
        run(|peer, mut incoming, theirs| async move {
            let text = "x".repeat(1024 * 1024);
            for _ in 0..40 {
                peer.notify("m", json!({ "text": text }));
                tokio::task::yield_now().await;
            }
            assert!(matches!(incoming.next().await, Err(InputEnd::Unread)));
            assert!(peer.0.queued.get() <= MAX_QUEUED_BYTES);
            drop(theirs);
        });
    }

    #[test]
    fn a_line_that_is_too_long_ends_the_connection() {
        run(|_peer, mut incoming, (_input, mut output)| async move {
            let part = vec![b'x'; 1024 * 1024];
            tokio::task::spawn_local(async move { while output.write_all(&part).await.is_ok() {} });
            let end = incoming.next().await.unwrap_err();
            assert_eq!(end.to_string(), "it wrote a line of more than 16 MiB");
        });
    }
}
