//! The pause that all members of a team share when an endpoint asks for one, as a provider sees it.

use crate::llm::retry::Backoff;
use crate::os::{Clock, SystemClock};
use crate::store::TeamDir;
use crate::store::shared_backoff::SharedBackoff;
use std::time::Duration;

/// A pause that is shared through a file of the team folder.
#[derive(Debug)]
pub(super) struct TeamBackoff(SharedBackoff);

impl TeamBackoff {
    /// The pause for the endpoint of this base URL; all endpoints of one host and port share it.
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
            tracing::warn!(%why, "the pause cannot be shared with the team");
        }
    }
}
