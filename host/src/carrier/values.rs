//! The receiving task of the bucket.
//!
//! It reads with a plain consumer instead of `Store::watch`: that one resumes at a number after each failure, which means
//! nothing in a bucket that was made anew or put back, and does not tell that an empty bucket is complete.

use super::backoff::Backoff;
use super::connection::ConnectionState;
use super::error::CarrierError;
use super::incoming::{Incoming, StoredValue, is_deletion};
use super::reading::{IDLE_HEARTBEAT, ReadEnd};
use super::storage::{Shared, Storage};
use super::timeouts::REQUEST_TIMEOUT;
use crate::offload::offload;
use crate::trust::Opened;
use agent_team::store::each_at_once;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PushConsumer, push};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The server removes the consumer after this time without a connection.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(10);

/// The most values that are verified together. With thousands of members, that takes most of the time in which a host joins.
const MOST_TOGETHER: usize = 512;

/// The least number of values that is worth other threads.
const WORTH_THREADS: usize = 16;

/// The part of a bucket that was reported.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// The number of the connection. A server that was started again may have been put back, so that all counts anew.
    generation: u64,
    bucket_number: u64,
    /// The place of the last value.
    last: u64,
    /// Whether all values were reported that the bucket had at some time.
    is_complete: bool,
}

impl Position {
    /// Returns where to go on in a bucket, through a connection: at the beginning, unless both are those of before.
    fn in_bucket(self, bucket_number: u64, generation: u64) -> Self {
        if (self.bucket_number, self.generation) == (bucket_number, generation) {
            return self;
        }
        Self { generation, bucket_number, ..Self::default() }
    }
}

