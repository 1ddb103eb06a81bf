//! Messages and prompts that a member gets between two replies of the record, each with its place.

use super::place::Place;
use super::recorded_mail::was_sent_before;
use crate::tools::approval_decision::ApprovalDecision;
use crate::wire::message::Message;
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};

/// A message or a prompt that the member gets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Delivery {
    pub(super) at: WallTime,
    /// The time that the others must have reached. A message that came during a call had come before its result.
    pub(super) ordered_at: WallTime,
    pub(super) what: Delivered,
    /// The place after which it comes.
    pub(super) after: Place,
    /// Whether the member was idle before it.
    pub(super) comes_at_rest: bool,
    /// The call before it, if another call of the same reply comes after it.
    pub(super) after_call: Option<String>,
    /// Whether it came while the model wrote a reply, and before the first call of the reply.
    pub(super) is_ahead: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Delivered {
    Mail { message: Map<String, Value>, verified: bool },
    Prompt(String),
}

impl Delivery {
    pub(super) fn is_mail(&self) -> bool {
        matches!(self.what, Delivered::Mail { .. })
    }

    /// Whether the member gets a task that it has taken from the list by itself.
    pub(super) fn is_own_claim(&self) -> bool {
        let Delivered::Mail { message, .. } = &self.what else { return false };
        let is = |key: &str, value: &str| message.get(key).is_some_and(|found| found == value);
        is("type", "task_assignment") && is("from", AgentName::system().as_str())
    }

    pub(super) fn was_sent_before(&self, time: WallTime) -> bool {
        matches!(&self.what, Delivered::Mail { message, .. } if was_sent_before(message, time))
    }

    /// Returns the delivery with another time that the others must have reached.
    pub(super) fn ordered_at(self, ordered_at: WallTime) -> Self {
        Self { ordered_at, ..self }
    }

    /// Whether it answers a question, and may come together with the mail after it.
    pub(super) fn is_answer(&self) -> bool {
        let Delivered::Mail { message, .. } = &self.what else { return false };
        Message::read(message).is_ok_and(|it| ApprovalDecision::of_body(&it.body).is_some())
    }

    /// Whether no step of the member comes between the two.
    pub(super) fn comes_with(&self, other: &Self) -> bool {
        self.after == Place { delivered: self.after.delivered, ..other.after }
    }

    /// Whether the delivery starts a turn of an idle member.
    pub(super) fn wakes(&self) -> bool {
        match &self.what {
            Delivered::Prompt(_) => true,
            Delivered::Mail { message, .. } => {
                Message::read(message).is_ok_and(|message| message.body.wakes())
            }
        }
    }
}
