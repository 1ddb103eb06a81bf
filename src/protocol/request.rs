//! Requests between agents: each is decided once, by the right agent, before its deadline.
//!
//! ```text
//!                    ┌─ approved
//!            answer  ├─ rejected
//!   pending ─────────┤
//!            deadline├─ expired
//!            withdraw└─ withdrawn
//! ```
//!
//! The requester and the decider each keep a ledger: the requester checks answers against it, the decider finds
//! the open requests in it. A ledger is not stored; it is rebuilt from the open requests in the transcripts. An
//! answer that does not fit changes nothing and is returned as [`IgnoredAnswer`], to be logged.

use crate::wire::permission::{DecisionOutcome, QuestionKind};
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Shutdown,
    Plan,
    Permission,
    /// To leave the workspace with a tool call.
    Sandbox,
}

impl From<QuestionKind> for RequestKind {
    fn from(about: QuestionKind) -> Self {
        match about {
            QuestionKind::Permission => Self::Permission,
            QuestionKind::Plan => Self::Plan,
            QuestionKind::Sandbox => Self::Sandbox,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    pub(crate) id: String,
    pub(crate) kind: RequestKind,
    pub(crate) owner: String,
    pub(crate) decider: String,
    pub(crate) incarnation: String,
    pub(crate) deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestAnswer<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) kind: RequestKind,
    pub(crate) from: &'a str,
    pub(crate) incarnation: Option<&'a str>,
    pub(crate) verdict: RequestVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    Approve,
    Reject,
}

impl RequestVerdict {
    pub(crate) fn of(approve: bool) -> Self {
        if approve { Self::Approve } else { Self::Reject }
    }

    /// Returns the word for the verdict in the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Approve => "yes",
            Self::Reject => "no",
        }
    }
}

/// The reason for which an answer or a request had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IgnoredAnswer {
    /// The answer names no known request.
    #[error("nobody asked for it")]
    Unknown,
    #[error("that request is of another kind")]
    OtherKind,
    /// The sender is not the decider of the request, or not its owner.
    #[error("it comes from the wrong agent")]
    Foreign,
    /// The answer names another incarnation, or none.
    #[error("it is not bound to this incarnation of the agent")]
    OtherIncarnation,
    /// Nothing proves that the sender is the one that the message names.
    #[error("it has no valid seal")]
    Unverified,
    #[error("the request is {0:?} already")]
    Closed(DecisionOutcome),
}

#[derive(Debug, Default)]
pub(crate) struct RequestLedger {
    /// Each request with its outcome; `None` while it is open.
    requests: BTreeMap<String, (PendingRequest, Option<DecisionOutcome>)>,
}

impl RequestLedger {
    /// Adds a request. A known one that is asked again is the same request, bound to the new incarnation. Fails
    /// if its owner or kind differs, or if it is closed for this incarnation.
    pub(crate) fn open(&mut self, request: PendingRequest) -> Result<(), IgnoredAnswer> {
        if let Some((known, outcome)) = self.requests.get(&request.id) {
            if known.owner != request.owner {
                return Err(IgnoredAnswer::Foreign);
            }
            if known.kind != request.kind {
                return Err(IgnoredAnswer::OtherKind);
            }
            if let Some(outcome) = outcome.filter(|_| known.incarnation == request.incarnation) {
                return Err(IgnoredAnswer::Closed(outcome));
            }
        }
        self.requests.insert(request.id.clone(), (request, None));
        Ok(())
    }

    /// Applies an answer. The first valid one decides.
    pub(crate) fn answer(
        &mut self,
        answer: &RequestAnswer<'_>,
        now: Instant,
    ) -> Result<DecisionOutcome, IgnoredAnswer> {
        let found = answer.id.and_then(|id| self.requests.get_mut(id));
        let (request, outcome) = found.ok_or(IgnoredAnswer::Unknown)?;
        if request.kind != answer.kind {
            return Err(IgnoredAnswer::OtherKind);
        }
        if request.decider != answer.from {
            return Err(IgnoredAnswer::Foreign);
        }
        if answer.incarnation != Some(request.incarnation.as_str()) {
            return Err(IgnoredAnswer::OtherIncarnation);
        }
        if let Some(outcome) = *outcome {
            return Err(IgnoredAnswer::Closed(outcome));
        }
        let is_late = request.deadline.is_some_and(|deadline| now >= deadline);
        let decided = match answer.verdict {
            _ if is_late => DecisionOutcome::Expired,
            RequestVerdict::Approve => DecisionOutcome::Approved,
            RequestVerdict::Reject => DecisionOutcome::Rejected,
        };
        *outcome = Some(decided);
        if is_late { Err(IgnoredAnswer::Closed(decided)) } else { Ok(decided) }
    }

