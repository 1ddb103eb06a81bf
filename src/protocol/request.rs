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
//! Both sides keep a ledger: the requester to know which answer counts, the decider to know the open
//! requests. It is not stored; it is rebuilt from the open requests in the transcripts. An answer that does
//! not fit changes nothing and is returned as [`IgnoredAnswer`], to be logged.

use std::collections::BTreeMap;
use std::time::Instant;

/// The permission that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// To shut the decider down.
    Shutdown,
    /// To carry out a plan.
    Plan,
    /// To run a tool call.
    Permission,
    /// To leave the workspace with a tool call.
    Sandbox,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    /// Id, unique in the team.
    pub(crate) id: String,
    /// Kind.
    pub(crate) kind: RequestKind,
    /// The agent that asks.
    pub(crate) owner: String,
    /// The agent that decides.
    pub(crate) decider: String,
    /// Incarnation that an answer must name.
    pub(crate) incarnation: String,
    /// Time at which it expires.
    pub(crate) deadline: Option<Instant>,
}

/// An answer as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestAnswer<'a> {
    /// The request it names.
    pub(crate) id: Option<&'a str>,
    /// Kind of request that it answers.
    pub(crate) kind: RequestKind,
    /// Its sender.
    pub(crate) from: &'a str,
    /// The incarnation that it names.
    pub(crate) incarnation: Option<&'a str>,
    /// The decision.
    pub(crate) verdict: RequestVerdict,
}

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    /// Yes.
    Approve,
    /// No.
    Reject,
}

impl RequestVerdict {
    /// Converts the `approve` field of a message.
    pub(crate) fn of(approve: bool) -> Self {
        if approve { Self::Approve } else { Self::Reject }
    }
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// It waits for a decision.
    Pending,
    /// It was approved.
    Approved,
    /// It was rejected.
    Rejected,
    /// Its deadline has passed.
    Expired,
    /// Its owner has withdrawn it.
    Withdrawn,
}

/// Why an answer or a request had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IgnoredAnswer {
    /// It names no known request.
    #[error("nobody asked for it")]
    Unknown,
    /// The request is of another kind.
    #[error("that request is of another kind")]
    OtherKind,
    /// Its sender is not the agent that decides, or that owns the request.
    #[error("it comes from the wrong agent")]
    Foreign,
    /// It names another incarnation, or none.
    #[error("it is not bound to this life of the agent")]
    OtherLife,
    /// The request is no longer open.
    #[error("the request is {0:?} already")]
    Closed(RequestState),
}

/// The requests that one agent knows.
#[derive(Debug, Default)]
pub(crate) struct RequestLedger {
    requests: BTreeMap<String, (PendingRequest, RequestState)>,
}

impl RequestLedger {
    /// Adds a request. An open one that is asked again is the same request, bound to the new incarnation.
    pub(crate) fn open(&mut self, request: PendingRequest) -> Result<(), IgnoredAnswer> {
        if let Some((known, state)) = self.requests.get(&request.id) {
            if known.owner != request.owner {
                return Err(IgnoredAnswer::Foreign);
            }
            if known.kind != request.kind {
                return Err(IgnoredAnswer::OtherKind);
            }
            let same_life = known.incarnation == request.incarnation;
            if *state != RequestState::Pending && same_life {
                return Err(IgnoredAnswer::Closed(*state));
            }
        }
        self.requests.insert(request.id.clone(), (request, RequestState::Pending));
        Ok(())
    }

    /// Applies an answer. The first valid one decides.
    pub(crate) fn answer(
        &mut self,
        answer: &RequestAnswer<'_>,
        now: Instant,
    ) -> Result<RequestState, IgnoredAnswer> {
        let found = answer.id.and_then(|id| self.requests.get_mut(id));
        let (request, state) = found.ok_or(IgnoredAnswer::Unknown)?;
        if request.kind != answer.kind {
            return Err(IgnoredAnswer::OtherKind);
        }
        if request.decider != answer.from {
            return Err(IgnoredAnswer::Foreign);
        }
        if answer.incarnation != Some(request.incarnation.as_str()) {
            return Err(IgnoredAnswer::OtherLife);
        }
        if *state != RequestState::Pending {
            return Err(IgnoredAnswer::Closed(*state));
        }
        if request.deadline.is_some_and(|deadline| now >= deadline) {
            *state = RequestState::Expired;
            return Err(IgnoredAnswer::Closed(RequestState::Expired));
        }
        *state = match answer.verdict {
            RequestVerdict::Approve => RequestState::Approved,
            RequestVerdict::Reject => RequestState::Rejected,
        };
        Ok(*state)
    }

