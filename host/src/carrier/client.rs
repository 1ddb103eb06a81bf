//! The carrier as its user sees it: the connection, frames, messages between hosts, and values of the bucket.

use super::config::{CarrierConfig, Subjects, check_host};
use super::connection::Connection;
use super::error::CarrierError;
use super::freshness::{Answer, Freshness};
use super::incoming::Incoming;
use super::receive;
use super::refusal_log::RefusalLog;
use super::storage::{Shared, Storage, StorageState};
use super::timeouts::LIBRARY_TIMEOUT;
use agent_team::wire::carried::HostName;
use async_nats::jetstream::context::{ConsumerInfoErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{Operation, UpdateError, UpdateErrorKind};
use async_nats::jetstream::{self, consumer};
use async_nats::{HeaderMap, Request, RequestErrorKind};
use bytes::Bytes;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The deadline of the answer of another host.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);

/// The times that a question is asked, with a newer word of the other host each.
const MOST_ASKED: usize = 3;

/// The connection of one host to the NATS server. Clones share it.
///
/// The connection ends after the last clone, the receiver of [`Carrier::receive`] and all frames and
/// questions are dropped. While the server is away, the connection task of async-nats then stays parked until
/// its runtime ends; it neither wakes nor connects.
#[derive(Clone)]
pub struct Carrier {
    shared: Arc<Shared>,
}

