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

/// The questions that wait, two of each host at most: those of its agents, and one for an agent that is to start, or has not. When it
/// asks again, it has given up the earlier one.
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
        let mut of_host = self.0.iter_mut().filter(|waiting| waiting.from == question.from);
        match (of_host.next(), of_host.next()) {
            // The earlier one is that of which the host has not heard in time.
            (Some(first), Some(second)) => *first = std::mem::replace(second, question),
            (_, _) => self.0.push_back(question),
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
