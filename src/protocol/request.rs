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
//! open. What does not fit changes nothing and comes back as [`Ignored`], to be logged.

use std::collections::BTreeMap;
use std::time::Instant;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) struct Request {
    /// Its id, unique in the team.
    pub(crate) id: String,
    /// What for.
    pub(crate) kind: Kind,
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
pub(crate) struct Answer<'a> {
    /// The request it names.
    pub(crate) id: Option<&'a str>,
    /// What it is an answer to.
    pub(crate) kind: Kind,
    /// Who sent it.
    pub(crate) from: &'a str,
    /// The life it names.
    pub(crate) incarnation: Option<&'a str>,
    /// What it says.
    pub(crate) verdict: Verdict,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes.
    Approve,
    /// No.
    Reject,
}

impl Verdict {
    /// As the `approve` field says it.
    pub(crate) fn of(approve: bool) -> Self {
        if approve { Self::Approve } else { Self::Reject }
    }
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
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
pub(crate) enum Ignored {
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
    Closed(State),
}

/// All requests that one agent knows of.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    requests: BTreeMap<String, (Request, State)>,
}

impl Ledger {
    /// Takes a request in. One that is asked again while it is open is the same request, bound anew.
    pub(crate) fn open(&mut self, request: Request) -> Result<(), Ignored> {
        if let Some((known, state)) = self.requests.get(&request.id) {
            if known.owner != request.owner {
                return Err(Ignored::Foreign);
            }
            if known.kind != request.kind {
                return Err(Ignored::OtherKind);
            }
            let same_life = known.incarnation == request.incarnation;
            if *state != State::Pending && same_life {
                return Err(Ignored::Closed(*state));
            }
        }
        self.requests.insert(request.id.clone(), (request, State::Pending));
        Ok(())
    }

    /// Takes an answer in; the first valid one decides.
    pub(crate) fn answer(&mut self, answer: &Answer<'_>, now: Instant) -> Result<State, Ignored> {
        let found = answer.id.and_then(|id| self.requests.get_mut(id));
        let (request, state) = found.ok_or(Ignored::Unknown)?;
        if request.kind != answer.kind {
            return Err(Ignored::OtherKind);
        }
        if request.decider != answer.from {
            return Err(Ignored::Foreign);
        }
        if answer.incarnation != Some(request.incarnation.as_str()) {
            return Err(Ignored::OtherLife);
        }
        if *state != State::Pending {
            return Err(Ignored::Closed(*state));
        }
        if request.deadline.is_some_and(|deadline| now >= deadline) {
            *state = State::Expired;
            return Err(Ignored::Closed(State::Expired));
        }
        *state = match answer.verdict {
            Verdict::Approve => State::Approved,
            Verdict::Reject => State::Rejected,
        };
        Ok(*state)
    }

    /// The owner no longer waits. Whether it was open.
    pub(crate) fn withdraw(&mut self, id: &str) -> bool {
        self.close(id, State::Withdrawn)
    }

