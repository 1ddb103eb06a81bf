//! Requests between agents: who may answer which, once, until when.
//!
//! ```text
//!                    ┌─ approved
//!            answer  ├─ rejected
//!   pending ─────────┤
//!            deadline├─ expired
//!            withdraw└─ withdrawn
//! ```
//!
//! The same ledger serves both sides: whoever asks keeps it to know which answer counts, whoever decides
//! to know what there is to answer. It is not stored: it is rebuilt from what the transcripts say is
//! open. What does not fit changes nothing and comes back as [`IgnoredAnswer`], to be logged.

use std::collections::BTreeMap;
use std::time::Instant;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// To end.
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
    /// Its id, unique in the team.
    pub(crate) id: String,
    /// What for.
    pub(crate) kind: RequestKind,
    /// Who asks.
    pub(crate) owner: String,
    /// Who decides.
    pub(crate) decider: String,
    /// The life that an answer must name.
    pub(crate) incarnation: String,
    /// When it expires.
    pub(crate) deadline: Option<Instant>,
}

/// An answer as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestAnswer<'a> {
    /// The request it names.
    pub(crate) id: Option<&'a str>,
    /// What it is an answer to.
    pub(crate) kind: RequestKind,
    /// Who sent it.
    pub(crate) from: &'a str,
    /// The life it names.
    pub(crate) incarnation: Option<&'a str>,
    /// What it says.
    pub(crate) verdict: RequestVerdict,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    /// Yes.
    Approve,
    /// No.
    Reject,
}

impl RequestVerdict {
    /// As the `approve` field says it.
    pub(crate) fn of(approve: bool) -> Self {
        if approve { Self::Approve } else { Self::Reject }
    }
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// Nobody has decided.
    Pending,
    /// Yes.
    Approved,
    /// No.
    Rejected,
    /// Nobody decided in time.
    Expired,
    /// Its owner no longer waits.
    Withdrawn,
}

/// Why a line was not acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IgnoredAnswer {
    /// It names no request, or one that nobody made.
    #[error("nobody asked for it")]
    Unknown,
    /// The request is of another kind.
    #[error("that request is of another kind")]
    OtherKind,
    /// It comes from somebody who may not say so.
    #[error("it comes from the wrong agent")]
    Foreign,
    /// It names another life of the agent, or none.
    #[error("it is not bound to this life of the agent")]
    OtherLife,
    /// It is decided already.
    #[error("the request is {0:?} already")]
    Closed(RequestState),
}

/// All requests that one agent knows of.
#[derive(Debug, Default)]
pub(crate) struct RequestLedger {
    requests: BTreeMap<String, (PendingRequest, RequestState)>,
}

impl RequestLedger {
    /// Takes a request in. One that is asked again while it is open is the same request, bound anew.
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

    /// Takes an answer in; the first valid one decides.
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

    /// The owner no longer waits. Whether it was open.
    pub(crate) fn withdraw(&mut self, id: &str) -> bool {
        self.close(id, RequestState::Withdrawn)
    }

    /// Time has passed; what expired just now.
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

    /// When the next open request expires.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending().filter_map(|request| request.deadline).min()
    }

    /// What is open.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingRequest> {
        let open = self.requests.values().filter(|(_, state)| *state == RequestState::Pending);
        open.map(|(request, _)| request)
    }

    /// The open request of that id.
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
    fn only_the_answer_that_was_asked_for_counts() {
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
    fn a_deadline_ends_it_and_a_late_answer_changes_nothing() {
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
    fn asking_again_in_a_new_life_binds_anew() {
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
        /// Any order of answers, good and bad, deadlines, and restarts that rebuild the ledger from what
        /// was decided: each request is decided once, by an answer that was meant for it.
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
                        // A crash: what is open is asked again in the next life.
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
