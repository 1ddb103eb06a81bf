//! The statuses of members on other hosts, which come here later than their mail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after which a status that has not come is not awaited any more.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Tells from statuses that may be late whether the members still wait for the answers to their questions.
#[derive(Debug, Default)]
pub(super) struct LateStatuses {
    /// The time of the first look at each question, and whether its member was seen waiting since.
    questions: BTreeMap<String, (Instant, bool)>,
}

/// The last status of the member that has asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastStatus {
    pub(super) is_waiting: bool,
    /// Whether its host is away, so that no newer status comes.
    pub(super) is_away: bool,
}

impl LateStatuses {
    /// Whether the member of a question still waits, as far as is known.
    pub(super) fn still_waits(&mut self, id: &str, status: LastStatus, now: Instant) -> bool {
        let (since, was_seen) = self.questions.entry(id.to_owned()).or_insert((now, false));
        *was_seen |= status.is_waiting;
        let is_awaited = !*was_seen && now.duration_since(*since) < COMES_WITHIN;
        status.is_waiting || status.is_away || is_awaited
    }

    /// Forgets all questions but these.
    pub(super) fn keep(&mut self, is_open: impl Fn(&str) -> bool) {
        self.questions.retain(|id, _| is_open(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_stands_until_a_status_that_came_after_it_says_otherwise() {
        let (mut statuses, start) = (LateStatuses::default(), Instant::now());
        let mut waits = |id: &str, is_waiting, is_away, after| {
            let now = start + Duration::from_secs(after);
            statuses.still_waits(id, LastStatus { is_waiting, is_away }, now)
        };
        // Its status from before the question is still here.
        assert!(waits("a", false, false, 0));
        assert!(waits("a", true, false, 1));
        assert!(!waits("a", false, false, 2), "it goes on");
        // The status never comes.
        assert!(waits("b", false, false, 0));
        assert!(waits("b", false, false, 9));
        assert!(!waits("b", false, false, 10));
        // Nothing is known of a host that is away.
        assert!(waits("c", true, false, 0));
        assert!(waits("c", false, true, 100));
        statuses.keep(|id| id == "c");
        assert_eq!(statuses.questions.len(), 1);
    }
}
