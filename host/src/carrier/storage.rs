//! Stream, consumer and bucket of a team: made where they are missing, and recognized if they were made anew.

use super::config::Subjects;
use super::connection::Connection;
use super::error::CarrierError;
use super::freshness::Freshness;
use super::refusal_log::RefusalLog;
use super::timeouts::REQUEST_TIMEOUT;
use crate::trust::{NotTrusted, Opened, Trust};
use agent_team::wire::carried::HostName;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// The deadline of making everything, which takes up to seven requests.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(5);
/// The deadline of one request of these. They are repeated by the receiving tasks.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Copies cost nothing, but a frame that was sent into a dead connection comes back only after this time.
const ACK_WAIT: Duration = Duration::from_secs(3);
const MAX_ACK_PENDING: i64 = 512;
/// The server ignores a second frame with the same id within this time.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// The storage at the server as it was found or made last.
pub(super) struct Storage {
    /// Counts the checks of the storage.
    number: u64,
    /// The connection through which it was checked.
    generation: u64,
    /// Counts the streams that were seen here.
    pub(super) mail_number: u64,
    /// Counts the buckets that were seen here.
    pub(super) bucket_number: u64,
    pub(super) mail: stream::Stream,
    pub(super) consumer: PullConsumer,
    pub(super) store: Store,
}

/// The last known storage, and the lock of those that check it.
pub(super) struct StorageState {
    checking: Mutex<()>,
    current: watch::Sender<Option<Arc<Storage>>>,
}

impl Default for StorageState {
    fn default() -> Self {
        Self { checking: Mutex::default(), current: watch::Sender::new(None) }
    }
}

/// The parts that the clones of a carrier and the receiving tasks share.
pub(crate) struct Shared {
    pub(super) connection: Connection,
    pub(super) context: jetstream::Context,
    pub(super) subjects: Subjects,
    pub(super) trust: Arc<Trust>,
    pub(super) freshness: Freshness,
    pub(super) refusals: RefusalLog,
    pub(super) mail_max_bytes: Option<u64>,
    /// The number of servers that the configuration names.
    pub(super) servers: usize,
    pub(super) storage: StorageState,
}

impl Shared {
    /// Verifies a message, and decrypts it; tells of one that is not accepted.
    pub(super) fn open(&self, context: &str, signed: &Bytes) -> Result<Opened, NotTrusted> {
        let opened = self.trust.open(context, signed);
        if let Err(why) = &opened {
            self.refusals.note(context, why);
        }
        opened
    }

    /// Verifies a message of a host.
    pub(super) fn open_of(
        &self,
        host: &HostName,
        context: &str,
        signed: &Bytes,
    ) -> Result<Bytes, NotTrusted> {
        let Opened { by, body } = self.open(context, signed)?;
        if by != *host {
            let why = NotTrusted::Sender(by);
            self.refusals.note(context, &why);
            return Err(why);
        }
        Ok(body)
    }

    /// A receiver of each newly checked storage.
    pub(super) fn watch_storage(&self) -> watch::Receiver<Option<Arc<Storage>>> {
        self.storage.current.subscribe()
    }

    /// The number of the last check. After a failure, only a check with a higher number tells something new.
    pub(super) fn storage_number(&self) -> u64 {
        self.storage.current.borrow().as_ref().map_or(0, |last| last.number)
    }

    /// The storage, checked through the present connection.
    pub(super) async fn storage(&self) -> Result<Arc<Storage>, CarrierError> {
        match self.checked_storage(0) {
            Some(storage) => Ok(storage),
            None => self.ensure(0).await,
        }
    }

    /// Makes all parts of the storage that are missing, unless that happened after check number `after` and through the
    /// present connection.
    pub(super) async fn ensure(&self, after: u64) -> Result<Arc<Storage>, CarrierError> {
        let what = "making the stream and the bucket of the team";
        let work = async {
            let _checking = self.storage.checking.lock().await;
            match self.checked_storage(after) {
                Some(storage) => Ok(storage),
                None => Box::pin(self.check_storage(what)).await,
            }
        };
        self.connection.run(what, ENSURE_TIMEOUT, work).await
    }

