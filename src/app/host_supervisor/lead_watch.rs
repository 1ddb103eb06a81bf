//! Notices that the lead, on another host, has not been heard for too long: then its teammates here are ended, so that they do not
//! go on spending without it.

use crate::store::relay;
use crate::store::{TeamDir, roster};
use std::time::{Duration, Instant};

/// The time after which a host that says nothing counts as away: so long the lead was not heard before that is known.
const NOTICED_AFTER: Duration = Duration::from_secs(8);

/// The lead as this host knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeadSign {
    /// Its host is heard, and says that it lives.
    Heard,
    /// Its host is away.
    Away,
    /// It is not known: no relay runs here, or it has ended.
    Unknown,
}

/// The time since which the lead is not heard, by this host's clock. The time for which this process was stopped counts.
pub(super) struct LeadWatch {
    limit: Duration,
    heard: Instant,
}

impl LeadWatch {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, heard: Instant::now() }
    }

    /// Notes what is known of the lead now. Returns whether it was not heard for too long.
    pub(super) fn is_gone(&mut self, sign: LeadSign) -> bool {
        let before = match sign {
            LeadSign::Heard => {
                self.heard = Instant::now();
                Duration::ZERO
            }
            LeadSign::Away => NOTICED_AFTER,
            LeadSign::Unknown => Duration::ZERO,
        };
        self.heard.elapsed() + before > self.limit
    }
}

/// Returns what this host knows of the lead. What cannot be read is unknown.
pub(super) fn sign_of_lead(team: &TeamDir) -> LeadSign {
    let is_served = relay::is_served(team).unwrap_or(false);
    let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
    match lead.filter(|lead| is_served && lead.host.is_some()) {
        Some(lead) if lead.away_since.is_some() => LeadSign::Away,
        Some(lead) if lead.alive == Some(true) => LeadSign::Heard,
        Some(_) | None => LeadSign::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_before_a_host_counts_as_away_is_part_of_the_limit() {
        let mut watch = LeadWatch::new(Duration::from_secs(60));
        let age = |watch: &mut LeadWatch, seconds| {
            watch.heard = watch.heard.checked_sub(Duration::from_secs(seconds)).unwrap();
        };
        assert!(!watch.is_gone(LeadSign::Heard));
        age(&mut watch, 51);
        assert!(!watch.is_gone(LeadSign::Away) && !watch.is_gone(LeadSign::Unknown));
        age(&mut watch, 2);
        assert!(watch.is_gone(LeadSign::Away));
        assert!(!watch.is_gone(LeadSign::Unknown), "a relay that is started again is no lost lead");
        assert!(!watch.is_gone(LeadSign::Heard));
        assert!(!watch.is_gone(LeadSign::Away));
    }
}
