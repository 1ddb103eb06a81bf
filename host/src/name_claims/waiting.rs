//! The questions of other hosts that the authority has not answered yet.

use super::question::{WantedName, parse};
use crate::carrier::Reply;
use agent_team::wire::carried::HostName;
use bytes::Bytes;
use std::collections::VecDeque;

/// The number of names after which no more questions are answered together: signs of life must not wait for them.
const ENOUGH_NAMES: usize = 512;

/// A question that another host has asked this one, the authority.
pub(crate) struct ReceivedClaim {
    pub(crate) from: HostName,
    pub(crate) body: Bytes,
    /// The way back.
    pub(crate) reply: Reply,
}

/// The questions that wait, one of each host: it has given up an earlier one when it asks again.
#[derive(Default)]
pub(super) struct WaitingQuestions(VecDeque<WaitingQuestion>);

/// A question, as far as it is understood.
pub(super) struct WaitingQuestion {
    pub(super) from: HostName,
    pub(super) names: Vec<WantedName>,
    /// The way back.
    pub(super) reply: Reply,
}

impl WaitingQuestion {
    /// Returns each name with the host that asks.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&HostName, &WantedName)> {
        self.names.iter().map(|name| (&self.from, name))
    }
}

impl WaitingQuestions {
    /// Notes a question.
    pub(super) fn add(&mut self, claim: ReceivedClaim) {
        let ReceivedClaim { from, body, reply } = claim;
        let Some(names) = parse(&body) else {
            tracing::warn!(by = %from, "what came is no claim of names that this version knows");
            return;
        };
        let question = WaitingQuestion { from, names, reply };
        match self.0.iter_mut().find(|waiting| waiting.from == question.from) {
            Some(waiting) => *waiting = question,
            None => self.0.push_back(question),
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes some out, the oldest first.
    pub(super) fn take_some(&mut self) -> Vec<WaitingQuestion> {
        let (mut some, mut names) = (Vec::new(), 0);
        while names < ENOUGH_NAMES
            && let Some(question) = self.0.pop_front()
        {
            names += question.names.len();
            some.push(question);
        }
        some
    }
}
