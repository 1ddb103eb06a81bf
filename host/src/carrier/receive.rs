//! The receiving tasks: connection, messages between hosts, and mail. The values have their own file.

use super::backoff::Backoff;
use super::config::sender;
use super::connection::ConnectionState;
use super::error::CarrierError;
use super::incoming::{Frame, Incoming, Reply};
use super::reading::{IDLE_HEARTBEAT, ReadEnd};
use super::storage::{Shared, Storage};
use super::values;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull;
use async_nats::{Message, jetstream};
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
    let (Ok(mut acks), Ok(mut syncs), Ok(mut orders), Ok(mut bundles), Ok(mut beats)) = (
        client.subscribe(subjects.to_this_host("ack")).await,
        client.subscribe(subjects.to_this_host("sync")).await,
        client.subscribe(subjects.to_this_host("order")).await,
        client.subscribe(subjects.to_this_host("bundle")).await,
        client.subscribe(subjects.beats()).await,
    ) else {
        return;
    };
    loop {
        let event = tokio::select! {
            message = acks.next() => message.map(ack),
            message = syncs.next() => message.map(|message| sync(&shared, message)),
            message = orders.next() => message.map(|message| order(&shared, message)),
            message = bundles.next() => message.map(|message| bundle(&shared, message)),
            message = beats.next() => message.map(beat),
        };
        match event {
            Some(Some(event)) => {
                if events.send(event).await.is_err() {
                    return;
                }
            }
            // A message without a valid sender.
            Some(None) => {}
            None => return,
        }
    }
}

fn ack(message: Message) -> Option<Incoming> {
    Some(Incoming::Ack { from: sender(&message.subject)?, body: message.payload })
}

fn sync(shared: &Arc<Shared>, message: Message) -> Option<Incoming> {
    let reply = Reply::new(message.reply?, shared);
    Some(Incoming::Sync { from: sender(&message.subject)?, body: message.payload, reply })
}

fn order(shared: &Arc<Shared>, message: Message) -> Option<Incoming> {
    let reply = Reply::new(message.reply?, shared);
    Some(Incoming::Order { from: sender(&message.subject)?, body: message.payload, reply })
}

fn bundle(shared: &Arc<Shared>, message: Message) -> Option<Incoming> {
    let reply = Reply::new(message.reply?, shared);
    Some(Incoming::Bundle { from: sender(&message.subject)?, body: message.payload, reply })
}

fn beat(message: Message) -> Option<Incoming> {
    Some(Incoming::Beat { from: sender(&message.subject)?, body: message.payload })
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

/// Makes frames of messages. A message without a valid sender is removed from the stream: it would come for ever.
async fn frames(
    shared: &Arc<Shared>,
    storage: &Storage,
    messages: Vec<jetstream::Message>,
) -> Vec<Frame> {
    let mut frames = Vec::with_capacity(messages.len());
    for message in messages {
        match sender(&message.subject) {
            Some(from) => frames.push(Frame::new(from, message, storage.mail_number, shared)),
            // The server repeats the message if this fails.
            None => drop(message.ack_with(AckKind::Term).await),
        }
    }
    frames
}
