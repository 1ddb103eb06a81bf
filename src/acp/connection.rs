//! The connection to an agent: its process, the calls to it with their answers, and what it sends by itself.
//!
//! An agent that reports faster than its reports are handled is not read further (see [`Room`]), so that it cannot fill
//! the memory. A line that is no message is skipped.

use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup, ProgramPipes, RunningCommand};
use crate::os::spawn::{erased, spawn_blocking};
use crate::rpc::message::{MethodCall, RpcError};
use crate::rpc::peer::{self, Call, Peer};
use serde_json::Value;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(crate) use crate::rpc::peer::CallError;

/// The size of a read, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// The bytes of reports that may wait to be handled, in KiB.
const ROOM_KIB: usize = 8 * 1024;

/// The bytes of the standard error output that are kept.
const ERRORS_BYTES: usize = 2_000;

/// The time after the end of the agent's process in which the rest of its output is read.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(1);

/// The time that an agent has to exit once its standard input is closed.
pub(super) const EXIT_AFTER_EOF: Duration = Duration::from_secs(3);

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

/// A connection. Its drop ends the process of the agent, and every process that it has started.
pub(crate) struct Connection {
    agent: Rc<Agent>,
    /// Dropped with it.
    _tasks: JoinSet<()>,
    process: Option<RunningCommand>,
}

struct Agent {
    peer: Peer,
    /// The end of the agent's standard error output.
    errors: RefCell<String>,
    sink: Box<dyn Fn(Incoming)>,
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
        let output = BufReader::with_capacity(READ_BYTES, output);
        let (peer, incoming, writing) = peer::open(output, input);
        let agent = Rc::new(Agent { peer, errors: RefCell::default(), sink: Box::new(sink) });
        let mut tasks = JoinSet::new();
        tasks.spawn_local(erased(writing));
        tasks.spawn_local(erased(read(Rc::clone(&agent), incoming)));
        tasks.spawn_local(erased(read_errors(Rc::clone(&agent), errors)));
        tasks.spawn_local(erased(watch_end(Rc::clone(&agent), supervisor)));
        Ok(Self { agent, _tasks: tasks, process: Some(process) })
    }

    /// Sends a request. The future resolves with its answer.
    pub(crate) fn call(&self, method: &'static str, params: Value) -> Call {
        self.agent.peer.call(method, params)
    }

    /// Sends a request whose answer must come within this time.
    pub(crate) async fn call_within(
        &self,
        method: &'static str,
        params: Value,
        within: Duration,
    ) -> Result<Value, CallError> {
        self.call(method, params).within(within).await
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.agent.peer.notify(method, params);
    }

    /// Answers a request of the agent.
    pub(crate) fn answer(&self, id: &RequestId, result: Value) {
        self.agent.peer.answer(id.0.clone(), Ok(result));
    }

    /// Whether the connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.agent.peer.is_closed()
    }

    /// Ends the agent: its input is closed; if it does not exit, its processes are ended.
    pub(crate) async fn end(mut self) {
        self.agent.peer.end_input();
        let Some(process) = self.process.take() else { return };
        if let Ok(supervisor) = ReadableFd::to_read(process.supervisor()) {
            let exited = timeout(EXIT_AFTER_EOF, supervisor.wait()).await;
            tracing::info!(exits = exited.is_ok(), "the input of the agent was closed");
        }
        let ended = spawn_blocking(|| process.end()).await;
        if let Ok(Err(why)) = ended {
            tracing::warn!(%why, "a process of the agent may be left");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.agent.peer.close("it was ended");
    }
}

impl Agent {
    fn close(&self, why: &str) {
        let errors = self.errors.borrow();
        let last = errors.trim().lines().next_back().unwrap_or_default();
        let why =
            if last.is_empty() { why.to_owned() } else { format!("{why}; its last words: {last}") };
        if self.peer.close(&why) {
            (self.sink)(Incoming::Closed(why));
        }
    }

    async fn receive(&self, call: MethodCall, bytes: usize, room: &Arc<Semaphore>) {
        let MethodCall { id, method, params } = call;
        match (id, method.as_str()) {
            (None, "session/update") => {
                (self.sink)(Incoming::Update(params, take_room(room, bytes).await));
            }
            (None, _) => {}
            (Some(id), "session/request_permission") => {
                let room = take_room(room, bytes).await;
                (self.sink)(Incoming::Permission(RequestId(id), params, room));
            }
            (Some(id), "craft/drainMidTurnQueue") => (self.sink)(Incoming::Drain(RequestId(id))),
            (Some(id), method) => self.peer.answer(id, Err(RpcError::not_offered(method))),
        }
    }
}

async fn take_room(room: &Arc<Semaphore>, bytes: usize) -> Room {
    let kib = (bytes / 1024 + 1).min(ROOM_KIB);
    let permit = Arc::clone(room).acquire_many_owned(u32::try_from(kib).unwrap_or(1)).await;
    Room(permit.ok())
}

async fn read(agent: Rc<Agent>, mut incoming: peer::Incoming<BufReader<Receiver>>) {
    let room = Arc::new(Semaphore::new(ROOM_KIB));
    let end = loop {
        match incoming.next().await {
            Ok((call, bytes)) => agent.receive(call, bytes, &room).await,
            Err(end) => break end,
        }
    };
    agent.close(&end.to_string());
}

async fn read_errors(agent: Rc<Agent>, mut errors: Receiver) {
    let mut buffer = [0; 4096];
    while let Ok(count) = errors.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let text = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default());
        let mut kept = agent.errors.borrow_mut();
        kept.push_str(&text);
        if kept.len() > ERRORS_BYTES {
            let from = kept.ceil_char_boundary(kept.len() - ERRORS_BYTES);
            kept.drain(..from);
        }
    }
}

async fn watch_end(agent: Rc<Agent>, supervisor: ReadableFd) {
    if supervisor.wait().await.is_ok() {
        sleep(OUTPUT_AFTER_END).await;
        agent.close("its process ended");
    }
}
