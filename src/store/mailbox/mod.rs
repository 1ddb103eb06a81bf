//! Mailboxes: senders append to an inbox ([`inbox`]); the owner claims the file, delivers its lines into
//! a [sink](MailSink), for an agent its transcript, and acknowledges them ([`Mailbox`]). RELIABILITY.md 3 is the specification.

mod attempts;
mod batch;
pub(super) mod claim;
pub mod dead;
mod dedup;
pub mod inbox;
mod inbox_folder;
mod ingest;
mod owner;
mod parse_line;
mod rotation;
mod sink;
mod wake;

pub(crate) use batch::drain_together;
pub(crate) use claim::{ClaimFile, KeptClaims, list_all as list_claims};
pub use owner::{Mailbox, MailboxSetup};
pub use sink::{Delivered, Delivery, KnownPart, MailSink};
pub use wake::WakeMode;

use crate::store::Fsync;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::time::Duration;

/// The policy for incoming mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailPolicy {
    /// The failures that an acknowledged message survives.
    pub fsync: Fsync,
    /// The maximum length of a message's content, in bytes. Longer messages become dead letters.
    pub max_content: usize,
}

/// A delivered message.
#[derive(Debug, Clone, PartialEq)]
pub struct Mail {
    /// The message; boxed, because mail is moved several times on its way.
    pub message: Box<Message>,
    /// The line as it was received, with its id: one JSON object.
    pub text: String,
    /// The batch id of its claim.
    pub batch_id: String,
    /// The offset in the claim.
    pub offset: u64,
}

impl Mail {
    /// Returns the message as an object, with the fields that this version does not know.
    pub fn object(&self) -> Map<String, Value> {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// An event that is logged and reported to the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailNotice {
    /// A line became a dead letter.
    Dead {
        /// The reason for the rejection.
        reason: String,
        /// The batch id of its claim.
        batch_id: String,
        /// The offset in the claim.
        offset: u64,
    },
    /// A repeated message was dropped.
    Repeated {
        /// The id of the message.
        id: String,
        /// The sender that the message names.
        from: String,
    },
}

/// The result of one drain.
#[derive(Debug, Default, PartialEq)]
#[must_use]
pub struct Drained {
    /// The messages in order. Their transcript lines are on disk.
    pub mail: Vec<Mail>,
    /// The other events.
    pub notices: Vec<MailNotice>,
}

impl Drained {
    /// Whether the drain returned neither mail nor notices.
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.notices.is_empty()
    }
}

/// The state of the claims that were acted on. The most urgent variant comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettleResult {
    /// A late writer has appended to a claim: drain again.
    Grown,
    /// Late writers may still append: settle again.
    Again {
        /// The pause before the next call.
        after: Duration,
    },
    /// No claim remains.
    Done,
}
