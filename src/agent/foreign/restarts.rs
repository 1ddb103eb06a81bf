//! The starts of an agent that has ended by itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The pauses before the agent is started again. Once they are used up within [`WITHIN`], the member fails.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
const WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Counts a restart, and returns the pause before it. The error says how often the agent has ended in which time.
    pub(super) fn next(&mut self) -> Result<Duration, String> {
        let now = Instant::now();
        self.0.retain(|at| now.duration_since(*at) < WITHIN);
        let Some(pause) = PAUSES.get(self.0.len()) else {
            let (times, minutes) = (PAUSES.len() + 1, WITHIN.as_secs() / 60);
            return Err(format!("{times} times within {minutes} minutes"));
        };
        self.0.push_back(now);
        Ok(*pause)
    }
}
