//! Claims the names of this host's agents, and ends an agent whose name another host has.
//!
//! The authority of the team alone places names, by compare-and-swap at the carrier; the other hosts ask it.

use crate::carrier::{Carrier, CarrierError, Reply, StoredValue};
use crate::offload::offload;
use crate::trust::Trust;
use agent_team::bus::Bus;
use agent_team::relay::{
    Displaced, KnownPlacements, NamePlaces, NameStep, Placement, RosterMirror, TakeBack,
    end_displaced, name_key, parse_name_key,
};
use agent_team::store::relay::{own_names, placements, write_own_names, write_placements};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// The time in which a host corrects what a forgetful carrier says of its names: some signs of life.
const CORRECTED_WITHIN: Duration = Duration::from_secs(5);

/// The most placements that are on their way at a time.
const AT_ONCE: usize = 64;

/// The outcome of the placement of a name on another host.
pub(crate) enum PlaceOutcome {
    /// It is placed there.
    Placed,
    /// Its agent runs, or may run, elsewhere.
    Refused(String),
    /// The carrier did not take it, for this reason.
    Later(String),
}

/// The question of a host for the place of a name.
#[derive(Debug, Serialize, Deserialize)]
struct NameClaim {
    v: u32,
    name: String,
    placement: Placement,
}

/// The answer of the authority.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
enum ClaimAnswer {
    /// The name has this place.
    Placed {
        /// The place.
        placement: Placement,
        /// Its revision at the carrier.
        revision: u64,
    },
    /// It belongs to another host, or may not be placed.
    Refused {
        /// The reason.
        why: String,
    },
    /// It may be placed later.
    Later {
        /// The reason.
        why: String,
    },
}

/// A question that another host has asked this one, the authority.
pub(crate) struct ReceivedClaim {
    pub(crate) from: HostName,
    pub(crate) body: Bytes,
    /// The way back.
    pub(crate) reply: Reply,
}

/// A claim that may be met, with the step for it, if one is needed; else the reason for which it is refused.
type Judgement = Result<(AgentName, Option<NameStep>), String>;

/// The place that a name has got.
struct Placed {
    name: AgentName,
    placement: Placement,
    revision: u64,
}

/// The reason for which a name was not placed.
#[derive(Debug, thiserror::Error)]
enum StepFailure {
    #[error("another host was faster")]
    OtherWasFaster,
    #[error("{0}")]
    Refused(String),
    #[error("the name is not placed: {0}")]
    Unanswered(String),
}

/// The claims of this host.
pub(crate) struct NameClaims {
    host: HostName,
    trust: Arc<Trust>,
    places: NamePlaces,
    bus: Arc<Bus>,
    /// The terms that are on disk.
    recorded: BTreeMap<AgentName, u64>,
    /// The number of the changes of places after which those of all names are on disk, on the authority.
    placed: Option<u64>,
    /// The agents that are to be ended unless their hosts correct it, with the time since which that is so.
    doubtful: BTreeMap<AgentName, Instant>,
    /// The names that are to be taken back, each with the host on which its agent has not started in time.
    taking_back: BTreeMap<AgentName, HostName>,
    /// The agents that are being ended.
    ending: Arc<Mutex<BTreeSet<AgentName>>>,
}

impl NameClaims {
    /// Creates the claims with what an earlier relay of this host has recorded. What is learned is noted in `shared`, too.
    pub(crate) fn new(
        host: HostName,
        trust: Arc<Trust>,
        bus: Arc<Bus>,
        shared: KnownPlacements,
    ) -> Self {
        let recorded = own_names(bus.dir()).unwrap_or_else(|why| {
            tracing::warn!(%why, "the names that this host had are unknown");
            BTreeMap::new()
        });
        let mut places = NamePlaces::sharing(host.clone(), recorded.clone(), shared);
        let mut placed = None;
        if *trust.authority() == host {
            // A carrier that has forgotten them as well would give every name to the first one that asks.
            let known: BTreeMap<String, Placement> = placements(bus.dir())
                .unwrap_or_else(|why| {
                    tracing::error!(%why, "the places of the names are unknown");
                    None
                })
                .unwrap_or_default();
            places.restore(known.clone());
            placed = (places.all() == known).then(|| places.changes());
        }
        let (doubtful, taking_back) = (BTreeMap::new(), BTreeMap::new());
        let ending = Arc::default();
        Self { host, trust, places, bus, recorded, placed, doubtful, taking_back, ending }
    }

