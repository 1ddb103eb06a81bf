//! Notices that the lead, on another host, has not been heard for too long: then its teammates here are ended, so that they do not
//! go on spending without it.

use crate::store::relay;
use crate::store::{TeamDir, roster};
use crate::wire::limits::{HOST_BEAT_PERIOD, MOST_MISSED_HOST_BEATS};
use std::time::{Duration, Instant};

/// The time after which a host that says nothing counts as away: so long the lead was not heard before that is known.
const NOTICED_AFTER: Duration = HOST_BEAT_PERIOD.saturating_mul(MOST_MISSED_HOST_BEATS);

/// The time for which the host of the lead has to say that the lead has ended.
const ENDED_FOR: Duration = Duration::from_secs(5);

/// The lead as this host knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeadSign {
    /// Its host is heard, and says that this incarnation lives.
    Heard(String),
    /// Its host said last that this incarnation has ended.
    Ended(String),
    /// Its host is away.
    Away,
    /// It is not known: no relay runs here, or there is no lead.
    Unknown,
}

/// The time since which the lead is not heard, by this host's clock. The time for which this process was stopped counts.
pub(super) struct LeadWatch {
    limit: Duration,
    heard: Instant,
    /// The incarnation that was heard.
    incarnation: Option<String>,
    /// The time since which it counts as ended.
    ended: Option<Instant>,
}

impl LeadWatch {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, heard: Instant::now(), incarnation: None, ended: None }
    }

    /// Notes what is known of the lead now. Returns whether it has ended, or was not heard for too long. The end of a lead that
    /// was never heard does not count: a server may tell of an earlier one.
    pub(super) fn is_gone(&mut self, sign: LeadSign) -> bool {
        let before = if sign == LeadSign::Away { NOTICED_AFTER } else { Duration::ZERO };
        match sign {
            LeadSign::Heard(incarnation) => {
                self.heard = Instant::now();
                (self.incarnation, self.ended) = (Some(incarnation), None);
            }
            LeadSign::Ended(incarnation) if self.incarnation.as_ref() == Some(&incarnation) => {
                self.ended.get_or_insert_with(Instant::now);
            }
            LeadSign::Ended(_) | LeadSign::Away | LeadSign::Unknown => self.ended = None,
        }
        self.ended.is_some_and(|since| since.elapsed() > ENDED_FOR)
            || self.heard.elapsed() + before > self.limit
    }
}

/// Returns what this host knows of the lead. What cannot be read is unknown.
pub(super) fn sign_of_lead(team: &TeamDir) -> LeadSign {
    let is_served = relay::is_served(team).unwrap_or(false);
    let lead = roster::read(team).ok().and_then(|roster| roster.lead.clone());
    match lead.filter(|lead| lead.host.is_some()) {
        // It stays so without a relay, which may have ended with the lead.
        Some(lead) if lead.alive == Some(false) => LeadSign::Ended(lead.incarnation.clone()),
        Some(lead) if is_served && lead.away_since.is_some() => LeadSign::Away,
        Some(lead) if is_served && lead.alive == Some(true) => {
            LeadSign::Heard(lead.incarnation.clone())
        }
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
        let heard = || LeadSign::Heard("one".into());
        assert!(!watch.is_gone(heard()));
        age(&mut watch, 53);
        assert!(!watch.is_gone(LeadSign::Away) && !watch.is_gone(LeadSign::Unknown));
        age(&mut watch, 2);
        assert!(watch.is_gone(LeadSign::Away));
        assert!(!watch.is_gone(LeadSign::Unknown), "a relay that is started again is no lost lead");
        assert!(!watch.is_gone(heard()));
        assert!(!watch.is_gone(LeadSign::Away));
    }

    #[test]
    fn a_lead_that_was_heard_is_gone_some_seconds_after_its_end_and_no_other_one_is() {
        let mut watch = LeadWatch::new(Duration::from_secs(60));
        let [heard, ended] = [LeadSign::Heard, LeadSign::Ended];
        let mut is_gone_later = |sign: LeadSign| {
            let at_once = watch.is_gone(sign.clone());
            watch.ended = watch.ended.map(|at| at.checked_sub(ENDED_FOR).unwrap());
            (at_once, watch.is_gone(sign))
        };
        assert_eq!(is_gone_later(ended("old".into())), (false, false), "it was never heard");
        assert_eq!(is_gone_later(heard("new".into())), (false, false));
        assert_eq!(is_gone_later(ended("old".into())), (false, false), "a server told it again");
        assert_eq!(is_gone_later(ended("new".into())), (false, true));
        assert_eq!(is_gone_later(heard("next".into())), (false, false), "it was resumed");
    }
}