    /// Time has passed; what expired just now.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<String> {
        let late = |request: &Request| request.deadline.is_some_and(|deadline| now >= deadline);
        let late: Vec<String> = self
            .pending()
            .filter(|request| late(request))
            .map(|request| request.id.clone())
            .collect();
        for id in &late {
            self.close(id, State::Expired);
        }
        late
    }

    /// When the next open request expires.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending().filter_map(|request| request.deadline).min()
    }

    /// What is open.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Request> {
        let open = self.requests.values().filter(|(_, state)| *state == State::Pending);
        open.map(|(request, _)| request)
    }

    /// The open request of that id.
    pub(crate) fn pending_of(&self, id: &str) -> Option<&Request> {
        self.pending().find(|request| request.id == id)
    }

    fn close(&mut self, id: &str, end: State) -> bool {
        let Some((_, state)) = self.requests.get_mut(id) else { return false };
        let was_open = *state == State::Pending;
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

    fn request(id: &str, life: &str, deadline: Option<Instant>) -> Request {
        Request {
            id: id.into(),
            kind: Kind::Permission,
            owner: "alice".into(),
            decider: "lead".into(),
            incarnation: life.into(),
            deadline,
        }
    }

    fn yes<'a>(id: &'a str, from: &'a str, life: &'a str) -> Answer<'a> {
        let (kind, verdict) = (Kind::Permission, Verdict::Approve);
        Answer { id: Some(id), kind, from, incarnation: Some(life), verdict }
    }

    #[test]
    fn only_the_answer_that_was_asked_for_counts() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.open(request("r", "i1", None)).unwrap();
        let good = yes("r", "lead", "i1");
        for (bad, why) in [
            (yes("s", "lead", "i1"), Ignored::Unknown),
            (Answer { id: None, ..good }, Ignored::Unknown),
            (yes("r", "bob", "i1"), Ignored::Foreign),
            (yes("r", "alice", "i1"), Ignored::Foreign),
            (yes("r", "lead", "i0"), Ignored::OtherLife),
            (Answer { incarnation: None, ..good }, Ignored::OtherLife),
            (Answer { kind: Kind::Plan, ..good }, Ignored::OtherKind),
        ] {
            assert_eq!(ledger.answer(&bad, now), Err(why), "{bad:?}");
            assert!(ledger.pending_of("r").is_some());
        }
        assert_eq!(ledger.answer(&good, now), Ok(State::Approved));
        let no = Answer { verdict: Verdict::Reject, ..good };
        assert_eq!(ledger.answer(&no, now), Err(Ignored::Closed(State::Approved)));
        assert_eq!(ledger.pending().count(), 0);
    }

    #[test]
    fn a_deadline_ends_it_and_a_late_answer_changes_nothing() {
        let now = Instant::now();
        let at = now + Duration::from_secs(5);
        let mut ledger = Ledger::default();
        ledger.open(request("r", "i1", Some(at))).unwrap();
        assert_eq!(ledger.due(), Some(at));
        assert_eq!(ledger.tick(now), Vec::<String>::new());
        let late = ledger.answer(&yes("r", "lead", "i1"), at);
        assert_eq!(late, Err(Ignored::Closed(State::Expired)));
        ledger.open(request("s", "i1", Some(at))).unwrap();
        assert_eq!(ledger.tick(at), ["s"]);
        assert_eq!(ledger.due(), None);
        assert!(!ledger.withdraw("s"));
    }

    #[test]
    fn asking_again_in_a_new_life_binds_anew() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.open(request("r", "i1", None)).unwrap();
        ledger.open(request("r", "i2", None)).unwrap();
        let stale = ledger.answer(&yes("r", "lead", "i1"), now);
        assert_eq!(stale, Err(Ignored::OtherLife));
        let mallory = Request { owner: "mallory".into(), ..request("r", "i2", None) };
        assert_eq!(ledger.open(mallory), Err(Ignored::Foreign));
        assert_eq!(ledger.answer(&yes("r", "lead", "i2"), now), Ok(State::Approved));
        let again = ledger.open(request("r", "i2", None));
        assert_eq!(again, Err(Ignored::Closed(State::Approved)));
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
            let kinds = [Kind::Shutdown, Kind::Plan, Kind::Permission, Kind::Sandbox];
            let kind_of = |id: &str| kinds[ids.iter().position(|known| *known == id).unwrap()];
            let deadline = begin + Duration::from_secs(30);
            let (mut ledger, mut life) = (Ledger::default(), 0);
            let name = |life: usize| format!("i{life}");
            for id in ids {
                let kind = kind_of(id);
                ledger.open(Request { kind, ..request(id, &name(life), Some(deadline)) }).unwrap();
            }
            let mut decided: BTreeMap<&str, State> = BTreeMap::new();
            let mut now = begin;
            for (step, which, seconds) in steps {
                let id = ids[which];
                let current = name(life);
                let kind = kind_of(id);
                let mut good = Answer { kind, ..yes(id, "lead", &current) };
                match step {
                    0 => now = now.max(begin + Duration::from_secs(seconds)),
                    1 => for late in ledger.tick(now) {
                        let id = ids.into_iter().find(|id| *id == late).unwrap();
                        prop_assert!(now >= deadline);
                        prop_assert_eq!(decided.insert(id, State::Expired), None);
                    },
                    2 => {
                        // A crash: what is open is asked again in the next life.
                        life += 1;
                        ledger = Ledger::default();
                        for id in ids.into_iter().filter(|id| !decided.contains_key(id)) {
                            let (kind, life) = (kind_of(id), name(life));
                            let again = request(id, &life, Some(deadline));
                            ledger.open(Request { kind, ..again }).unwrap();
                        }
                    }
                    3 => {
                        let foreign = Answer { from: "bob", ..good };
                        prop_assert!(ledger.answer(&foreign, now).is_err());
                    }
                    4 => {
                        let stale = Answer { incarnation: Some("i-other"), ..good };
                        prop_assert!(ledger.answer(&stale, now).is_err());
                    }
                    8 => {
                        let other = kinds[(which + 1) % kinds.len()];
                        let answer = Answer { kind: other, ..good };
                        prop_assert!(ledger.answer(&answer, now).is_err());
                    }
                    5 => if ledger.withdraw(id) {
                        prop_assert_eq!(decided.insert(id, State::Withdrawn), None);
                    },
                    _ => {
                        if step == 7 {
                            good.verdict = Verdict::Reject;
                        }
                        match ledger.answer(&good, now) {
                            Ok(state) => {
                                prop_assert!(now < deadline);
                                prop_assert_eq!(decided.insert(id, state), None);
                            }
                            Err(Ignored::Closed(State::Expired)) => {
                                decided.insert(id, State::Expired);
                            }
                            Err(_) => prop_assert!(decided.contains_key(id)),
                        }
                    }
                }
            }
        }
    }
}