/// Reports the values, over all failures of the server.
pub(super) async fn run(shared: Arc<Shared>, events: mpsc::Sender<Incoming>) {
    let mut backoff = Backoff::new();
    let mut after = 0;
    let mut position = Position::default();
    while let Some(mut connection) = shared.connection.connected().await {
        let generation = connection.borrow().generation;
        let end = match shared.ensure(after).await {
            Ok(storage) => {
                let bucket_number = storage.bucket_number;
                let is_made_anew = ![0, bucket_number].contains(&position.bucket_number);
                position = position.in_bucket(bucket_number, generation);
                if position.last == 0 || shared.is_cluster() {
                    // In a cluster, another server than that of this connection may have been put back.
                    (position.last, position.is_complete) = (0, false);
                }
                if is_made_anew && events.send(Incoming::BucketMadeAnew).await.is_err() {
                    return;
                }
                match open(&shared, &storage, position.last).await {
                    Ok(consumer) => {
                        let parts = (&shared, &*storage, &events);
                        let mut watch = ValueWatch::new(parts, &consumer, &mut position);
                        watch.read(&consumer, &mut connection).await
                    }
                    Err(_) => ReadEnd::Failed,
                }
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

/// Makes the consumer of the values after a place; 0 is before all.
async fn open(shared: &Shared, storage: &Storage, last: u64) -> Result<PushConsumer, CarrierError> {
    let what = "watching the bucket of the team";
    let name = shared.subjects.host();
    let config = push::Config {
        // The one that a host may have.
        name: Some(name.to_owned()),
        deliver_subject: shared.connection.client().new_inbox(),
        deliver_policy: match last {
            0 => DeliverPolicy::LastPerSubject,
            // The bucket keeps the last one of each key only.
            last => DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
        },
        filter_subject: format!("{}>", storage.store.prefix),
        ack_policy: AckPolicy::None,
        idle_heartbeat: IDLE_HEARTBEAT,
        inactive_threshold: INACTIVE_THRESHOLD,
        memory_storage: true,
        num_replicas: 1,
        ..push::Config::default()
    };
    let work = async {
        // That of an earlier connection; there may be none.
        drop(storage.store.stream.delete_consumer(name).await);
        let made = storage.store.stream.create_consumer(config).await;
        made.map_err(|error| CarrierError::from_nats(what, &error))
    };
    shared.connection.run(what, REQUEST_TIMEOUT, Box::pin(work)).await
}

/// One reading of the bucket, from its beginning or from where the last one has failed.
struct ValueWatch<'a> {
    shared: &'a Arc<Shared>,
    storage: &'a Storage,
    events: &'a mpsc::Sender<Incoming>,
    /// The number of values that the bucket had after the position when the watch was opened.
    initial: u64,
    received: u64,
    position: &'a mut Position,
}

impl<'a> ValueWatch<'a> {
    fn new(
        (shared, storage, events): (&'a Arc<Shared>, &'a Storage, &'a mpsc::Sender<Incoming>),
        consumer: &PushConsumer,
        position: &'a mut Position,
    ) -> Self {
        let initial = consumer.cached_info().num_pending;
        Self { shared, storage, events, initial, received: 0, position }
    }

    async fn read(
        &mut self,
        consumer: &PushConsumer,
        connection: &mut watch::Receiver<ConnectionState>,
    ) -> ReadEnd {
        let mut storage = self.shared.watch_storage();
        let Ok(messages) = consumer.messages().await else { return ReadEnd::Failed };
        if self.position.last == 0
            && let Err(end) = self.send(Incoming::ValuesBegin).await
        {
            return end;
        }
        let mut messages = messages.ready_chunks(MOST_TOGETHER);
        if let Err(end) = self.tell_if_complete(0).await {
            return end;
        }
        loop {
            let messages = tokio::select! {
                biased;
                _ = connection.changed() => return ReadEnd::Replaced,
                _ = storage.changed() => {
                    let now = storage.borrow_and_update();
                    if now.as_ref().is_some_and(|now| now.bucket_number != self.storage.bucket_number) {
                        return ReadEnd::Replaced;
                    }
                    continue;
                }
                messages = messages.next() => messages,
            };
            let Some(messages) = messages else { return ReadEnd::Failed };
            let count = messages.len();
            let whole: Vec<_> = messages.into_iter().map_while(Result::ok).collect();
            let has_failed = whole.len() < count;
            for (message, value) in self.verified(whole).await {
                if let Err(end) = self.report(&message, value).await {
                    return end;
                }
            }
            if has_failed {
                return ReadEnd::Failed;
            }
        }
    }

    /// Reads values, many of them on several threads; returns each with its message.
    async fn verified(&self, messages: Vec<Message>) -> Vec<(Message, Option<KeyedValue>)> {
        let (shared, prefix) = (Arc::clone(self.shared), self.storage.store.prefix.clone());
        let read = move |message: Message| {
            let value = keyed_value(&shared, &prefix, &message);
            (message, value)
        };
        if messages.len() < WORTH_THREADS {
            return messages.into_iter().map(read).collect();
        }
        offload(move || each_at_once(messages, read)).await
    }

    async fn report(
        &mut self,
        message: &Message,
        value: Option<KeyedValue>,
    ) -> Result<(), ReadEnd> {
        let (revision, pending) = {
            let info = message.info().map_err(|_| ReadEnd::Failed)?;
            self.received += 1;
            if info.consumer_sequence != self.received {
                // The client has dropped messages because they were not read in time.
                return Err(ReadEnd::Failed);
            }
            (info.stream_sequence, info.pending)
        };
        if let Some((key, value)) = value {
            self.send(Incoming::Value { key, value, revision }).await?;
        }
        self.position.last = revision;
        self.tell_if_complete(pending).await
    }

    async fn tell_if_complete(&mut self, pending: u64) -> Result<(), ReadEnd> {
        // A value that changes during the reading is counted at its new place, hence the second condition.
        let has_all = self.received >= self.initial || (self.received > 0 && pending == 0);
        if has_all && !self.position.is_complete {
            self.position.is_complete = true;
            self.send(Incoming::AllValues).await?;
        }
        Ok(())
    }

    async fn send(&self, event: Incoming) -> Result<(), ReadEnd> {
        self.events.send(event).await.map_err(|_| ReadEnd::ReceiverDropped)
    }
}

type KeyedValue = (String, StoredValue);

/// Returns the key and the value of a message, verified; `None` if it is none of the bucket.
fn keyed_value(shared: &Shared, prefix: &str, message: &Message) -> Option<KeyedValue> {
    let key = message.subject.strip_prefix(prefix)?;
    let value = if is_deletion(message) {
        StoredValue::Removed
    } else {
        match shared.open(&shared.subjects.value(key), &message.payload) {
            Ok(Opened { by, body }) => StoredValue::Signed { by, body },
            Err(why) => StoredValue::Untrusted(why),
        }
    };
    Some((key.into(), value))
}
