//! Notices that the lead, on another host, has not been heard for too long: then its teammates here are ended, so that they do not
//! go on spending without it.

use crate::store::relay;
use crate::store::{TeamDir, roster};
use std::time::{Duration, Instant};

/// The time since which the lead is not heard, by this host's clock. The time for which this process was stopped counts.
pub(super) struct LeadWatch {
    limit: Duration,
    heard: Instant,
}

impl LeadWatch {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, heard: Instant::now() }
    }

    /// Notes whether the lead is heard now. Returns whether it was not heard for too long.
    pub(super) fn is_gone(&mut self, is_heard: bool) -> bool {
        if is_heard {
            self.heard = Instant::now();
        }
        self.heard.elapsed() > self.limit
    }
}

/// Whether the lead is alive as far as this host knows: its relay runs and hears the host of the lead, which says so. What cannot
/// be read counts as unheard.
pub(super) fn is_heard(team: &TeamDir) -> bool {
    let is_served = relay::is_served(team).unwrap_or(false);
    let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
    is_served
        && lead.is_some_and(|lead| {
            lead.host.is_some() && lead.alive == Some(true) && lead.away_since.is_none()
        })
}