    /// Withdraws a request. Returns whether it was open.
    pub(crate) fn withdraw(&mut self, id: &str) -> bool {
        self.close(id, RequestState::Withdrawn)
    }

    /// Closes requests whose deadline has passed. Returns their ids.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<String> {
        let late =
            |request: &PendingRequest| request.deadline.is_some_and(|deadline| now >= deadline);
        let late: Vec<String> = self
            .pending()
            .filter(|request| late(request))
            .map(|request| request.id.clone())
            .collect();
        for id in &late {
            self.close(id, RequestState::Expired);
        }
        late
    }

    /// Returns when the next open request expires.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending().filter_map(|request| request.deadline).min()
    }

    /// Lists the open requests.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingRequest> {
        let open = self.requests.values().filter(|(_, state)| *state == RequestState::Pending);
        open.map(|(request, _)| request)
    }

    /// Returns the open request of that id.
    pub(crate) fn pending_of(&self, id: &str) -> Option<&PendingRequest> {
        self.pending().find(|request| request.id == id)
    }

    fn close(&mut self, id: &str, end: RequestState) -> bool {
        let Some((_, state)) = self.requests.get_mut(id) else { return false };
        let was_open = *state == RequestState::Pending;
        if was_open {
            *state = end;
        }
        was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn request(id: &str, life: &str, deadline: Option<Instant>) -> PendingRequest {
        PendingRequest {
            id: id.into(),
            kind: RequestKind::Permission,
            owner: "alice".into(),
            decider: "lead".into(),
            incarnation: life.into(),
            deadline,
        }
    }

    fn yes<'a>(id: &'a str, from: &'a str, life: &'a str) -> RequestAnswer<'a> {
        let (kind, verdict) = (RequestKind::Permission, RequestVerdict::Approve);
        RequestAnswer { id: Some(id), kind, from, incarnation: Some(life), verdict }
    }

    #[test]
    fn only_an_answer_of_the_decider_to_this_incarnation_counts() {
        let now = Instant::now();
        let mut ledger = RequestLedger::default();
        ledger.open(request("r", "i1", None)).unwrap();
        let good = yes("r", "lead", "i1");
        for (bad, why) in [
            (yes("s", "lead", "i1"), IgnoredAnswer::Unknown),
            (RequestAnswer { id: None, ..good }, IgnoredAnswer::Unknown),
            (yes("r", "bob", "i1"), IgnoredAnswer::Foreign),
            (yes("r", "alice", "i1"), IgnoredAnswer::Foreign),
            (yes("r", "lead", "i0"), IgnoredAnswer::OtherLife),
            (RequestAnswer { incarnation: None, ..good }, IgnoredAnswer::OtherLife),
            (RequestAnswer { kind: RequestKind::Plan, ..good }, IgnoredAnswer::OtherKind),
        ] {
            assert_eq!(ledger.answer(&bad, now), Err(why), "{bad:?}");
            assert!(ledger.pending_of("r").is_some());
        }
        assert_eq!(ledger.answer(&good, now), Ok(RequestState::Approved));
        let no = RequestAnswer { verdict: RequestVerdict::Reject, ..good };
        assert_eq!(ledger.answer(&no, now), Err(IgnoredAnswer::Closed(RequestState::Approved)));
        assert_eq!(ledger.pending().count(), 0);
    }

    #[test]
    fn a_late_answer_has_no_effect() {
        let now = Instant::now();
        let at = now + Duration::from_secs(5);
        let mut ledger = RequestLedger::default();
        ledger.open(request("r", "i1", Some(at))).unwrap();
        assert_eq!(ledger.due(), Some(at));
        assert_eq!(ledger.tick(now), Vec::<String>::new());
        let late = ledger.answer(&yes("r", "lead", "i1"), at);
        assert_eq!(late, Err(IgnoredAnswer::Closed(RequestState::Expired)));
        ledger.open(request("s", "i1", Some(at))).unwrap();
        assert_eq!(ledger.tick(at), ["s"]);
        assert_eq!(ledger.due(), None);
        assert!(!ledger.withdraw("s"));
    }

    #[test]
    fn a_request_repeated_by_a_new_incarnation_is_bound_to_it() {
        let now = Instant::now();
        let mut ledger = RequestLedger::default();
        ledger.open(request("r", "i1", None)).unwrap();
        ledger.open(request("r", "i2", None)).unwrap();
        let stale = ledger.answer(&yes("r", "lead", "i1"), now);
        assert_eq!(stale, Err(IgnoredAnswer::OtherLife));
        let mallory = PendingRequest { owner: "mallory".into(), ..request("r", "i2", None) };
        assert_eq!(ledger.open(mallory), Err(IgnoredAnswer::Foreign));
        assert_eq!(ledger.answer(&yes("r", "lead", "i2"), now), Ok(RequestState::Approved));
        let again = ledger.open(request("r", "i2", None));
        assert_eq!(again, Err(IgnoredAnswer::Closed(RequestState::Approved)));
    }

    proptest! {
        /// Any order of answers, good and bad, deadlines, and restarts that rebuild the ledger: each
        /// request is decided once, by an answer that was meant for it.
        #[test]
        fn each_request_is_decided_once(
            steps in proptest::collection::vec((0usize..9, 0usize..4, 0u64..40), 1..80),
        ) {
            let begin = Instant::now();
            let ids = ["end", "plan", "tool", "leave"];
            let kinds = [RequestKind::Shutdown, RequestKind::Plan, RequestKind::Permission, RequestKind::Sandbox];
            let kind_of = |id: &str| kinds[ids.iter().position(|known| *known == id).unwrap()];
            let deadline = begin + Duration::from_secs(30);
            let (mut ledger, mut life) = (RequestLedger::default(), 0);
            let name = |life: usize| format!("i{life}");
            for id in ids {
                let kind = kind_of(id);
                ledger.open(PendingRequest { kind, ..request(id, &name(life), Some(deadline)) }).unwrap();
            }
            let mut decided: BTreeMap<&str, RequestState> = BTreeMap::new();
            let mut now = begin;
            for (step, which, seconds) in steps {
                let id = ids[which];
                let current = name(life);
                let kind = kind_of(id);
                let mut good = RequestAnswer { kind, ..yes(id, "lead", &current) };
                match step {
                    0 => now = now.max(begin + Duration::from_secs(seconds)),
                    1 => for late in ledger.tick(now) {
                        let id = ids.into_iter().find(|id| *id == late).unwrap();
                        prop_assert!(now >= deadline);
                        prop_assert_eq!(decided.insert(id, RequestState::Expired), None);
                    },
                    2 => {
                        // A crash: the next incarnation repeats the open requests.
                        life += 1;
                        ledger = RequestLedger::default();
                        for id in ids.into_iter().filter(|id| !decided.contains_key(id)) {
                            let (kind, life) = (kind_of(id), name(life));
                            let again = request(id, &life, Some(deadline));
                            ledger.open(PendingRequest { kind, ..again }).unwrap();
                        }
                    }
                    3 => {
                        let foreign = RequestAnswer { from: "bob", ..good };
                        prop_assert!(ledger.answer(&foreign, now).is_err());
                    }
                    4 => {
                        let stale = RequestAnswer { incarnation: Some("i-other"), ..good };
                        prop_assert!(ledger.answer(&stale, now).is_err());
                    }
                    8 => {
                        let other = kinds[(which + 1) % kinds.len()];
                        let answer = RequestAnswer { kind: other, ..good };
                        prop_assert!(ledger.answer(&answer, now).is_err());
                    }
                    5 => if ledger.withdraw(id) {
                        prop_assert_eq!(decided.insert(id, RequestState::Withdrawn), None);
                    },
                    _ => {
                        if step == 7 {
                            good.verdict = RequestVerdict::Reject;
                        }
                        match ledger.answer(&good, now) {
                            Ok(state) => {
                                prop_assert!(now < deadline);
                                prop_assert_eq!(decided.insert(id, state), None);
                            }
                            Err(IgnoredAnswer::Closed(RequestState::Expired)) => {
                                decided.insert(id, RequestState::Expired);
                            }
                            Err(_) => prop_assert!(decided.contains_key(id)),
                        }
                    }
                }
            }
        }
    }
}
