//! Claims the names of this host's agents, and ends an agent whose name another host has.
//!
//! The authority of the team alone places names, by compare-and-swap at the carrier; the other hosts ask it.

mod answering;
mod asking;
mod question;
mod waiting;

pub(crate) use asking::NamesAnswered;
pub(crate) use waiting::ReceivedClaim;

use crate::carrier::{Carrier, CarrierError, StoredValue};
use crate::offload::offload;
use crate::trust::Trust;
use agent_team::bus::Bus;
use agent_team::relay::{
    Displaced, KnownPlacements, NamePlaces, NameStep, Placement, RosterMirror, TakeBack,
    end_displaced, name_key, parse_name_key,
};
use agent_team::store::relay::{own_names, placements, write_own_names, write_placements};
use agent_team::wire::AgentName;
use agent_team::wire::carried::HostName;
use asking::{Asking, name_of};
use futures_util::future::join_all;
use question::{Placed, StepFailure, ask};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use waiting::WaitingQuestions;

/// The time in which a host corrects what a forgetful carrier says of its names: some signs of life.
const CORRECTED_WITHIN: Duration = Duration::from_secs(5);

/// The most placements that are on their way at a time.
const AT_ONCE: usize = 64;

/// The number of refusals after which the name of an agent that has ended is left where it is. The authority may hear of an end
/// on a third host a moment later than this host, and so refuse once what it grants then.
const MOST_REFUSALS: u32 = 4;

/// The outcome of the placement of a name on another host.
pub(crate) enum PlaceOutcome {
    /// It is placed there.
    Placed,
    /// Its agent runs, or may run, elsewhere.
    Refused(String),
    /// The carrier did not take it, for this reason.
    Later(String),
}

