//! Limits the messages that a model sends in a minute (fault 31), so that a loop of sends cannot fill other inboxes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which messages are counted.
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct RateLimiter {
    most: usize,
    sent: VecDeque<Instant>,
    /// Whether the limit was reported since the sender was last below it.
    is_reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendPermit {
    Granted,
    Wait {
        /// The time until the next message may be sent.
        wait: Duration,
        /// Whether this is the first refusal since the sender was last below the limit.
        first: bool,
    },
}

impl RateLimiter {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, sent: VecDeque::new(), is_reported: false }
    }

    /// Asks for a permit to send `count` messages at once. A batch above the limit is granted once no other
    /// message counts.
    pub(crate) fn ask(&mut self, count: usize, now: Instant) -> SendPermit {
        while self.sent.front().is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW) {
            self.sent.pop_front();
        }
        let Some(oldest) = self.sent.front().filter(|_| self.sent.len() + count > self.most) else {
            self.is_reported = false;
            self.sent.extend(std::iter::repeat_n(now, count));
            return SendPermit::Granted;
        };
        let wait = WINDOW.saturating_sub(now.saturating_duration_since(*oldest));
        SendPermit::Wait { wait, first: !std::mem::replace(&mut self.is_reported, true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_holds_no_more_messages_than_the_limit() {
        let (mut rate_limiter, start) = (RateLimiter::new(3), Instant::now());
        let secs = Duration::from_secs;
        let wait = |seconds, first| SendPermit::Wait { wait: secs(seconds), first };
        for (count, second, permit) in [
            (1, 0, SendPermit::Granted),
            (2, 10, SendPermit::Granted),
            (1, 20, wait(40, true)),
            (1, 20, wait(40, false)),
            (1, 60, SendPermit::Granted),
            // The limit is reported again.
            (1, 60, wait(10, true)),
            // A broadcast above the limit, alone.
            (9, 200, SendPermit::Granted),
        ] {
            assert_eq!(rate_limiter.ask(count, start + secs(second)), permit, "at {second} s");
        }
    }
}
