//! What a drain hands to the owner of a mailbox, and the policy it follows.

use crate::store::Fsync;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::time::Duration;

/// How an owner takes in mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailPolicy {
    /// What an acknowledged message survives.
    pub fsync: Fsync,
    /// Longest content in bytes; longer ones become dead letters.
    pub max_content: usize,
}

/// A message taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct Mail {
    /// What it says. In a place of its own: much mail is moved several times on its way.
    pub message: Box<Message>,
    /// The line as it was received, with its id: one JSON object.
    pub text: String,
    /// The claim it came from.
    pub batch_id: String,
    /// Where in the claim.
    pub offset: u64,
}

impl Mail {
    /// The message as an object, also with the fields that this version does not know.
    pub fn object(&self) -> Map<String, Value> {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// Something to log, and to tell the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailNotice {
    /// A line became a dead letter.
    Dead {
        /// Why.
        reason: String,
        /// The claim it stood in.
        batch_id: String,
        /// Where.
        offset: u64,
    },
    /// A message came again and was dropped.
    Repeated {
        /// Its id.
        id: String,
        /// Who says it wrote it.
        from: String,
    },
}

/// What one drain brought.
#[derive(Debug, Default, PartialEq)]
#[must_use]
pub struct Drained {
    /// The messages, in order. Their transcript lines are on the disk.
    pub mail: Vec<Mail>,
    /// What else happened.
    pub notices: Vec<MailNotice>,
}

impl Drained {
    /// Nothing came.
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.notices.is_empty()
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.mail.append(&mut later.mail);
        self.notices.append(&mut later.notices);
    }
}

/// What is left of the claims that were acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// Nothing.
    Done,
    /// Late writers may still come: ask again.
    Again {
        /// When.
        after: Duration,
    },
    /// A late writer came: drain.
    Grown,
}

impl SettleResult {
    /// What is to be done next when two claims need something.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Grown, _) | (_, Self::Grown) => Self::Grown,
            (Self::Again { after: one }, Self::Again { after: two }) => {
                Self::Again { after: one.min(two) }
            }
            (again @ Self::Again { .. }, Self::Done) | (Self::Done, again) => again,
        }
    }
}
