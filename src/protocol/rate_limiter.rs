//! How many messages an agent's model may send in a minute (fault 31): a loop of sends must not fill
//! the inboxes of the others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Over which time messages are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Counts one sender's messages.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    most: usize,
    sent: VecDeque<Instant>,
    /// Somebody was told that it is too much, and it still is.
    told: bool,
}

/// Whether a message may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendPermit {
    /// Send it.
    Granted,
    /// Not before this has passed. `first` since the sender was last in time.
    Wait {
        /// Until the next one may be sent.
        wait: Duration,
        /// Nobody was told yet.
        first: bool,
    },
}

impl RateLimiter {
    /// At most so many within a minute.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, sent: VecDeque::new(), told: false }
    }

    /// Asks to send so many messages at once. More than the limit can never be sent together, but alone.
    pub(crate) fn ask(&mut self, count: usize, now: Instant) -> SendPermit {
        while self.sent.front().is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW) {
            self.sent.pop_front();
        }
        let Some(oldest) = self.sent.front().filter(|_| self.sent.len() + count > self.most) else {
            self.told = false;
            self.sent.extend(std::iter::repeat_n(now, count));
            return SendPermit::Granted;
        };
        let wait = WINDOW.saturating_sub(now.saturating_duration_since(*oldest));
        SendPermit::Wait { wait, first: !std::mem::replace(&mut self.told, true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_holds_so_many_and_no_more() {
        let mut rate_limiter = RateLimiter::new(3);
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(rate_limiter.ask(1, at(0)), SendPermit::Granted);
        assert_eq!(rate_limiter.ask(2, at(10)), SendPermit::Granted);
        let wait = Duration::from_secs(40);
        assert_eq!(rate_limiter.ask(1, at(20)), SendPermit::Wait { wait, first: true });
        assert_eq!(rate_limiter.ask(1, at(20)), SendPermit::Wait { wait, first: false });
        assert_eq!(rate_limiter.ask(1, at(60)), SendPermit::Granted);
        let wait = Duration::from_secs(10);
        assert_eq!(
            rate_limiter.ask(1, at(60)),
            SendPermit::Wait { wait, first: true },
            "told anew"
        );
        assert_eq!(rate_limiter.ask(9, at(200)), SendPermit::Granted, "a broadcast to many, alone");
    }
}