impl Carrier {
    /// Starts to connect in the background and returns at once. Fails if the config has a bad name or server address.
    /// An unreachable server is no error: it is tried again at least four times a second.
    pub async fn start(config: CarrierConfig) -> Result<Self, CarrierError> {
        config.check()?;
        let connection = Connection::start(&config).await?;
        let context = jetstream::context::ContextBuilder::new()
            .timeout(LIBRARY_TIMEOUT)
            .ack_timeout(LIBRARY_TIMEOUT)
            .build(connection.client().clone());
        let shared = Shared {
            connection,
            context,
            subjects: Subjects::new(&config.team, &config.host),
            trust: Arc::clone(&config.trust),
            freshness: Freshness::new(),
            refusals: RefusalLog::default(),
            mail_max_bytes: config.mail_max_bytes,
            servers: config.servers.len(),
            storage: StorageState::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether the connection to a server stands now. A dead network is noticed within about 3 seconds.
    pub fn is_connected(&self) -> bool {
        self.shared.connection.state().is_connected
    }

    /// The last error of the connection, in the words of async-nats, for a person who asks why there is none. It stays
    /// after the connection is up again.
    pub fn last_connection_error(&self) -> Option<String> {
        self.shared.connection.last_error()
    }

    /// The largest message that the server takes, in bytes. It is 1 MiB before the first connection, whatever the
    /// server takes.
    pub fn max_payload(&self) -> usize {
        self.shared.connection.client().max_payload()
    }

    /// The version of the server, and `None` before the first connection.
    pub fn server_version(&self) -> Option<String> {
        self.shared.connection.client().try_server_info().map(|info| info.version)
    }

    /// Starts the receiving tasks with `tokio::spawn` and returns the channel of their events, in which each kind
    /// keeps its order. Call it once for a host: two receivers would share the frames.
    ///
    /// All tasks are aborted once the receiver is dropped. A receiver that is not read holds up its own tasks alone:
    /// frames then wait at the server. Panics outside of a tokio runtime.
    pub fn receive(&self) -> mpsc::Receiver<Incoming> {
        receive::start(&self.shared)
    }
}

impl Carrier {
    /// Makes stream, consumer and bucket if they are missing. The other operations and the receiving tasks do so
    /// themselves; this one is for a person who waits for the result.
    pub async fn ensure(&self) -> Result<(), CarrierError> {
        self.shared.ensure(self.shared.storage_number()).await.map(drop)
    }

    /// The number of frames to this host that are not acknowledged yet: those that wait at the server, and those that
    /// were delivered.
    pub async fn pending(&self) -> Result<u64, CarrierError> {
        let what = "asking for the waiting mail";
        let info =
            self.shared.with_storage(what, |storage| self.consumer_info(what, storage)).await?;
        Ok(info.num_pending + info.num_ack_pending as u64)
    }

    async fn consumer_info(
        &self,
        what: &'static str,
        storage: Arc<Storage>,
    ) -> Result<consumer::Info, CarrierError> {
        let name = self.shared.subjects.consumer();
        match storage.mail.consumer_info(name).await {
            Ok(info) => Ok(info),
            // Its error keeps the server's answer in the kind, not in the chain.
            Err(error)
                if error.kind() == ConsumerInfoErrorKind::NotFound
                    || error.kind() == ConsumerInfoErrorKind::StreamNotFound =>
            {
                Err(CarrierError::StorageMissing)
            }
            Err(error) => Err(CarrierError::from_nats(what, &error)),
        }
    }
}

impl Shared {
    /// Signs the value of a key.
    fn signed_value(&self, key: &str, value: &[u8]) -> Bytes {
        self.trust.sign(&self.subjects.value(key), value)
    }

    /// Encrypts a message for a host, and signs it.
    fn encrypt(&self, to: &HostName, subject: &str, body: &[u8]) -> Result<Bytes, CarrierError> {
        let encrypted = self.trust.encrypt(to, subject, body);
        encrypted.ok_or_else(|| CarrierError::KeyUnknown(to.clone()))
    }

    /// Publishes a message to a host, which nothing keeps.
    pub(super) async fn publish_to(
        &self,
        what: &'static str,
        to: &HostName,
        subject: String,
        body: Bytes,
    ) -> Result<(), CarrierError> {
        let body = self.encrypt(to, &subject, &body)?;
        self.publish_unsigned(what, subject, body).await
    }

    /// Publishes a message as it is: signed, or of a host that trusts none yet.
    pub(super) async fn publish_unsigned(
        &self,
        what: &'static str,
        subject: String,
        body: Bytes,
    ) -> Result<(), CarrierError> {
        let bytes = body.len();
        let work = async {
            let sent = self.connection.client().publish(subject, body).await;
            sent.map_err(|error| match error.kind() {
                async_nats::PublishErrorKind::MaxPayloadExceeded => self.too_large(bytes),
                async_nats::PublishErrorKind::Send
                | async_nats::PublishErrorKind::InvalidSubject => {
                    CarrierError::from_nats(what, &error)
                }
            })
        };
        self.connection.hand_over(what, work).await
    }

    fn too_large(&self, bytes: usize) -> CarrierError {
        CarrierError::TooLarge { bytes, max: self.connection.client().max_payload() }
    }

    async fn publish_stored(
        &self,
        what: &'static str,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), CarrierError> {
        let bytes = body.len();
        let refused = |error: PublishError| {
            if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                self.too_large(bytes)
            } else {
                CarrierError::from_nats(what, &error)
            }
        };
        let sent = self.context.publish_with_headers(subject, headers, body).await;
        sent.map_err(refused)?.await.map(drop).map_err(refused)
    }

    /// The reason for which a value was not stored.
    fn value_error(
        &self,
        what: &'static str,
        key: &str,
        bytes: usize,
        error: &(dyn Error + 'static),
    ) -> CarrierError {
        if let Some(error) = error.downcast_ref::<UpdateError>()
            && error.kind() == UpdateErrorKind::WrongLastRevision
        {
            return CarrierError::RevisionChanged(key.into());
        }
        if bytes > self.connection.client().max_payload() {
            return self.too_large(bytes);
        }
        CarrierError::from_nats(what, error)
    }

    async fn create_value(
        &self,
        what: &'static str,
        storage: Arc<Storage>,
        key: &str,
        value: Bytes,
    ) -> Result<u64, CarrierError> {
        let bytes = value.len();
        let refused = |error: &(dyn Error + 'static)| self.value_error(what, key, bytes, error);
        let error = match storage.store.update(key, value.clone(), 0).await {
            Ok(revision) => return Ok(revision),
            Err(error) => error,
        };
        if error.kind() != UpdateErrorKind::WrongLastRevision {
            return Err(refused(&error));
        }
        // A deleted key keeps the revision of its deletion.
        match storage.store.entry(key).await.map_err(|error| refused(&error))? {
            Some(entry) if entry.operation != Operation::Put => {
                let stored = storage.store.update(key, value, entry.revision).await;
                stored.map_err(|error| refused(&error))
            }
            Some(_) | None => Err(CarrierError::AlreadyExists(key.into())),
        }
    }
}

impl Carrier {
    /// Publishes a frame to a host and waits until the server has stored and synced it, at most 2 seconds, or 8 on a slow link. The server
    /// drops a second frame with the same `msg_id` within two minutes; that is no error. If the stream is missing it
    /// is made, and the frame is published once more.
    ///
    /// Futures that are polled for the first time in some order send in that order.
    pub async fn publish_frame(
        &self,
        to: &str,
        msg_id: &str,
        frame: Bytes,
    ) -> Result<(), CarrierError> {
        let (host, what) = (check_host(to)?, "publishing mail");
        let shared = &self.shared;
        let subject = shared.subjects.to("mail", to);
        let frame = shared.encrypt(&host, &subject, &frame)?;
        let publish = |_: Arc<Storage>| {
            let mut headers = HeaderMap::new();
            headers.insert(async_nats::header::NATS_MESSAGE_ID, msg_id);
            shared.publish_stored(what, subject.clone(), headers, frame.clone())
        };
        shared.with_storage(what, publish).await
    }

    /// Publishes an acknowledgement to a host. It is lost without an error if the host is away.
    pub async fn publish_ack(&self, to: &str, body: Bytes) -> Result<(), CarrierError> {
        let host = check_host(to)?;
        let subject = self.shared.subjects.to("ack", to);
        self.shared.publish_to("publishing an acknowledgement", &host, subject, body).await
    }

    /// Publishes a sign of life to all other hosts.
    pub async fn publish_beat(&self, body: Bytes) -> Result<(), CarrierError> {
        let subject = self.shared.subjects.beat();
        let body = self.shared.trust.sign(&subject, &body);
        self.shared.publish_unsigned("publishing a sign of life", subject, body).await
    }

    /// Asks a host how far the mail of this host has come, and returns its answer. Fails with `HostAway` at once if that
    /// host is not connected, and with `Timeout` after 1.5 seconds, or 6 on a slow link.
    pub async fn request_sync(&self, to: &str, body: Bytes) -> Result<Bytes, CarrierError> {
        self.request("sync", to, body).await
    }

    /// Gives an order to a host, or asks for its answer again, and returns what it says. Fails as [`Self::request_sync`] does.
    pub async fn request_order(&self, to: &str, body: Bytes) -> Result<Bytes, CarrierError> {
        self.request("order", to, body).await
    }

    /// Asks a host for a part of a bundle. Fails as [`Self::request_sync`] does.
    pub async fn request_bundle(&self, to: &str, body: Bytes) -> Result<Bytes, CarrierError> {
        self.request("bundle", to, body).await
    }

    /// Asks a host for files of it, or for a part of one. Fails as [`Self::request_sync`] does.
    pub async fn request_copy(&self, to: &str, body: Bytes) -> Result<Bytes, CarrierError> {
        self.request("copy", to, body).await
    }

    /// Asks the authority of the team to place a name. Fails as [`Self::request_sync`] does.
    pub async fn request_claim(&self, body: Bytes) -> Result<Bytes, CarrierError> {
        let authority = self.shared.trust.authority().as_str();
        self.request("claim", authority, body).await
    }

    async fn request(
        &self,
        kind: &'static str,
        to: &str,
        body: Bytes,
    ) -> Result<Bytes, CarrierError> {
        let (host, what) = (check_host(to)?, "asking another host");
        let subject = self.shared.subjects.to(kind, to);
        let work = async {
            for _ in 0..MOST_ASKED {
                let answer = self.ask(&host, &subject, &body).await?;
                match self.shared.freshness.answer(&host, &answer) {
                    Some(Answer::Body(body)) => return Ok(body),
                    Some(Answer::Again) => {}
                    None => break,
                }
            }
            let why = "it answers in a way that this version does not know".to_owned();
            Err(CarrierError::Refused { what, why })
        };
        self.shared.connection.ask(what, ANSWER_TIMEOUT, work).await
    }

    /// Asks a host once.
    async fn ask(
        &self,
        host: &HostName,
        subject: &str,
        body: &[u8],
    ) -> Result<Bytes, CarrierError> {
        let (what, to) = ("asking another host", host.as_str());
        let question = self.shared.freshness.question(host, body);
        let body = self.shared.encrypt(host, subject, &question)?;
        let bytes = body.len();
        let request = Request::new().payload(body).timeout(None);
        let answered =
            self.shared.connection.client().send_request(subject.to_owned(), request).await;
        let message = answered.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => CarrierError::HostAway(to.into()),
            RequestErrorKind::MaxPayloadExceeded => self.shared.too_large(bytes),
            RequestErrorKind::TimedOut
            | RequestErrorKind::InvalidSubject
            | RequestErrorKind::Other => CarrierError::from_nats(what, &error),
        })?;
        // The subject of an answer is that of its question alone: an older answer does not fit.
        let opened = self.shared.open_of(host, &message.subject, &message.payload);
        opened.map_err(|why| CarrierError::Untrusted(to.into(), why))
    }

    /// Sets the value of a key, whatever it was, and returns its revision.
    pub async fn put(&self, key: &str, value: Bytes) -> Result<u64, CarrierError> {
        let what = "storing a value";
        let shared = &self.shared;
        let value = shared.signed_value(key, &value);
        let put = |storage: Arc<Storage>| {
            let value = value.clone();
            async move {
                let bytes = value.len();
                let stored = storage.store.put(key, value).await;
                stored.map_err(|error| shared.value_error(what, key, bytes, &error))
            }
        };
        shared.with_storage(what, put).await
    }

    /// Sets the value of a key that does not exist or was deleted, and returns its revision. Fails with
    /// `AlreadyExists`.
    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, CarrierError> {
        let what = "creating a value";
        let value = self.shared.signed_value(key, &value);
        let create = |storage| self.shared.create_value(what, storage, key, value.clone());
        match self.shared.with_storage(what, create).await {
            Err(CarrierError::RevisionChanged(key)) => Err(CarrierError::AlreadyExists(key)),
            other => other,
        }
    }

    /// Sets the value of a key that still has this revision, and returns the new one. Fails with `RevisionChanged`, also
    /// if the bucket was made anew. A failure to hear the answer leaves open whether the value was set.
    pub async fn update(
        &self,
        key: &str,
        value: Bytes,
        revision: u64,
    ) -> Result<u64, CarrierError> {
        let what = "changing a value";
        let shared = &self.shared;
        let value = shared.signed_value(key, &value);
        let update = |storage: Arc<Storage>| {
            let value = value.clone();
            async move {
                let bytes = value.len();
                let stored = storage.store.update(key, value, revision).await;
                stored.map_err(|error| shared.value_error(what, key, bytes, &error))
            }
        };
        shared.with_storage(what, update).await
    }

    /// Deletes a key, whether it exists or not.
    pub async fn delete(&self, key: &str) -> Result<(), CarrierError> {
        let what = "deleting a value";
        let shared = &self.shared;
        let delete = |storage: Arc<Storage>| async move {
            let deleted = storage.store.delete(key).await;
            deleted.map_err(|error| shared.value_error(what, key, 0, &error))
        };
        shared.with_storage(what, delete).await
    }
}
