//! A server behind two pipes: one message a line.

use super::error::ConnectionError;
use super::from_server::FromServer;
use crate::os::spawn::erased;
use crate::rpc::peer::{self, InputEnd, Peer};
use serde_json::{Value, json};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::task::JoinSet;

/// The size of a read, in bytes.
const READ_BYTES: usize = 64 * 1024;

pub(super) struct Pipes {
    peer: Peer,
    /// Dropped with it.
    _tasks: JoinSet<()>,
}

impl Pipes {
    pub(super) fn open(
        output: impl AsyncRead + Unpin + 'static,
        input: impl AsyncWrite + Unpin + 'static,
        from_server: Rc<FromServer>,
    ) -> Self {
        let output = BufReader::with_capacity(READ_BYTES, output);
        let (peer, mut incoming, writing) = peer::open(output, input);
        let mut tasks = JoinSet::new();
        tasks.spawn_local(erased(writing));
        let server = peer.clone();
        tasks.spawn_local(erased(async move {
            let end = loop {
                match incoming.next().await {
                    Ok((call, _)) => {
                        if let Some((id, answer)) = from_server.receive(call) {
                            server.answer(id, answer);
                        }
                    }
                    Err(end) => break end,
                }
            };
            // The end alone says no more than that the connection ended.
            let why = match end {
                InputEnd::Closed => String::new(),
                end @ (InputEnd::TooLong | InputEnd::Unread | InputEnd::Failed(_)) => {
                    format!(": {end}")
                }
            };
            server.close(&why);
        }));
        Self { peer, _tasks: tasks }
    }

    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, ConnectionError> {
        let call = self.peer.call(method, params);
        // A handshake must not be cancelled.
        let call = if method == "initialize" {
            call
        } else {
            call.cancelled_by("notifications/cancelled")
        };
        call.await.map_err(|why| match ConnectionError::from(why) {
            ConnectionError::Ended(why) => ConnectionError::Ended(why + &self.stray()),
            why @ (ConnectionError::TimedOut(..)
            | ConnectionError::Refused(_)
            | ConnectionError::NotUnderstood(_)) => why,
        })
    }

    pub(super) fn notify(&self, method: &str, params: Value) {
        self.peer.notify(method, params);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }

    /// Returns the last line that was no message, as the end of a sentence.
    pub(super) fn stray(&self) -> String {
        let line = self.peer.stray_line();
        line.map(|line| format!("; it wrote {}", json!(line))).unwrap_or_default()
    }
}
