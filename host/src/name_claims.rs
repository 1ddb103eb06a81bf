//! Claims the names of this host's agents at the carrier, and ends an agent whose name another host has.

use crate::carrier::{Carrier, CarrierError};
use crate::inbound::offload;
use agent_team::bus::Bus;
use agent_team::relay::{
    Displaced, KnownPlacements, NamePlaces, NameStep, Placement, RosterMirror, TakeBack,
    end_displaced, name_key, parse_name_key,
};
use agent_team::store::relay::{own_names, write_own_names};
use agent_team::wire::AgentName;
use agent_team::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// The time in which a host corrects what a forgetful carrier says of its names: some signs of life.
const CORRECTED_WITHIN: Duration = Duration::from_secs(5);

/// The outcome of the placement of a name on another host.
pub(crate) enum PlaceOutcome {
    /// It is placed there.
    Placed,
    /// Its agent runs, or may run, elsewhere.
    Refused(String),
    /// The carrier did not take it, for this reason.
    Later(String),
}

/// The claims of this host.
pub(crate) struct NameClaims {
    places: NamePlaces,
    bus: Arc<Bus>,
    /// The terms that are on disk.
    recorded: BTreeMap<AgentName, u64>,
    /// The agents that are to be ended unless their hosts correct it, with the time since which that is so.
    doubtful: BTreeMap<AgentName, Instant>,
    /// The names that are to be taken back, each with the host on which its agent has not started in time.
    taking_back: BTreeMap<AgentName, HostName>,
    /// The agents that are being ended.
    ending: Arc<Mutex<BTreeSet<AgentName>>>,
}

impl NameClaims {
    /// Creates the claims with what an earlier relay of this host has recorded. What is learned is noted in `shared`, too.
    pub(crate) fn new(host: HostName, bus: Arc<Bus>, shared: KnownPlacements) -> Self {
        let recorded = own_names(bus.dir()).unwrap_or_else(|why| {
            tracing::warn!(%why, "the names that this host had are unknown");
            BTreeMap::new()
        });
        let places = NamePlaces::sharing(host, recorded.clone(), shared);
        let (doubtful, taking_back) = (BTreeMap::new(), BTreeMap::new());
        Self { places, bus, recorded, doubtful, taking_back, ending: Arc::default() }
    }

    /// Notes a value of the carrier; returns whether it was a placement.
    pub(crate) fn note(&mut self, key: &str, value: Option<&[u8]>, revision: u64) -> bool {
        let Some(name) = parse_name_key(key) else { return false };
        let placement = value.and_then(|value| serde_json::from_slice::<Placement>(value).ok());
        self.places.note(name, placement, revision);
        true
    }

    /// Notes that the carrier has forgotten all placements.
    pub(crate) fn forgotten(&mut self) {
        self.places.forgotten();
    }

    /// Brings the living agents of this host and the placements in agreement. A claim that fails is made again by the next
    /// call.
    pub(crate) async fn settle(&mut self, carrier: &Carrier, mirror: &RosterMirror) {
        let steps = self.places.steps(mirror);
        let is_displaced = |name: &AgentName| {
            steps.iter().any(|step| matches!(step, NameStep::End(it) if it.name == *name))
        };
        self.doubtful.retain(|name, _| is_displaced(name));
        for step in steps {
            match step {
                NameStep::Create(name, placement) => {
                    let Ok(value) = serde_json::to_vec(&placement) else { continue };
                    let created = carrier.create(&name_key(&name), value.into()).await;
                    self.claimed(name, placement, created);
                }
                NameStep::Replace(name, placement, revision) => {
                    let Ok(value) = serde_json::to_vec(&placement) else { continue };
                    let key = name_key(&name);
                    let replaced = carrier.update(&key, value.into(), revision).await;
                    if replaced.is_ok() {
                        tracing::info!(%name, term = placement.term, "a name has moved to this host");
                    }
                    self.claimed(name, placement, replaced);
                }
                NameStep::End(displaced) => self.end(displaced),
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
            Err(why) => PlaceOutcome::Later(why),
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
        for (name, from) in std::mem::take(&mut self.taking_back) {
            if mirror.is_alive_on(&name, &from) {
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
                        tracing::info!(%name, %from, why, "a name is not taken back yet");
                        self.taking_back.insert(name, from);
                    }
                },
            }
        }
    }

    /// Takes a step that changes a placement.
    async fn take(&mut self, step: NameStep, carrier: &Carrier) -> Result<(), String> {
        let (name, placement, stored) = match step {
            NameStep::Create(name, placement) => {
                let value = serde_json::to_vec(&placement).map_err(|why| why.to_string())?;
                let created = carrier.create(&name_key(&name), value.into()).await;
                (name, placement, created)
            }
            NameStep::Replace(name, placement, revision) => {
                let value = serde_json::to_vec(&placement).map_err(|why| why.to_string())?;
                let replaced = carrier.update(&name_key(&name), value.into(), revision).await;
                (name, placement, replaced)
            }
            NameStep::End(Displaced { name, host, .. }) => {
                return Err(format!("{name} belongs to {host}"));
            }
        };
        let revision = stored.map_err(|why| format!("the name is not placed: {why}"))?;
        self.places.note(name, Some(placement), revision);
        Ok(())
    }

    /// Records the own terms, if they have changed.
    async fn record(&mut self) {
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

    fn claimed(
        &mut self,
        name: AgentName,
        placement: Placement,
        outcome: Result<u64, CarrierError>,
    ) {
        match outcome {
            Ok(revision) => self.places.note(name, Some(placement), revision),
            // Another host was faster. Its claim comes as a value.
            Err(CarrierError::AlreadyExists(_) | CarrierError::RevisionChanged(_)) => {}
            Err(why) => tracing::info!(%name, %why, "a name is not claimed yet"),
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

fn lock(names: &Mutex<BTreeSet<AgentName>>) -> std::sync::MutexGuard<'_, BTreeSet<AgentName>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}