/// The place of a name before and after a value of the carrier.
pub(crate) struct NotedPlace {
    pub(crate) name: AgentName,
    pub(crate) before: Option<HostName>,
    pub(crate) now: Option<HostName>,
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
    /// The question of this host that is on its way to the authority.
    asking: Asking,
    /// The names of agents that have ended that the authority has refused, each with how often.
    refused: BTreeMap<AgentName, u32>,
    /// The questions of other hosts that this one, the authority, has not answered yet.
    waiting: WaitingQuestions,
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
        Self {
            host,
            trust,
            places,
            bus,
            recorded,
            placed,
            doubtful: BTreeMap::new(),
            taking_back: BTreeMap::new(),
            asking: Asking::new(),
            refused: BTreeMap::new(),
            waiting: WaitingQuestions::default(),
            ending: Arc::default(),
        }
    }

    /// Notes a value of the carrier; returns what it has changed if it was the place of a name. Only the authority places names.
    pub(crate) fn note(
        &mut self,
        key: &str,
        value: &StoredValue,
        revision: u64,
    ) -> Option<NotedPlace> {
        let name = parse_name_key(key)?;
        let before = self.places.host_of(&name);
        match value.of(self.trust.authority()).and_then(|it| serde_json::from_slice(it).ok()) {
            Some(placement) => self.places.note(name.clone(), Some(placement), revision),
            None if self.is_authority() => self.places.overwritten(&name, revision),
            None => {}
        }
        let now = self.places.host_of(&name);
        Some(NotedPlace { name, before, now })
    }

    /// Notes that all values of the carrier are read now.
    pub(crate) fn begin_reading(&mut self) {
        self.places.begin_reading();
    }

    /// Notes that all values were read.
    pub(crate) fn end_reading(&mut self) {
        self.places.end_reading();
    }

    fn is_authority(&self) -> bool {
        *self.trust.authority() == self.host
    }

    /// Notes that the carrier has forgotten all placements.
    pub(crate) fn forgotten(&mut self) {
        self.places.forgotten();
    }

    /// Brings the agents of this host and the placements in agreement. A claim that fails is made again by the next
    /// call. What the authority is asked is noted by [`Self::note_answers`].
    pub(crate) async fn settle(&mut self, carrier: &Carrier, mirror: &mut RosterMirror) {
        self.end_claims(mirror);
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
        if self.is_authority() {
            for some in steps.chunks(AT_ONCE) {
                let taken = self.take_all(some.iter().cloned().map(Some), carrier).await;
                // Nor would the next ones be answered: signs of life must not wait for them.
                if !tell_of_claims(some, taken) {
                    break;
                }
            }
        } else {
            self.asking.ask(steps, carrier);
        }
        self.settle_taking_back(carrier, mirror).await;
        self.record().await;
    }

    /// Ends the claims of agents that have ended, of the names that are placed here, or were refused too often. Those of living
    /// agents are made again.
    fn end_claims(&mut self, mirror: &mut RosterMirror) {
        let Self { places, refused, .. } = self;
        refused.retain(|name, _| !mirror.is_alive_here(name));
        mirror
            .note_claimed(|name| places.is_here(name) || refused.get(name) >= Some(&MOST_REFUSALS));
        for (name, _) in refused.extract_if(.., |_, times| *times >= MOST_REFUSALS) {
            tracing::info!(%name, "a name stays where it is: its last agent here has ended");
        }
    }

    /// Notes which names the authority has refused.
    fn note_refusals(&mut self, steps: &[NameStep], taken: &[Result<Placed, StepFailure>]) {
        for (name, taken) in steps.iter().filter_map(name_of).zip(taken) {
            match taken {
                Err(StepFailure::Refused(_)) => {
                    *self.refused.entry(name.clone()).or_default() += 1;
                }
                Ok(_) | Err(StepFailure::OtherWasFaster) => drop(self.refused.remove(name)),
                Err(StepFailure::Unanswered(_)) => {}
            }
        }
    }

    /// Waits for the answers of the authority to the question of this host that is on its way.
    pub(crate) async fn answers(&mut self) -> NamesAnswered {
        self.asking.answers().await
    }

    /// Notes the answers. Returns whether there are names that the question had no room for.
    pub(crate) async fn note_answers(&mut self, answered: NamesAnswered) -> bool {
        let NamesAnswered { steps, taken, is_more } = answered;
        let has_placed = taken.iter().any(Result::is_ok);
        self.note_refusals(&steps, &taken);
        let taken: Vec<_> = taken.into_iter().map(|taken| self.note_placed(taken)).collect();
        self.asking.ended(tell_of_claims(&steps, taken) || has_placed);
        self.record().await;
        is_more && has_placed
    }

    /// Notes that a host is heard that was not.
    pub(crate) fn heard(&mut self, host: &HostName) {
        if host == self.trust.authority() {
            self.asking.resume();
        }
    }

    /// Notes a question of another host.
    pub(crate) fn note_claim(&mut self, claim: ReceivedClaim) {
        self.waiting.add(claim);
    }

    /// Whether a host waits for an answer of this one.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
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
        let mut note = |placed: Result<Option<Placed>, StepFailure>| match placed {
            Ok(Some(placed)) => self.note_placed(Ok(placed)),
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        placed.into_iter().map(&mut note).collect()
    }

    /// Notes the place that a name has got.
    fn note_placed(&mut self, placed: Result<Placed, StepFailure>) -> Result<(), StepFailure> {
        let Placed { name, placement, revision } = placed?;
        self.places.note(name, Some(placement), revision);
        Ok(())
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
            let unanswered = || StepFailure::Unanswered("there is no answer".into());
            let placed = ask(vec![(name, placement)], carrier).await.pop();
            return placed.unwrap_or_else(|| Err(unanswered()));
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

/// Tells of the outcomes of steps in the log. Returns whether all of them were answered.
fn tell_of_claims(steps: &[NameStep], taken: Vec<Result<(), StepFailure>>) -> bool {
    let (mut is_answered, mut failures) = (true, BTreeMap::<String, usize>::new());
    for (step, taken) in steps.iter().zip(taken) {
        match taken {
            Ok(()) => tell_of_move(step),
            // Its claim comes as a value.
            Err(StepFailure::OtherWasFaster) => {}
            Err(why) => {
                is_answered &= !matches!(why, StepFailure::Unanswered(_));
                *failures.entry(why.to_string()).or_default() += 1;
            }
        }
    }
    for (why, names) in failures {
        tracing::info!(names, %why, "names are not claimed yet");
    }
    is_answered
}

fn tell_of_move(step: &NameStep) {
    if let NameStep::Replace(name, Placement { host, term, .. }, _) = step {
        tracing::info!(%name, %host, term, "a name is placed");
    }
}

fn lock(names: &Mutex<BTreeSet<AgentName>>) -> std::sync::MutexGuard<'_, BTreeSet<AgentName>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}
