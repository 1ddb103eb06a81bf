//! The events that a carrier receives.

use super::error::CarrierError;
use super::freshness::answered;
use super::storage::Shared;
use crate::trust::NotTrusted;
use agent_team::wire::carried::HostName;
use async_nats::jetstream::{AckKind, Message};
use async_nats::{Subject, jetstream};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The pause before a refused frame is delivered again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// One event of a carrier.
#[derive(Debug)]
pub enum Incoming {
    /// A connection stands. Mail, acknowledgements and values are received without a further call.
    Connected,
    /// The connection was lost. It is made again in the background.
    Disconnected,
    /// The frames that are there, from 1 to 64, in the order of the stream. A frame that was delivered before without
    /// being acknowledged comes again, then out of order.
    Frames(Vec<Frame>),
    /// An acknowledgement of another host.
    Ack {
        /// The host, which has signed it.
        from: String,
        /// The acknowledgement as it was sent.
        body: Bytes,
    },
    /// Another host asks how far its mail has come.
    Sync {
        /// The host, which has signed it.
        from: String,
        /// The question as it was sent.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// Another host gives an order, or asks for its answer.
    Order {
        /// The host, which has signed it.
        from: String,
        /// The order as it was sent.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// Another host asks for a part of a bundle.
    Bundle {
        /// The host, which has signed it.
        from: String,
        /// The question as it was sent.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// Another host asks for files of this one, or for a part of one.
    Copy {
        /// The host, which has signed it.
        from: String,
        /// The question as it was sent.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// Another host asks this one, the authority, to place a name.
    Claim {
        /// The host, which has signed it.
        from: String,
        /// The question as it was sent.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// A host that is no member yet asks this one, the authority, to join.
    Join {
        /// The question as it was sent. It is not signed.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// A sign of life of another host.
    Beat {
        /// The host, which has signed it.
        from: String,
        /// The message as it was sent.
        body: Bytes,
    },
    /// The values of the bucket are read from its beginning, as after each reconnection. All of them come again.
    ValuesBegin,
    /// A value of the bucket. The own changes come, too.
    Value {
        /// The key.
        key: String,
        /// The value. One that was lost with the bucket is not reported.
        value: StoredValue,
        /// The revision, for `Carrier::update`. It starts at 1 in each bucket.
        revision: u64,
    },
    /// All values that the bucket has were reported since the reading has begun.
    AllValues,
    /// The server lost the bucket and it was made anew, by this host or another one, while this carrier ran. The owners
    /// put their values again. The values that it holds already follow, from `ValuesBegin` to `AllValues`.
    BucketMadeAnew,
}

/// A value of the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValue {
    /// A host has signed it.
    Signed {
        /// The host.
        by: HostName,
        /// The value as it was put.
        body: Bytes,
    },
    /// It was deleted. Nobody has signed that.
    Removed,
    /// The stored value is not trusted.
    Untrusted(NotTrusted),
}

impl StoredValue {
    /// Returns the value, if this host has signed it.
    pub fn of(&self, host: &HostName) -> Option<&[u8]> {
        match self {
            Self::Signed { by, body } if by == host => Some(body),
            Self::Signed { .. } | Self::Removed | Self::Untrusted(_) => None,
        }
    }
}

/// One frame of another host.
pub struct Frame {
    /// The sending host, which has signed it.
    pub from: String,
    /// The frame as it was published.
    pub body: Bytes,
    message: Message,
    /// The number of the stream that has delivered it.
    mail_number: u64,
    shared: Arc<Shared>,
}

impl Frame {
    pub(super) fn new(
        (from, body): (String, Bytes),
        message: Message,
        mail_number: u64,
        shared: &Arc<Shared>,
    ) -> Self {
        Self { from, body, message, mail_number, shared: Arc::clone(shared) }
    }

    /// The number of times that the server has delivered it.
    pub fn deliveries(&self) -> i64 {
        self.message.info().map_or(1, |info| info.delivered)
    }

    /// Tells the server to forget the frame. If that fails, the frame comes again after 3 seconds.
    pub async fn acknowledge(self) {
        self.answer(AckKind::Ack).await;
    }

    /// Tells the server to deliver the frame again after 500 ms. If that fails, it comes after 3 seconds.
    pub async fn try_again_later(self) {
        self.answer(AckKind::Nak(Some(RETRY_DELAY))).await;
    }

    async fn answer(self, kind: AckKind) {
        let Ok(storage) = self.shared.storage().await else { return };
        if storage.mail_number != self.mail_number {
            // An answer goes by the number in the stream. In a stream that was made anew, another frame has it.
            return;
        }
        let what = "acknowledging a frame";
        let work = async {
            let refused = |why: async_nats::Error| CarrierError::from_nats(what, &*why);
            self.message.ack_with(kind).await.map_err(refused)
        };
        // The next delivery of the frame repairs a failure.
        self.shared.connection.hand_over(what, work).await.ok();
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("from", &self.from)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The way back to a host that has asked.
pub struct Reply {
    to: HostName,
    subject: Subject,
    shared: Arc<Shared>,
}

impl Reply {
    pub(super) fn new(to: HostName, subject: Subject, shared: &Arc<Shared>) -> Self {
        Self { to, subject, shared: Arc::clone(shared) }
    }

    /// Sends an answer without a signature, to a host that trusts none yet.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub async fn answer_unsigned(self, body: Bytes) -> Result<(), CarrierError> {
        let what = "answering another host";
        self.shared.publish_unsigned(what, self.subject.to_string(), body).await
    }

    /// Sends the answer. It is lost without an error if the other host no longer waits.
    pub async fn answer(self, body: Bytes) -> Result<(), CarrierError> {
        let subject = self.subject.to_string();
        let body = answered(&body);
        self.shared.publish_to("answering another host", &self.to, subject, body).await
    }

    /// Answers that the question is to be asked again, as this text says.
    pub(super) async fn ask_again(self, text: Bytes) {
        let subject = self.subject.to_string();
        let what = "having another host ask again";
        drop(self.shared.publish_to(what, &self.to, subject, text).await);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

/// Whether a change of a value is its deletion.
pub(super) fn is_deletion(message: &jetstream::Message) -> bool {
    let headers = message.headers.as_ref();
    headers.is_some_and(|headers| {
        headers.get("Nats-Marker-Reason").is_some()
            || headers
                .get("KV-Operation")
                .is_some_and(|kind| matches!(kind.as_str(), "DEL" | "PURGE"))
    })
}
