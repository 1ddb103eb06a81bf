//! The wait that all members of a team share, as a provider sees it.

use crate::llm::retry::Backoff;
use crate::os::{Clock, SystemClock};
use crate::store::TeamDir;
use crate::store::shared_backoff::SharedBackoff;
use std::time::Duration;

/// Shared through a file of the team folder.
#[derive(Debug)]
pub(super) struct TeamBackoff(SharedBackoff);

impl TeamBackoff {
    /// For the endpoint with this base URL: everything behind one host and port waits together.
    pub(super) fn of(team: &TeamDir, base_url: &str) -> Self {
        let host = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
        Self(SharedBackoff::of(team, host.split('/').next().unwrap_or(host)))
    }
}

impl Backoff for TeamBackoff {
    fn pending(&self) -> Duration {
        self.0.pending(SystemClock.now())
    }

    fn hold(&self, wait: Duration) {
        if let Err(why) = self.0.hold(SystemClock.now(), wait) {
            tracing::warn!(%why, "the others cannot be told to wait");
        }
    }
}