    /// Notes a value of the carrier; returns whether it was the place of a name. Only the authority places names.
    pub(crate) fn note(&mut self, key: &str, value: &StoredValue, revision: u64) -> bool {
        let Some(name) = parse_name_key(key) else { return false };
        match value.of(self.trust.authority()).and_then(|it| serde_json::from_slice(it).ok()) {
            Some(placement) => self.places.note(name, Some(placement), revision),
            None if self.is_authority() => self.places.overwritten(&name, revision),
            None => {}
        }
        true
    }

    fn is_authority(&self) -> bool {
        *self.trust.authority() == self.host
    }

    /// Notes that the carrier has forgotten all placements.
    pub(crate) fn forgotten(&mut self) {
        self.places.forgotten();
    }

    /// Brings the living agents of this host and the placements in agreement. A claim that fails is made again by the next
    /// call.
    pub(crate) async fn settle(&mut self, carrier: &Carrier, mirror: &RosterMirror) {
        let mut steps = self.places.steps(mirror);
        let is_displaced = |name: &AgentName| {
            steps.iter().any(|step| matches!(step, NameStep::End(it) if it.name == *name))
        };
        self.doubtful.retain(|name, _| is_displaced(name));
        if self.is_authority() {
            steps.extend(self.places.steps_for_others());
        }
        let (ends, steps): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, NameStep::End(_)));
        for end in ends {
            if let NameStep::End(displaced) = end {
                self.end(displaced);
            }
        }
        for some in steps.chunks(AT_ONCE) {
            let taken = self.take_all(some.iter().cloned().map(Some), carrier).await;
            // Nor would the next ones be answered: signs of life must not wait for them.
            let mut is_answered = true;
            for (step, taken) in some.iter().zip(taken) {
                match taken {
                    Ok(()) => tell_of_move(step),
                    // Its claim comes as a value.
                    Err(StepFailure::OtherWasFaster) => {}
                    Err(why) => {
                        tracing::info!(%why, "a name is not claimed yet");
                        is_answered &= !matches!(why, StepFailure::Unanswered(_));
                    }
                }
            }
            if !is_answered {
                break;
            }
        }
        self.settle_taking_back(carrier, mirror).await;
        self.record().await;
    }

    /// Places a name on a host on which its agent is to start.
    pub(crate) async fn place(
        &mut self,
        (name, host): (&AgentName, &HostName),
        carrier: &Carrier,
        mirror: &RosterMirror,
    ) -> PlaceOutcome {
        self.taking_back.remove(name);
        let step = match self.places.place_on(name, host, mirror) {
            Ok(None) => return PlaceOutcome::Placed,
            Ok(Some(step)) => step,
            Err(why) => return PlaceOutcome::Refused(why),
        };
        match self.take(step, carrier).await {
            Ok(()) => PlaceOutcome::Placed,
            Err(StepFailure::Refused(why)) => PlaceOutcome::Refused(why),
            Err(why) => PlaceOutcome::Later(why.to_string()),
        }
    }

    /// Answers, as the authority, hosts that ask for the place of a name. What is placed is on disk before.
    pub(crate) async fn answer(
        &mut self,
        claims: Vec<ReceivedClaim>,
        carrier: &Carrier,
        mirror: &RosterMirror,
    ) {
        let mut claims = claims.into_iter().peekable();
        while claims.peek().is_some() {
            let claims: Vec<_> = claims.by_ref().take(AT_ONCE).collect();
            let judged: Vec<_> = claims.iter().map(|claim| self.judge(claim, mirror)).collect();
            let steps = judged.iter().map(|judged| judged.as_ref()?.as_ref().ok()?.1.clone());
            let taken = self.take_all(steps, carrier).await;
            self.record().await;
            for ((claim, judged), taken) in claims.into_iter().zip(judged).zip(taken) {
                let Some(judged) = judged else { continue };
                let answer = match judged {
                    Err(why) => ClaimAnswer::Refused { why },
                    Ok((name, _)) => match (taken, self.places.place_of(&name)) {
                        (Ok(()), Some((placement, revision))) => {
                            ClaimAnswer::Placed { placement, revision }
                        }
                        (Ok(()), None) => ClaimAnswer::Later { why: "it is not stored".into() },
                        (Err(why), _) => ClaimAnswer::Later { why: why.to_string() },
                    },
                };
                if let Ok(answer) = serde_json::to_vec(&answer) {
                    drop(claim.reply.answer(answer.into()).await);
                }
            }
        }
    }

    /// Judges a claim: the step that it takes, or the reason for which it is refused. `None` if nothing is answered.
    fn judge(&self, claim: &ReceivedClaim, mirror: &RosterMirror) -> Option<Judgement> {
        let by = &claim.from;
        let NameClaim { v: RELAY_PROTOCOL, name, placement } =
            serde_json::from_slice(&claim.body).ok()?
        else {
            tracing::warn!(%by, "what came is no claim of a name that this version knows");
            return None;
        };
        Some(match AgentName::mailbox(&name) {
            Ok(_) if !self.is_authority() => Err("this host is not the authority".to_owned()),
            Ok(name) => self.places.claim((&name, placement), by, mirror).map(|step| (name, step)),
            Err(why) => Err(why.to_string()),
        })
    }

    /// Takes back a name that this host has placed on another one, where its agent has not started in time. It is tried again
    /// until the carrier takes it.
    pub(crate) fn take_back(&mut self, name: AgentName, from: HostName) {
        self.taking_back.insert(name, from);
    }

    /// Takes back the names that are to be taken back. An agent that is known to be alive there stays: it has started, and the
    /// roster shows it.
    async fn settle_taking_back(&mut self, carrier: &Carrier, mirror: &RosterMirror) {
        let mut is_answered = true;
        for (name, from) in std::mem::take(&mut self.taking_back) {
            if mirror.is_alive_on(&name, &from) {
                continue;
            }
            if !is_answered {
                self.taking_back.insert(name, from);
                continue;
            }
            match self.places.take_back(&name, &from) {
                TakeBack::Done => {}
                TakeBack::Later => drop(self.taking_back.insert(name, from)),
                TakeBack::Step(step) => match self.take(step, carrier).await {
                    Ok(()) => {
                        tracing::info!(%name, %from, "a name is taken back: its agent has not started in time");
                    }
                    Err(why) => {
                        tracing::info!(%name, %from, %why, "a name is not taken back yet");
                        is_answered = !matches!(why, StepFailure::Unanswered(_));
                        self.taking_back.insert(name, from);
                    }
                },
            }
        }
    }

    /// Takes a step that changes a placement, or has the authority take it.
    async fn take(&mut self, step: NameStep, carrier: &Carrier) -> Result<(), StepFailure> {
        self.take_all([Some(step)], carrier).await.pop().unwrap_or(Ok(()))
    }

    /// Takes several steps at once; `None` is none, and succeeds.
    async fn take_all(
        &mut self,
        steps: impl IntoIterator<Item = Option<NameStep>>,
        carrier: &Carrier,
    ) -> Vec<Result<(), StepFailure>> {
        let this = &*self;
        let place = |step| async move {
            match step {
                Some(step) => this.placed_by(step, carrier).await.map(Some),
                None => Ok(None),
            }
        };
        let placed = join_all(steps.into_iter().map(place)).await;
        let mut note = |placed: Option<Placed>| {
            if let Some(Placed { name, placement, revision }) = placed {
                self.places.note(name, Some(placement), revision);
            }
        };
        placed.into_iter().map(|placed| placed.map(&mut note)).collect()
    }

    /// Has a step taken; returns the place that follows.
    async fn placed_by(&self, step: NameStep, carrier: &Carrier) -> Result<Placed, StepFailure> {
        let (name, placement, revision) = match step {
            NameStep::Create(name, placement) => (name, placement, None),
            NameStep::Replace(name, placement, revision) => (name, placement, Some(revision)),
            NameStep::End(Displaced { name, host, .. }) => {
                return Err(StepFailure::Refused(format!("{name} belongs to {host}")));
            }
        };
        if !self.is_authority() {
            return ask_for(name, placement, carrier).await;
        }
        let failed = |why: &dyn std::error::Error| StepFailure::Unanswered(why.to_string());
        let value = serde_json::to_vec(&placement).map_err(|why| failed(&why))?;
        let key = name_key(&name);
        let stored = match revision {
            None => carrier.create(&key, value.into()).await,
            Some(revision) => carrier.update(&key, value.into(), revision).await,
        };
        let is_late = |why: &CarrierError| {
            matches!(why, CarrierError::AlreadyExists(_) | CarrierError::RevisionChanged(_))
        };
        let revision = stored.map_err(|why| {
            if is_late(&why) { StepFailure::OtherWasFaster } else { failed(&why) }
        })?;
        Ok(Placed { name, placement, revision })
    }

    /// Records the own terms and, on the authority, the places of all names, if they have changed.
    async fn record(&mut self) {
        if self.is_authority() {
            let changes = Some(self.places.changes());
            if changes != self.placed {
                let (bus, all) = (Arc::clone(&self.bus), self.places.all());
                match offload(move || write_placements(bus.dir(), &all)).await {
                    Ok(()) => self.placed = changes,
                    Err(why) => {
                        tracing::warn!(%why, "the places of the names are not recorded yet");
                    }
                }
            }
        }
        if self.recorded == *self.places.own_terms() {
            return;
        }
        let (bus, terms) = (Arc::clone(&self.bus), self.places.own_terms().clone());
        let write = move || write_own_names(bus.dir(), &terms).map(|()| terms);
        match offload(write).await {
            Ok(terms) => self.recorded = terms,
            Err(why) => tracing::warn!(%why, "the names of this host are not recorded yet"),
        }
    }

    fn end(&mut self, Displaced { name, host, is_certain }: Displaced) {
        let since = *self.doubtful.entry(name.clone()).or_insert_with(Instant::now);
        if !is_certain && since.elapsed() < CORRECTED_WITHIN {
            return;
        }
        if !lock(&self.ending).insert(name.clone()) {
            return;
        }
        let (bus, ending) = (Arc::clone(&self.bus), Arc::clone(&self.ending));
        spawn_blocking(move || {
            if let Err(why) = end_displaced(&bus, &name, &host) {
                tracing::warn!(%name, %why, "an agent whose name another host has is not ended");
            }
            lock(&ending).remove(&name);
        });
    }
}

/// Asks the authority for the place of a name.
async fn ask_for(
    name: AgentName,
    placement: Placement,
    carrier: &Carrier,
) -> Result<Placed, StepFailure> {
    let failed = |why: &dyn std::error::Error| StepFailure::Unanswered(why.to_string());
    let claim = NameClaim { v: RELAY_PROTOCOL, name: name.to_string(), placement };
    let question = serde_json::to_vec(&claim).map_err(|why| failed(&why))?;
    let answer = carrier.request_claim(question.into()).await.map_err(|why| failed(&why))?;
    match serde_json::from_slice(&answer).map_err(|why| failed(&why))? {
        ClaimAnswer::Placed { placement, revision } => Ok(Placed { name, placement, revision }),
        ClaimAnswer::Refused { why } => Err(StepFailure::Refused(why)),
        ClaimAnswer::Later { why } => Err(StepFailure::Unanswered(why)),
    }
}

fn tell_of_move(step: &NameStep) {
    if let NameStep::Replace(name, Placement { host, term, .. }, _) = step {
        tracing::info!(%name, %host, term, "a name is placed");
    }
}

fn lock(names: &Mutex<BTreeSet<AgentName>>) -> std::sync::MutexGuard<'_, BTreeSet<AgentName>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}
