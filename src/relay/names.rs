//! The placement of names on hosts. A name is that of one agent on all hosts: each host claims the names of its living agents
//! from the authority of the team, which places them by compare-and-swap at the carrier; an agent whose name another host has ends.
//!
//! Nothing here waits or does I/O: [`NamePlaces`] says what is to be done next.

use super::placements::{KnownPlacements, Placement};
use super::roster::RosterMirror;
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// The highest term that a host may claim for a name: more moves than there are.
pub(super) const MOST_CLAIMED: u64 = 1 << 32;

/// The word before a name in the key of its placement.
const KEY: &str = "name.";

/// A step that brings the names of this host in agreement with the placements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameStep {
    /// Create the placement, if there is none.
    Create(AgentName, Placement),
    /// Replace the placement that has this revision.
    Replace(AgentName, Placement, u64),
    /// End the agent of this host: its name belongs to another one.
    End(Displaced),
}

/// The way in which a name is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeBack {
    /// It is not placed on that host any more.
    Done,
    /// The carrier has forgotten it, and is told of it again first.
    Later,
    /// By this step.
    Step(NameStep),
}

/// An agent of this host whose name belongs to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// Its name.
    pub name: AgentName,
    /// The host of the name.
    pub host: HostName,
    /// Whether the name was placed anew after this host had it. Otherwise what a forgetful carrier says may be old, and its
    /// host will correct it.
    pub is_certain: bool,
}

/// The placements of all names, as far as they are known.
#[derive(Debug)]
pub struct NamePlaces {
    host: HostName,
    places: BTreeMap<AgentName, Place>,
    /// The highest term of each name that this host has had.
    own_terms: BTreeMap<AgentName, u64>,
    /// The same, for the other parts of the relay.
    shared: KnownPlacements,
    /// Counts the changes of placements.
    changes: u64,
    /// The names that the carrier has given since a reading of all its values began; `None` if there is none.
    reading: Option<BTreeSet<AgentName>>,
}

#[derive(Debug)]
struct Place {
    placement: Placement,
    /// The revision at the carrier; `None` if the carrier has forgotten it.
    revision: Option<u64>,
    /// Whether the carrier has an earlier placement than this one.
    is_outdated: bool,
}

impl Place {
    /// Returns the step that puts another placement in the place of this one.
    fn replaced_by(&self, name: &AgentName, next: Placement) -> NameStep {
        match self.revision {
            Some(revision) => NameStep::Replace(name.clone(), next, revision),
            None => NameStep::Create(name.clone(), next),
        }
    }

    /// Returns the step by which the carrier gets the placement again, unless it has it.
    fn put_again(&self, name: &AgentName) -> Option<NameStep> {
        let (name, placement) = (name.clone(), self.placement.clone());
        match self.revision {
            None => Some(NameStep::Create(name, placement)),
            Some(revision) if self.is_outdated => {
                Some(NameStep::Replace(name, placement, revision))
            }
            Some(_) => None,
        }
    }
}

/// Returns the key of the placement of a name.
pub fn name_key(name: &AgentName) -> String {
    format!("{KEY}{name}")
}

/// Returns the name of a key; `None` if it is not the key of a placement.
pub fn parse_name_key(key: &str) -> Option<AgentName> {
    AgentName::mailbox(key.strip_prefix(KEY)?).ok()
}

impl NamePlaces {
    /// Creates the placements as a host knows them that has heard nothing yet, with the terms of the names that it had.
    pub fn new(host: HostName, own_terms: BTreeMap<AgentName, u64>) -> Self {
        Self::sharing(host, own_terms, KnownPlacements::default())
    }

    /// Creates the same, and notes in `shared` what is learned.
    pub fn sharing(
        host: HostName,
        own_terms: BTreeMap<AgentName, u64>,
        shared: KnownPlacements,
    ) -> Self {
        let place = |(name, term): (&AgentName, &u64)| {
            let placement = Placement::new(host.clone(), *term);
            (name.clone(), Place { placement, revision: None, is_outdated: false })
        };
        let places: BTreeMap<_, _> = own_terms.iter().map(place).collect();
        for (name, place) in &places {
            shared.own_terms().note(name, place.placement.term);
            shared.note(name, &place.placement);
        }
        Self { host, places, own_terms, shared, changes: 0, reading: None }
    }

