//! The receiving tasks: connection, messages between hosts, and mail. The values have their own file.

use super::backoff::Backoff;
use super::config::{BEAT, inbox, sender};
use super::connection::ConnectionState;
use super::error::CarrierError;
use super::freshness::Question;
use super::incoming::{Frame, Incoming, Reply};
use super::reading::{IDLE_HEARTBEAT, ReadEnd};
use super::storage::{Shared, Storage};
use super::values;
use crate::trust::NotTrusted;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull;
use async_nats::{Message, jetstream};
use bytes::Bytes;
use futures_util::stream::SelectAll;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The maximum number of frames in one event.
const MAX_FRAMES: usize = 64;
/// The number of events that wait for their reader. It is small, so that frames gather in large batches instead.
const MAX_EVENTS: usize = 16;
/// The server answers an idle request after this time. Connection and consumer report their own end, so it may be
/// long.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
pub(super) fn start(shared: &Arc<Shared>) -> mpsc::Receiver<Incoming> {
    let (events, receiver) = mpsc::channel(MAX_EVENTS);
    let mut tasks = JoinSet::new();
    tasks.spawn(connection(Arc::clone(shared), events.clone()));
    tasks.spawn(messages(Arc::clone(shared), events.clone()));
    tasks.spawn(mail(Arc::clone(shared), events.clone()));
    tasks.spawn(values::run(Arc::clone(shared), events.clone()));
    tokio::spawn(async move {
        events.closed().await;
        tasks.shutdown().await;
    });
    receiver
}

/// Reports the changes of the connection.
async fn connection(shared: Arc<Shared>, events: mpsc::Sender<Incoming>) {
    let mut watched = shared.connection.watch();
    let mut told = ConnectionState::default();
    loop {
        let state = *watched.borrow_and_update();
        let was_lost =
            told.is_connected && (!state.is_connected || told.generation != state.generation);
        if was_lost && events.send(Incoming::Disconnected).await.is_err() {
            return;
        }
        let is_new = state.is_connected && (was_lost || !told.is_connected);
        if is_new && events.send(Incoming::Connected).await.is_err() {
            return;
        }
        told = state;
        if watched.changed().await.is_err() {
            return;
        }
    }
}

/// Receives what hosts tell each other without the stream. The subscriptions outlive reconnections.
async fn messages(shared: Arc<Shared>, events: mpsc::Sender<Incoming>) {
    let client = shared.connection.client();
    let subjects = &shared.subjects;
    let mut subscriptions = SelectAll::new();
    let is_authority = shared.trust.authority().as_str() == subjects.host();
    for kind in KINDS.into_iter().filter(|kind| is_authority || !kind.is_for_authority()) {
        let subject = format!("{}>", subjects.start_of(kind.word()));
        let Ok(messages) = client.subscribe(subject).await else { return };
        subscriptions.push(messages.map(move |message| (kind, message)));
    }
    while let Some((kind, message)) = subscriptions.next().await {
        let Some(event) = event(&shared, kind, message) else { continue };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// A kind of messages that nothing keeps.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Ack,
    Sync,
    Order,
    Bundle,
    Copy,
    Claim,
    Join,
    Beat,
}

const KINDS: [Kind; 8] = [
    Kind::Ack,
    Kind::Sync,
    Kind::Order,
    Kind::Bundle,
    Kind::Copy,
    Kind::Claim,
    Kind::Join,
    Kind::Beat,
];

impl Kind {
    /// The word in the subject.
    fn word(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Sync => "sync",
            Self::Order => "order",
            Self::Bundle => "bundle",
            Self::Copy => "copy",
            Self::Claim => "claim",
            Self::Join => "join",
            Self::Beat => BEAT,
        }
    }

    /// Whether only the authority of the team gets it.
    fn is_for_authority(self) -> bool {
        matches!(self, Self::Claim | Self::Join)
    }
}

/// Makes an event of a message; `None` if it has no valid sender, or no way back.
fn event(shared: &Arc<Shared>, kind: Kind, message: Message) -> Option<Incoming> {
    // A server delivers what a host has stored to any subject.
    if !message.subject.starts_with(&shared.subjects.start_of(kind.word())) {
        shared.refusals.note(&message.subject, &NotTrusted::Subject);
        return None;
    }
    let from = sender(&message.subject)?;
    let body = match kind {
        // It has no certificate yet, and brings another proof.
        Kind::Join => message.payload,
        Kind::Ack
        | Kind::Sync
        | Kind::Order
        | Kind::Bundle
        | Kind::Copy
        | Kind::Claim
        | Kind::Beat => shared.open_of(&from, &message.subject, &message.payload).ok()?,
    };
    // A signature for an answer must not be one for anything else.
    let inbox = format!("{}.", inbox(from.as_str()));
    let reply = message.reply.filter(|subject| subject.starts_with(&inbox));
    let reply = reply.map(|subject| Reply::new(from.clone(), subject, shared));
    let from = String::from(from);
    Some(match kind {
        Kind::Ack => Incoming::Ack { from, body },
        Kind::Beat => Incoming::Beat { from, body },
        Kind::Join => Incoming::Join { body, reply: reply? },
        Kind::Sync | Kind::Order | Kind::Bundle | Kind::Copy | Kind::Claim => {
            question(shared, kind, from, (body, reply?))?
        }
    })
}