    fn checked_storage(&self, after: u64) -> Option<Arc<Storage>> {
        let generation = self.connection.state().generation;
        let current = self.storage.current.borrow();
        current
            .as_ref()
            .filter(|storage| storage.number > after && storage.generation == generation)
            .cloned()
    }

    async fn check_storage(&self, what: &'static str) -> Result<Arc<Storage>, CarrierError> {
        let generation = self.connection.state().generation;
        let may_make = !self.trust.is_limited();
        // Creation is idempotent at the server, so two hosts may do it at once.
        let mail = if may_make {
            self.kept_stream(what, self.stream_config()).await?
        } else {
            self.step(what, self.context.get_stream(self.subjects.stream())).await?
        };
        let consumer = self.step(what, mail.create_consumer(self.consumer_config())).await?;
        if may_make {
            self.kept_stream(what, self.bucket_config()).await?;
        }
        let store = match self.step(what, self.context.get_key_value(self.subjects.bucket())).await
        {
            Ok(store) => store,
            Err(late @ CarrierError::Timeout { .. }) => return Err(late),
            Err(_) => return Err(CarrierError::StorageMissing),
        };
        let mut checked = Storage {
            number: 1,
            generation,
            mail_number: 1,
            bucket_number: 1,
            mail,
            consumer,
            store,
        };
        if let Some(last) = self.storage.current.borrow().as_ref() {
            checked.follow(last);
        }
        let checked = Arc::new(checked);
        self.storage.current.send_replace(Some(Arc::clone(&checked)));
        Ok(checked)
    }

    fn stream_config(&self) -> stream::Config {
        stream::Config {
            name: self.subjects.stream(),
            subjects: vec![self.subjects.all_mail()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            num_replicas: 1,
            discard: DiscardPolicy::New,
            duplicate_window: DUPLICATE_WINDOW,
            max_bytes: self.mail_max_bytes.and_then(|max| i64::try_from(max).ok()).unwrap_or(-1),
            ..stream::Config::default()
        }
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.subjects.consumer().into()),
            filter_subject: self.subjects.to_this_host("mail"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: MAX_ACK_PENDING,
            ..pull::Config::default()
        }
    }

    /// A bucket as the library makes it, without a way to remove all values by one message.
    fn bucket_config(&self) -> stream::Config {
        let bucket = self.subjects.bucket();
        stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: 1,
            allow_direct: true,
            deny_delete: true,
            allow_rollup: false,
            ..stream::Config::default()
        }
    }

    /// Waits for one request of a check. A server that is just starting may leave a request without an answer.
    pub(super) async fn step<T, E: Error + 'static>(
        &self,
        what: &'static str,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CarrierError> {
        let answer = self.connection.answer(what, STEP_TIMEOUT, request).await?;
        answer.map_err(|error| CarrierError::from_nats(what, &error))
    }

    /// Runs an operation on the storage, and once more if the server turned out to have lost it.
    pub(super) async fn with_storage<T, F: Future<Output = Result<T, CarrierError>>>(
        &self,
        what: &'static str,
        operation: impl Fn(Arc<Storage>) -> F,
    ) -> Result<T, CarrierError> {
        let storage = self.storage().await?;
        let first = self.connection.run(what, REQUEST_TIMEOUT, operation(storage)).await;
        if !matches!(first, Err(CarrierError::StorageMissing)) {
            return first;
        }
        let storage = self.ensure(self.storage_number()).await?;
        self.connection.run(what, REQUEST_TIMEOUT, operation(storage)).await
    }
}

impl Storage {
    /// Takes over the counts of the check before.
    fn follow(&mut self, last: &Self) {
        // A stream of the same name that was made at another time has none of the messages of the first.
        let is_mail_new = self.mail.cached_info().created != last.mail.cached_info().created;
        let is_bucket_new =
            self.store.stream.cached_info().created != last.store.stream.cached_info().created;
        self.number = last.number + 1;
        self.mail_number = last.mail_number + u64::from(is_mail_new);
        self.bucket_number = last.bucket_number + u64::from(is_bucket_new);
    }
}