    /// Notes the placement of a name that the carrier has; `None` if it was removed. An earlier one than is known is noted as
    /// one that is to be replaced.
    pub fn note(&mut self, name: AgentName, placement: Option<Placement>, revision: u64) {
        if let Some(reading) = &mut self.reading {
            reading.insert(name.clone());
        }
        let Some(placement) = placement else {
            self.changes += u64::from(self.places.remove(&name).is_some());
            return;
        };
        if placement.host == self.host {
            let known = self.own_terms.entry(name.clone()).or_default();
            *known = placement.term.max(*known);
            self.shared.own_terms().note(&name, placement.term);
        }
        self.shared.note(&name, &placement);
        match self.places.get_mut(&name) {
            Some(known) if placement.term < known.placement.term => {
                (known.revision, known.is_outdated) = (Some(revision), true);
            }
            known => {
                let is_new = known.is_none_or(|known| known.placement != placement);
                self.changes += u64::from(is_new);
                let place = Place { placement, revision: Some(revision), is_outdated: false };
                self.places.insert(name, place);
            }
        }
    }

    /// Takes over what an earlier process has known, before anything is heard. The carrier gets it again.
    pub fn restore(&mut self, known: BTreeMap<String, Placement>) {
        for (name, placement) in known {
            let Ok(name) = AgentName::mailbox(&name) else { continue };
            let is_newer = |it: &Place| {
                (it.placement.term, &it.placement.host) > (placement.term, &placement.host)
            };
            if self.places.get(&name).is_some_and(is_newer) {
                continue;
            }
            self.shared.note(&name, &placement);
            let place = Place { placement, revision: None, is_outdated: false };
            self.changes += 1;
            self.places.insert(name, place);
        }
    }

    /// Returns all placements that are known.
    pub fn all(&self) -> BTreeMap<String, Placement> {
        let all = self.places.iter();
        all.map(|(name, place)| (name.to_string(), place.placement.clone())).collect()
    }

    /// Returns a number that another one follows when [`Self::all`] changes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that all values of the carrier are read now.
    pub fn begin_reading(&mut self) {
        self.reading = Some(BTreeSet::new());
    }

    /// Notes that all values were read. The carrier has forgotten the placements that it has not given.
    pub fn end_reading(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        for (_, place) in self.places.iter_mut().filter(|(name, _)| !reading.contains(*name)) {
            (place.revision, place.is_outdated) = (None, false);
        }
    }

    /// Returns the host on which a name is placed.
    pub fn host_of(&self, name: &AgentName) -> Option<HostName> {
        self.places.get(name).map(|place| place.placement.host.clone())
    }

    /// Notes that the carrier has something else in the place of a placement, at this revision.
    pub fn overwritten(&mut self, name: &AgentName, revision: u64) {
        if let Some(reading) = &mut self.reading {
            reading.insert(name.clone());
        }
        if let Some(place) = self.places.get_mut(name) {
            (place.revision, place.is_outdated) = (Some(revision), true);
        }
    }

    /// Returns what the authority puts again for the other hosts.
    pub fn steps_for_others(&self) -> Vec<NameStep> {
        let others = self.places.iter().filter(|(_, place)| place.placement.host != self.host);
        others.filter_map(|(name, place)| place.put_again(name)).collect()
    }

    /// Judges, as the authority, the placement that a host asks for; returns the step that makes it, and `None` if it stands.
    /// A host places names on itself. One that may have the lead places them on others, too, and takes them back.
    ///
    /// # Errors
    /// In words: it may not, or the agent runs, or may run, on another host.
    pub fn claim(
        &self,
        (name, wanted): (&AgentName, Placement),
        by: &HostName,
        mirror: &RosterMirror,
    ) -> Result<Option<NameStep>, String> {
        let (is_own, may_lead) = (wanted.host == *by, self.shared.may_lead(by));
        if !may_lead && (!is_own || *name == AgentName::lead()) {
            return Err(format!("{by} is not among the hosts that may have the lead"));
        }
        if *name != AgentName::lead() && AgentName::member(name.as_str()).is_err() {
            return Err(format!("{name} is no name of an agent"));
        }
        let known = self.places.get(name);
        let term = wanted.term.clamp(1, MOST_CLAIMED);
        match known {
            // It had the name before this host has lost what it knew.
            None if is_own => self.place_on(name, by, mirror).map(|_| {
                let placement = Placement::new(by.clone(), term);
                Some(NameStep::Create(name.clone(), placement))
            }),
            Some(place) if is_own && place.placement.host == *by && term > place.placement.term => {
                let placement = Placement { term, ..place.placement.clone() };
                Ok(Some(place.replaced_by(name, placement)))
            }
            Some(place) if is_own && place.placement.host == *by => Ok(place.put_again(name)),
            Some(place)
                if may_lead
                    && is_own
                    && wanted.taken_from == Some(place.placement.host.clone()) =>
            {
                Ok(Some(place.replaced_by(name, place.placement.taken_to(by.clone()))))
            }
            None | Some(_) => self.place_on(name, &wanted.host, mirror),
        }
    }