    pub(crate) fn withdraw(&mut self, id: &str) -> bool {
        let open = self.requests.get_mut(id).filter(|(_, outcome)| outcome.is_none());
        open.map(|(_, outcome)| *outcome = Some(DecisionOutcome::Withdrawn)).is_some()
    }

    /// Sets the deadline of every open request.
    pub(crate) fn extend(&mut self, deadline: Instant) {
        for (request, outcome) in self.requests.values_mut() {
            if outcome.is_none() && request.deadline.is_some() {
                request.deadline = Some(deadline);
            }
        }
    }

    /// Closes requests whose deadline has passed. Returns their ids.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<String> {
        let mut late = Vec::new();
        for (request, outcome) in self.requests.values_mut() {
            if outcome.is_none() && request.deadline.is_some_and(|deadline| now >= deadline) {
                *outcome = Some(DecisionOutcome::Expired);
                late.push(request.id.clone());
            }
        }
        late
    }

    /// Returns the time at which the next open request expires.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending().filter_map(|request| request.deadline).min()
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingRequest> {
        let open = self.requests.values().filter(|(_, outcome)| outcome.is_none());
        open.map(|(request, _)| request)
    }

    pub(crate) fn pending_of(&self, id: &str) -> Option<&PendingRequest> {
        self.pending().find(|request| request.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn request(id: &str, incarnation: &str, deadline: Option<Instant>) -> PendingRequest {
        PendingRequest {
            id: id.into(),
            kind: RequestKind::Permission,
            owner: "alice".into(),
            decider: "lead".into(),
            incarnation: incarnation.into(),
            deadline,
        }
    }

    fn yes<'a>(id: &'a str, from: &'a str, incarnation: &'a str) -> RequestAnswer<'a> {
        let (kind, verdict) = (RequestKind::Permission, RequestVerdict::Approve);
        RequestAnswer { id: Some(id), kind, from, incarnation: Some(incarnation), verdict }
    }

    fn ledger(deadline: Option<Instant>) -> RequestLedger {
        let mut ledger = RequestLedger::default();
        ledger.open(request("r", "i1", deadline)).unwrap();
        ledger
    }

    #[test]
    fn only_an_answer_of_the_decider_to_this_incarnation_counts() {
        let (mut ledger, now) = (ledger(None), Instant::now());
        let good = yes("r", "lead", "i1");
        for (bad, why) in [
            (yes("s", "lead", "i1"), IgnoredAnswer::Unknown),
            (RequestAnswer { id: None, ..good }, IgnoredAnswer::Unknown),
            (yes("r", "bob", "i1"), IgnoredAnswer::Foreign),
            (yes("r", "alice", "i1"), IgnoredAnswer::Foreign),
            (yes("r", "lead", "i0"), IgnoredAnswer::OtherIncarnation),
            (RequestAnswer { incarnation: None, ..good }, IgnoredAnswer::OtherIncarnation),
            (RequestAnswer { kind: RequestKind::Plan, ..good }, IgnoredAnswer::OtherKind),
        ] {
            assert_eq!(ledger.answer(&bad, now), Err(why), "{bad:?}");
            assert!(ledger.pending_of("r").is_some());
        }
        assert_eq!(ledger.answer(&good, now), Ok(DecisionOutcome::Approved));
        let no = RequestAnswer { verdict: RequestVerdict::Reject, ..good };
        assert_eq!(ledger.answer(&no, now), Err(IgnoredAnswer::Closed(DecisionOutcome::Approved)));
        assert_eq!(ledger.pending().count(), 0);
    }

    #[test]
    fn a_late_answer_has_no_effect() {
        let now = Instant::now();
        let at = now + Duration::from_secs(5);
        let mut ledger = ledger(Some(at));
        assert_eq!(ledger.due(), Some(at));
        assert_eq!(ledger.tick(now), Vec::<String>::new());
        let late = ledger.answer(&yes("r", "lead", "i1"), at);
        assert_eq!(late, Err(IgnoredAnswer::Closed(DecisionOutcome::Expired)));
        ledger.open(request("s", "i1", Some(at))).unwrap();
        assert_eq!(ledger.tick(at), ["s"]);
        assert_eq!(ledger.due(), None);
        assert!(!ledger.withdraw("s"));
    }

    #[test]
    fn an_open_request_gets_a_later_deadline_and_a_closed_one_stays_closed() {
        let now = Instant::now();
        let [at, later] = [5, 10].map(|secs| now + Duration::from_secs(secs));
        let mut ledger = ledger(Some(at));
        ledger.open(request("s", "i1", None)).unwrap();
        ledger.extend(later);
        assert_eq!((ledger.due(), ledger.tick(at)), (Some(later), Vec::new()));
        assert_eq!(ledger.tick(later), ["r"]);
        ledger.extend(later + Duration::from_secs(5));
        assert_eq!((ledger.due(), ledger.pending().count()), (None, 1));
    }

    #[test]
    fn a_request_repeated_by_a_new_incarnation_is_bound_to_it() {
        let (mut ledger, now) = (ledger(None), Instant::now());
        ledger.open(request("r", "i2", None)).unwrap();
        let stale = ledger.answer(&yes("r", "lead", "i1"), now);
        assert_eq!(stale, Err(IgnoredAnswer::OtherIncarnation));
        let mallory = PendingRequest { owner: "mallory".into(), ..request("r", "i2", None) };
        assert_eq!(ledger.open(mallory), Err(IgnoredAnswer::Foreign));
        assert_eq!(ledger.answer(&yes("r", "lead", "i2"), now), Ok(DecisionOutcome::Approved));
        let again = ledger.open(request("r", "i2", None));
        assert_eq!(again, Err(IgnoredAnswer::Closed(DecisionOutcome::Approved)));
    }

    proptest! {
        /// In any order of valid and invalid answers, deadlines, and restarts that rebuild the ledger, each
        /// request is decided once, by an answer that was meant for it.
        #[test]
        fn each_request_is_decided_once(
            steps in proptest::collection::vec((0usize..9, 0usize..4, 0u64..40), 1..80),
        ) {
            let begin = Instant::now();
            let kinds = [RequestKind::Shutdown, RequestKind::Plan, RequestKind::Permission, RequestKind::Sandbox];
            let ids = ["end", "plan", "tool", "leave"];
            let deadline = begin + Duration::from_secs(30);
            // Opens the undecided requests: at first, and after a crash for the next incarnation.
            let opened = |incarnation: &str, decided: &BTreeMap<String, DecisionOutcome>| {
                let mut ledger = RequestLedger::default();
                for (id, kind) in ids.into_iter().zip(kinds).filter(|(id, _)| !decided.contains_key(*id)) {
                    ledger.open(PendingRequest { kind, ..request(id, incarnation, Some(deadline)) }).unwrap();
                }
                ledger
            };
            let (mut now, mut incarnation) = (begin, "i".to_owned());
            let mut decided = BTreeMap::new();
            let mut ledger = opened(&incarnation, &decided);
            for (step, which, seconds) in steps {
                let (id, kind) = (ids[which], kinds[which]);
                let current = incarnation.clone();
                let good = RequestAnswer { kind, ..yes(id, "lead", &current) };
                match step {
                    0 => now = now.max(begin + Duration::from_secs(seconds)),
                    1 => for late in ledger.tick(now) {
                        prop_assert!(now >= deadline);
                        prop_assert_eq!(decided.insert(late, DecisionOutcome::Expired), None);
                    },
                    2 => {
                        incarnation += "i";
                        ledger = opened(&incarnation, &decided);
                    }
                    3 => if ledger.withdraw(id) {
                        prop_assert_eq!(decided.insert(id.into(), DecisionOutcome::Withdrawn), None);
                    },
                    4 | 5 => {
                        let verdict = RequestVerdict::of(step == 4);
                        match ledger.answer(&RequestAnswer { verdict, ..good }, now) {
                            Ok(outcome) => {
                                prop_assert!(now < deadline);
                                prop_assert_eq!(decided.insert(id.into(), outcome), None);
                            }
                            Err(IgnoredAnswer::Closed(DecisionOutcome::Expired)) => {
                                decided.insert(id.into(), DecisionOutcome::Expired);
                            }
                            Err(_) => prop_assert!(decided.contains_key(id)),
                        }
                    }
                    _ => {
                        let other_kind = kinds[(which + 1) % kinds.len()];
                        let bad = [
                            RequestAnswer { from: "bob", ..good },
                            RequestAnswer { incarnation: Some("other"), ..good },
                            RequestAnswer { kind: other_kind, ..good },
                        ];
                        prop_assert!(ledger.answer(&bad[step - 6], now).is_err());
                    }
                }
            }
        }
    }
}
