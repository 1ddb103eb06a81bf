//! The connection to the editor, over the standard input and output of this process.
//!
//! Lines are written by a task of their own, so that an editor that is slow to read does not hold up the team; one that
//! reads nothing at all counts as gone once [`MOST_QUEUED`] bytes wait for it.

use crate::acp::served::incoming::{
    ClientMessage, Line, LineReader, RpcError, answer_line, cancel_line, request_line, update_line,
};
use crate::app::stdio::{Input, write_line};
use crate::error::Failure;
use crate::os::spawn::spawn_local;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The messages of the editor that wait to be handled. It is not read further until there is room.
const MOST_UNHANDLED: usize = 16;

/// The bytes that may wait to be read by the editor.
const MOST_QUEUED: usize = 64 * 1024 * 1024;

/// The time that the editor has to read the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The writing side of the connection.
pub(super) struct Client {
    outgoing: RefCell<Option<UnboundedSender<String>>>,
    queued: Rc<Cell<usize>>,
    last_id: Cell<u64>,
    gone: Rc<Notify>,
    writer: RefCell<Option<JoinHandle<()>>>,
}

impl Client {
    /// Starts to read and to write. The receiver ends at the end of the input. Fails if there is no thread for it.
    pub(super) fn start() -> Result<(Rc<Self>, Receiver<ClientMessage>), Failure> {
        let (sender, messages) = channel(MOST_UNHANDLED);
        spawn_local(read(Input::start()?, sender));
        let (outgoing, lines) = unbounded_channel();
        let (queued, gone) = (Rc::<Cell<usize>>::default(), Rc::<Notify>::default());
        let writer = spawn_local(write(lines, Rc::clone(&queued), Rc::clone(&gone)));
        let client = Self {
            outgoing: RefCell::new(Some(outgoing)),
            queued,
            last_id: Cell::new(0),
            gone,
            writer: RefCell::new(Some(writer)),
        };
        Ok((Rc::new(client), messages))
    }

    fn send(&self, line: String) {
        let queued = self.queued.get().saturating_add(line.len());
        if queued > MOST_QUEUED {
            tracing::warn!("the editor does not read its input any more");
            self.outgoing.borrow_mut().take();
            return self.gone.notify_one();
        }
        if let Some(outgoing) = &*self.outgoing.borrow() {
            self.queued.set(queued);
            // The writer ends with the editor.
            let _gone = outgoing.send(line);
        }
    }

    /// Answers a request of the editor.
    pub(super) fn answer(&self, id: &Value, result: Result<Value, RpcError>) {
        if let Err(why) = &result {
            tracing::info!(code = why.code, why = why.message, "a request was refused");
        }
        self.send(answer_line(id, result));
    }

    pub(super) fn update(&self, session: &str, update: &Value) {
        self.send(update_line(session, update));
    }

    /// Sends a request; its answer has the id that is returned.
    pub(super) fn ask(&self, method: &str, params: &Value) -> u64 {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        self.send(request_line(id, method, params));
        id
    }

    /// Takes a request back.
    pub(super) fn take_back(&self, id: u64) {
        self.send(cancel_line(id));
    }

    /// Resolves when the editor reads no more.
    pub(super) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Gives the editor the time to read the last lines.
    pub(super) async fn finish(&self) {
        self.outgoing.borrow_mut().take();
        let writer = self.writer.borrow_mut().take();
        if let Some(mut writer) = writer
            && timeout(LAST_LINES, &mut writer).await.is_err()
        {
            writer.abort();
        }
    }
}

async fn read(input: Input, messages: Sender<ClientMessage>) {
    let mut lines = LineReader::new(input);
    loop {
        let message = match lines.next().await {
            Ok(Some(Line::Text(line))) if line.trim_ascii().is_empty() => continue,
            Ok(Some(Line::Text(line))) => ClientMessage::read(&line),
            Ok(Some(Line::TooLong)) => ClientMessage::too_long(),
            Ok(None) => return,
            Err(why) => return tracing::warn!(%why, "the editor cannot be read"),
        };
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

async fn write(mut lines: UnboundedReceiver<String>, queued: Rc<Cell<usize>>, gone: Rc<Notify>) {
    while let Some(mut text) = lines.recv().await {
        while let Ok(line) = lines.try_recv() {
            text.push_str(&line);
        }
        let length = text.len();
        if let Err(why) = write_line(text.into_bytes()).await {
            tracing::info!(%why, "the editor reads no more");
            return gone.notify_one();
        }
        queued.set(queued.get().saturating_sub(length));
    }
}