/// Makes an event of a question of another host; `None` if it is not a new one.
fn question(
    shared: &Arc<Shared>,
    kind: Kind,
    from: String,
    (question, reply): (Bytes, Reply),
) -> Option<Incoming> {
    let body = match shared.freshness.look(&question) {
        Question::Fresh(body) => body,
        Question::Again(answer) => {
            tokio::spawn(reply.ask_again(answer));
            return None;
        }
        Question::Repeated => {
            shared.refusals.note(kind.word(), &NotTrusted::Repeated);
            return None;
        }
    };
    match kind {
        Kind::Sync => Some(Incoming::Sync { from, body, reply }),
        Kind::Order => Some(Incoming::Order { from, body, reply }),
        Kind::Bundle => Some(Incoming::Bundle { from, body, reply }),
        Kind::Copy => Some(Incoming::Copy { from, body, reply }),
        Kind::Claim => Some(Incoming::Claim { from, body, reply }),
        Kind::Ack | Kind::Beat | Kind::Join => None,
    }
}

/// Receives the mail, over all failures of the server.
async fn mail(shared: Arc<Shared>, events: mpsc::Sender<Incoming>) {
    let mut backoff = Backoff::new();
    let mut after = 0;
    while let Some(mut connection) = shared.connection.connected().await {
        let end = match open(&shared, after).await {
            Ok((storage, stream)) => {
                read(&shared, &storage, stream, &mut connection, &events).await
            }
            Err(_) => ReadEnd::Failed,
        };
        match end {
            ReadEnd::Replaced => after = 0,
            ReadEnd::Failed => {
                after = shared.storage_number();
                backoff.wait(&mut connection).await;
            }
            ReadEnd::ReceiverDropped => return,
        }
    }
}

async fn open(shared: &Shared, after: u64) -> Result<(Arc<Storage>, pull::Stream), CarrierError> {
    let storage = shared.ensure(after).await?;
    let stream = storage
        .consumer
        .stream()
        .max_messages_per_batch(MAX_FRAMES)
        .expires(PULL_EXPIRES)
        .heartbeat(IDLE_HEARTBEAT)
        .messages()
        .await
        .map_err(|error| CarrierError::from_nats("receiving mail", &error))?;
    Ok((storage, stream))
}

/// Hands on frames until the stream or the connection ends.
///
/// The stream is dropped as soon as the connection is lost. Its subscription would otherwise be restored with the next
/// connection, and take frames away from the stream that replaces it.
async fn read(
    shared: &Arc<Shared>,
    storage: &Storage,
    mut stream: pull::Stream,
    connection: &mut watch::Receiver<ConnectionState>,
    events: &mpsc::Sender<Incoming>,
) -> ReadEnd {
    loop {
        let first = tokio::select! {
            biased;
            message = stream.next() => message,
            _ = connection.changed() => return ReadEnd::Replaced,
        };
        let Some(Ok(first)) = first else { return ReadEnd::Failed };
        // More frames arrive while the reader is busy, and go into the same event.
        let Ok(slot) = events.reserve().await else { return ReadEnd::ReceiverDropped };
        let mut messages = vec![first];
        let mut has_failed = false;
        while messages.len() < MAX_FRAMES && !has_failed {
            match stream.next().now_or_never() {
                Some(Some(Ok(message))) => messages.push(message),
                Some(Some(Err(_)) | None) => has_failed = true,
                None => break,
            }
        }
        let frames = frames(shared, storage, messages).await;
        if !frames.is_empty() {
            slot.send(Incoming::Frames(frames));
        }
        if has_failed {
            return ReadEnd::Failed;
        }
    }
}

/// Makes frames of messages. A message that its sender has not signed is removed from the stream: it would come for ever.
async fn frames(
    shared: &Arc<Shared>,
    storage: &Storage,
    messages: Vec<jetstream::Message>,
) -> Vec<Frame> {
    let mut frames = Vec::with_capacity(messages.len());
    for message in messages {
        let opened = sender(&message.subject).and_then(|from| {
            let body = shared.open_of(&from, &message.subject, &message.payload).ok()?;
            Some((String::from(from), body))
        });
        match opened {
            Some(opened) => frames.push(Frame::new(opened, message, storage.mail_number, shared)),
            // The server repeats the message if this fails.
            None => drop(message.ack_with(AckKind::Term).await),
        }
    }
    frames
}