    /// Notes that the carrier has forgotten all placements. They hold, and their hosts put them again.
    pub fn forgotten(&mut self) {
        for place in self.places.values_mut() {
            (place.revision, place.is_outdated) = (None, false);
        }
    }

    /// Returns the place of a name, with its revision at the carrier.
    pub fn place_of(&self, name: &AgentName) -> Option<(Placement, u64)> {
        let Place { placement, revision, .. } = self.places.get(name)?;
        Some((placement.clone(), (*revision)?))
    }

    /// Returns the highest term of each name that this host has had.
    pub fn own_terms(&self) -> &BTreeMap<AgentName, u64> {
        &self.own_terms
    }

    /// Whether a name is placed on this host.
    pub fn is_here(&self, name: &AgentName) -> bool {
        self.places.get(name).is_some_and(|place| place.placement.host == self.host)
    }

    /// Returns what is to be done next for the agents of this host whose names it claims, as the mirror has told of them.
    pub fn steps(&self, mirror: &RosterMirror) -> Vec<NameStep> {
        let step = |name: &AgentName| {
            let step = self.step(name, mirror)?;
            let is_of_living = mirror.is_alive_here(name);
            // Of one that has ended, the name is claimed once, and nothing is left to be ended.
            let counts = is_of_living || !(self.is_here(name) || matches!(step, NameStep::End(_)));
            counts.then_some(step)
        };
        mirror.claiming().into_iter().filter_map(step).collect()
    }

    /// Returns the step by which a name is placed on a host, for an agent that is to start there; `None` if it is placed there.
    ///
    /// # Errors
    /// In words: its agent runs, or may run, on another host.
    pub fn place_on(
        &self,
        name: &AgentName,
        host: &HostName,
        mirror: &RosterMirror,
    ) -> Result<Option<NameStep>, String> {
        if *host != self.host && mirror.is_alive_here(name) {
            return Err(format!("{name} runs on {}", self.host));
        }
        let Some(place) = self.places.get(name) else {
            return Ok(Some(NameStep::Create(name.clone(), Placement::new(host.clone(), 1))));
        };
        let placement = &place.placement;
        if placement.host == *host {
            return Ok(None);
        }
        if placement.host != self.host
            && !self.shared.is_given_up(&placement.host)
            && !mirror.has_ended_on(name, &placement.host)
        {
            return Err(format!("{name} belongs to {}, and may run there", placement.host));
        }
        Ok(Some(place.replaced_by(name, placement.moved_to(host.clone()))))
    }

    /// Returns the step by which this host takes back a name that it has placed on another one, where no agent has started in
    /// time. One that starts there later is ended.
    pub fn take_back(&self, name: &AgentName, from: &HostName) -> TakeBack {
        let Some(Place { placement, revision, .. }) =
            self.places.get(name).filter(|place| place.placement.host == *from)
        else {
            return TakeBack::Done;
        };
        let next = placement.taken_to(self.host.clone());
        match revision {
            Some(revision) => TakeBack::Step(NameStep::Replace(name.clone(), next, *revision)),
            None => TakeBack::Later,
        }
    }

    fn step(&self, name: &AgentName, mirror: &RosterMirror) -> Option<NameStep> {
        let Some(place) = self.places.get(name) else {
            let placement = Placement::new(self.host.clone(), 1);
            return Some(NameStep::Create(name.clone(), placement));
        };
        let Place { placement, revision, .. } = place;
        let Placement { host, term, taken_from, .. } = placement;
        if *host == self.host {
            return place.put_again(name);
        }
        let (name, moved) = (name.clone(), placement.moved_to(self.host.clone()));
        if taken_from.as_ref() == Some(&self.host) && mirror.is_ordered(&name) {
            let host = host.clone();
            return Some(NameStep::End(Displaced { name, host, is_certain: true }));
        }
        let is_given_up = self.shared.is_given_up(host);
        match revision {
            Some(revision) if is_given_up || mirror.has_ended_on(&name, host) => {
                Some(NameStep::Replace(name, moved, *revision))
            }
            // Its host does not put it again.
            None if is_given_up => Some(NameStep::Create(name, moved)),
            Some(_) | None => {
                let is_certain = self.own_terms.get(&name).is_some_and(|own| own < term);
                Some(NameStep::End(Displaced { name, host: host.clone(), is_certain }))
            }
        }
    }
}
