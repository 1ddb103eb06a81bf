//! The connection to an agent: its process, the calls to it with their answers, and what it sends by itself.
//!
//! An agent that reports faster than its reports are handled is not read further (see [`Room`]), so that it cannot fill
//! the memory. A line that is no message is skipped.

use super::lines::LineReader;
use super::message::{self, AnswerError, NO_SUCH_METHOD, Received};
use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup, ProgramPipes, RunningCommand};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The longest line of an agent, in bytes. Lines of more than half a MiB are usual.
const LINE_BYTES: usize = 16 * 1024 * 1024;

/// The bytes of reports that may wait to be handled, in KiB.
const ROOM_KIB: usize = 8 * 1024;

/// The bytes of the standard error output that are kept.
const ERRORS_BYTES: usize = 2_000;

/// The number of lines without a message that are logged.
const LOGGED_LINES: u32 = 20;

/// The time after the end of the agent's process in which the rest of its output is read.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(1);

/// The time that an agent has to exit once its standard input is closed.
const EXIT_AFTER_EOF: Duration = Duration::from_secs(3);

/// The part of the memory for unhandled reports that one report takes. Its drop makes room for others.
#[derive(Debug)]
pub(crate) struct Room(
    #[expect(dead_code, reason = "its drop has the effect")] Option<OwnedSemaphorePermit>,
);

/// A message that an agent sends by itself.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A `session/update`, by its parameters.
    Update(Value, Room),
    /// A `session/request_permission`, by its parameters.
    Permission(RequestId, Value, Room),
    /// The agent asks for mail within its prompt.
    Drain(RequestId),
    /// The connection is over, for this reason.
    Closed(String),
}

/// The id of a request of the agent, which its answer repeats.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestId(Value);

/// The reason for which a call to the agent has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    Answered(#[from] AnswerError),
    #[error("{0}")]
    Closed(String),
    #[error("it did not answer {method} within {} s", within.as_secs())]
    Late { method: &'static str, within: Duration },
}

type Answer = oneshot::Sender<Result<Value, AnswerError>>;

/// A connection. Its drop ends the process of the agent, and every process that it has started.
pub(crate) struct Connection {
    shared: Rc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    process: Option<RunningCommand>,
}

struct Shared {
    last_id: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Answer>>,
    /// The lines for the agent; `None` once its input is closed.
    outgoing: RefCell<Option<UnboundedSender<String>>>,
    /// The end of the agent's standard error output.
    errors: RefCell<String>,
    /// The reason for which the connection is over, once it is.
    closed: RefCell<Option<String>>,
    sink: Box<dyn Fn(Incoming)>,
    skipped_lines: Cell<u32>,
}

impl Connection {
    /// Starts an agent by a command line of bash. `sink` gets what it sends by itself. Fails if no process can be started;
    /// a program that is not found is the end of the connection.
    pub(crate) fn open(
        command_line: &str,
        folder: &Path,
        setup: &CommandSetup,
        sink: impl Fn(Incoming) + 'static,
    ) -> io::Result<Self> {
        let (process, pipes) = command::start_with_pipes(command_line.as_ref(), folder, setup)?;
        let ProgramPipes { input, output, errors } = pipes;
        let input = Sender::from_owned_fd(OwnedFd::from(input))?;
        let output = Receiver::from_owned_fd(OwnedFd::from(output))?;
        let errors = Receiver::from_owned_fd(OwnedFd::from(errors))?;
        let supervisor = ReadableFd::to_read(process.supervisor())?;
        let (outgoing, lines) = unbounded_channel();
        let shared = Rc::new(Shared {
            last_id: Cell::new(0),
            waiting: RefCell::default(),
            outgoing: RefCell::new(Some(outgoing)),
            errors: RefCell::default(),
            closed: RefCell::default(),
            sink: Box::new(sink),
            skipped_lines: Cell::new(0),
        });
        let share = || Rc::clone(&shared);
        let tasks = vec![
            tokio::task::spawn_local(write(input, lines)),
            tokio::task::spawn_local(read(share(), output)),
            tokio::task::spawn_local(read_errors(share(), errors)),
            tokio::task::spawn_local(watch_end(share(), supervisor)),
        ];
        Ok(Self { shared, tasks, process: Some(process) })
    }

    /// Sends a request. The future resolves with its answer.
    pub(crate) fn call(
        &self,
        method: &'static str,
        params: &Value,
    ) -> impl Future<Output = Result<Value, CallError>> + use<> {
        let id = self.shared.last_id.get() + 1;
        self.shared.last_id.set(id);
        let (answer, answered) = oneshot::channel();
        if self.shared.closed.borrow().is_none() {
            self.shared.waiting.borrow_mut().insert(id, answer);
        }
        self.shared.send(message::call(Some(id), method, params));
        let shared = Rc::clone(&self.shared);
        async move {
            match answered.await {
                Ok(result) => Ok(result?),
                Err(_dropped) => {
                    let why = shared.closed.borrow().clone();
                    Err(CallError::Closed(why.unwrap_or_else(|| "it was ended".into())))
                }
            }
        }
    }

    /// Sends a request whose answer must come within this time.
    pub(crate) async fn call_within(
        &self,
        method: &'static str,
        params: &Value,
        within: Duration,
    ) -> Result<Value, CallError> {
        let late = |_elapsed| CallError::Late { method, within };
        timeout(within, self.call(method, params)).await.map_err(late)?
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        self.shared.send(message::call(None, method, params));
    }

    /// Answers a request of the agent.
    pub(crate) fn answer(&self, id: &RequestId, result: Value) {
        self.shared.send(message::answer(&id.0, Ok(result)));
    }

    /// Whether the connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.borrow().is_some()
    }

    /// Ends the agent: its input is closed; if it does not exit, its processes are ended.
    pub(crate) async fn end(mut self) {
        self.shared.outgoing.borrow_mut().take();
        let Some(process) = self.process.take() else { return };
        if let Ok(supervisor) = ReadableFd::to_read(process.supervisor()) {
            let exited = timeout(EXIT_AFTER_EOF, supervisor.wait()).await;
            tracing::info!(exits = exited.is_ok(), "the input of the agent was closed");
        }
        let ended = tokio::task::spawn_blocking(|| process.end()).await;
        if let Ok(Err(why)) = ended {
            tracing::warn!(%why, "a process of the agent may be left");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.waiting.borrow_mut().clear();
    }
}

impl Shared {
    fn send(&self, line: String) {
        if let Some(outgoing) = &*self.outgoing.borrow() {
            // The writer ends with the agent's input; then the connection is about to be over.
            let _closed = outgoing.send(line);
        }
    }

    fn close(&self, why: &str) {
        if self.closed.borrow().is_some() {
            return;
        }
        let errors = self.errors.borrow();
        let last = errors.trim().lines().next_back().unwrap_or_default();
        let why =
            if last.is_empty() { why.to_owned() } else { format!("{why}; its last words: {last}") };
        *self.closed.borrow_mut() = Some(why.clone());
        self.waiting.borrow_mut().clear();
        (self.sink)(Incoming::Closed(why));
    }

    async fn receive(&self, line: &[u8], room: &Arc<Semaphore>) {
        let Some(received) = Received::read(line) else { return self.skip(line) };
        match received {
            Received::Response { id, result } => {
                if let Some(answer) = self.waiting.borrow_mut().remove(&id) {
                    // The caller may have given up.
                    let _late = answer.send(result);
                }
            }
            Received::Notification { method, params } if method == "session/update" => {
                (self.sink)(Incoming::Update(params, take_room(room, line).await));
            }
            Received::Notification { .. } => {}
            Received::Request { id, method, params } if method == "session/request_permission" => {
                let room = take_room(room, line).await;
                (self.sink)(Incoming::Permission(RequestId(id), params, room));
            }
            Received::Request { id, method, .. } if method == "craft/drainMidTurnQueue" => {
                (self.sink)(Incoming::Drain(RequestId(id)));
            }
            Received::Request { id, method, .. } => {
                let message = format!("this client does not offer {method}");
                let error = AnswerError { code: NO_SUCH_METHOD, message };
                self.send(message::answer(&id, Err(error)));
            }
        }
    }

    fn skip(&self, line: &[u8]) {
        let count = self.skipped_lines.get();
        self.skipped_lines.set(count.saturating_add(1));
        if count < LOGGED_LINES && !line.is_empty() {
            let start = line.get(..200).unwrap_or(line);
            tracing::warn!(line = %String::from_utf8_lossy(start), "the agent printed a line that is no message");
        }
    }
}

async fn take_room(room: &Arc<Semaphore>, line: &[u8]) -> Room {
    let kib = (line.len() / 1024 + 1).min(ROOM_KIB);
    let permit = Arc::clone(room).acquire_many_owned(u32::try_from(kib).unwrap_or(1)).await;
    Room(permit.ok())
}

async fn read(shared: Rc<Shared>, output: Receiver) {
    let mut lines = LineReader::new(output, LINE_BYTES);
    let room = Arc::new(Semaphore::new(ROOM_KIB));
    let why = loop {
        match lines.next().await {
            Ok(Some(line)) => shared.receive(&line, &room).await,
            Ok(None) => break "it closed its output".to_owned(),
            Err(why) => break why.to_string(),
        }
    };
    shared.close(&why);
}

async fn read_errors(shared: Rc<Shared>, mut errors: Receiver) {
    let mut buffer = [0; 4096];
    while let Ok(count) = errors.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let text = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default());
        let mut kept = shared.errors.borrow_mut();
        kept.push_str(&text);
        if kept.len() > ERRORS_BYTES {
            let from = kept.ceil_char_boundary(kept.len() - ERRORS_BYTES);
            kept.drain(..from);
        }
    }
}

async fn write(mut input: Sender, mut lines: UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if let Err(why) = input.write_all(line.as_bytes()).await {
            tracing::warn!(%why, "the agent does not read its input any more");
            return;
        }
    }
}

async fn watch_end(shared: Rc<Shared>, supervisor: ReadableFd) {
    if supervisor.wait().await.is_ok() {
        sleep(OUTPUT_AFTER_END).await;
        shared.close("its process ended");
    }
}
