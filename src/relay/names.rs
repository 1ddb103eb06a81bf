//! The placement of names on hosts. A name is that of one agent on all hosts: each host claims the names of its living agents
//! from the authority of the team, which places them by compare-and-swap at the carrier; an agent whose name another host has ends.
//!
//! Nothing here waits or does I/O: [`NamePlaces`] says what is to be done next.

use super::placements::{KnownPlacements, Placement};
use super::roster::RosterMirror;
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use std::collections::BTreeMap;

/// The highest term that a host may claim for a name: more moves than there are.
const MOST_CLAIMED: u64 = 1 << 32;

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
        Self { host, places, own_terms, shared, changes: 0 }
    }

    /// Notes the placement of a name that the carrier has; `None` if it was removed. An earlier one than is known is noted as
    /// one that is to be replaced.
    pub fn note(&mut self, name: AgentName, placement: Option<Placement>, revision: u64) {
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

    /// Notes that the carrier has something else in the place of a placement, at this revision.
    pub fn overwritten(&mut self, name: &AgentName, revision: u64) {
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

    /// Returns what is to be done next for the living agents of this host, as the mirror has told of them.
    pub fn steps(&self, mirror: &RosterMirror) -> Vec<NameStep> {
        let living = mirror.living();
        living.into_iter().filter_map(|name| self.step(name, mirror)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::HostEntry;
    use crate::store::relay::{HostIdentity, Servers};
    use crate::store::{Fsync, LifeLock, LifeRecord, TeamDir, roster, test_team};
    use crate::wire::WallTime;
    use crate::wire::carried::Epoch;
    use crate::wire::roster::StartedBy;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn name(text: &str) -> AgentName {
        AgentName::mailbox(text).unwrap()
    }

    fn host(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn at(text: &str, term: u64) -> Placement {
        Placement::new(host(text), term)
    }

    /// A placement after one on another host.
    fn after(earlier: &str, text: &str, term: u64) -> Placement {
        at(earlier, term - 1).moved_to(host(text))
    }

    /// Returns the mirror of host `a` with a living carol; the lock is her life.
    fn with_living_carol(dir: &TeamDir) -> (RosterMirror, LifeLock) {
        roster::update(dir, Fsync::Never, |roster| {
            roster.enter("carol", 1.0);
        })
        .unwrap();
        let life = LifeLock::take(dir, &name("carol"), LifeRecord::of_this_process()).unwrap();
        let (epoch, servers) = (Epoch::of(1), Servers::default());
        let identity = HostIdentity {
            host: host("a"),
            team: "t".into(),
            epoch,
            starts: 1,
            labels: Vec::new(),
            servers,
        };
        let mut mirror = RosterMirror::new(dir.clone(), &identity);
        mirror.news().unwrap();
        (mirror, life)
    }

    #[test]
    fn a_living_agent_claims_its_name_once_and_a_dead_one_does_not() {
        let (_folder, dir) = test_team();
        let (mut mirror, life) = with_living_carol(&dir);
        let mut names = NamePlaces::new(host("a"), BTreeMap::new());
        assert_eq!(names.steps(&mirror), [NameStep::Create(name("carol"), at("a", 1))]);
        names.note(name("carol"), Some(at("a", 3)), 7);
        assert_eq!(names.steps(&mirror), []);
        // A carrier that has forgotten it gets it again, with its term.
        names.forgotten();
        assert_eq!(names.steps(&mirror), [NameStep::Create(name("carol"), at("a", 3))]);
        drop(life);
        mirror.news().unwrap();
        assert_eq!(names.steps(&mirror), []);
    }

    #[test]
    fn a_name_of_another_host_is_taken_over_only_from_one_that_is_heard_and_says_that_it_ended() {
        let (_folder, dir) = test_team();
        let (mut mirror, _life) = with_living_carol(&dir);
        let mut names = NamePlaces::new(host("a"), BTreeMap::new());
        names.note(name("carol"), Some(at("b", 1)), 7);
        mirror.set_away(&host("b"), None);
        let end = |is_certain| {
            [NameStep::End(Displaced { name: name("carol"), host: host("b"), is_certain })]
        };
        assert_eq!(names.steps(&mirror), end(false), "nothing is known of it");
        let entry = |alive| HostEntry { alive, entry: json!({}), version: None };
        mirror.note(&host("b"), &name("carol"), entry(true));
        assert_eq!(names.steps(&mirror), end(false), "it lives there");
        mirror.note(&host("b"), &name("carol"), entry(false));
        let take = [NameStep::Replace(name("carol"), after("b", "a", 2), 7)];
        assert_eq!(names.steps(&mirror), take);
        mirror.set_away(&host("b"), Some(WallTime::from(1.0)));
        assert_eq!(names.steps(&mirror), end(false), "it may live there");
        mirror.set_away(&host("b"), None);
        // It has no such member any more.
        mirror.note_names(&host("b"), BTreeSet::new(), None);
        assert_eq!(names.steps(&mirror), take);
        names.forgotten();
        assert_eq!(names.steps(&mirror), end(false), "its host will put it again");
        // It was here, and was placed on the other host later.
        names.note(name("carol"), Some(at("a", 2)), 8);
        names.note(name("carol"), Some(at("b", 3)), 9);
        mirror.note(&host("b"), &name("carol"), entry(true));
        mirror.note_names(&host("b"), BTreeSet::from(["carol".to_owned()]), None);
        assert_eq!(names.steps(&mirror), end(true));
    }

    #[test]
    fn a_name_of_a_host_that_was_given_up_is_taken_with_the_next_term() {
        let (_folder, dir) = test_team();
        let (mut mirror, _life) = with_living_carol(&dir);
        mirror.set_away(&host("b"), Some(WallTime::from(1.0)));
        let shared = KnownPlacements::default();
        let mut names = NamePlaces::sharing(host("a"), BTreeMap::new(), shared.clone());
        names.note(name("carol"), Some(at("b", 3)), 7);
        assert!(matches!(names.steps(&mirror)[..], [NameStep::End(_)]), "it may live there");
        shared.set_given_up(BTreeSet::from([host("b")]));
        assert_eq!(names.steps(&mirror), [NameStep::Replace(name("carol"), after("b", "a", 4), 7)]);
        // Nobody puts it again.
        names.forgotten();
        assert_eq!(names.steps(&mirror), [NameStep::Create(name("carol"), after("b", "a", 4))]);
        names.note(name("carol"), Some(at("a", 4)), 8);
        assert_eq!((names.steps(&mirror), shared.own_terms().of("carol")), (vec![], 4));
        assert_eq!(shared.newer_term("carol", 3, &host("b")), Some(4));
    }

    #[test]
    fn a_placement_of_before_does_not_count_and_is_replaced() {
        let (_folder, dir) = test_team();
        let (mut mirror, _life) = with_living_carol(&dir);
        let entry = HostEntry { alive: true, entry: json!({}), version: None };
        mirror.note(&host("b"), &name("carol"), entry);
        let had = BTreeMap::from([(name("carol"), 2)]);
        let mut names = NamePlaces::new(host("a"), had.clone());
        // The server was rolled back to a time at which she was on b.
        names.note(name("carol"), Some(at("b", 1)), 4);
        let again = [NameStep::Replace(name("carol"), at("a", 2), 4)];
        assert_eq!(names.steps(&mirror), again);
        names.note(name("carol"), Some(at("a", 2)), 5);
        assert_eq!(names.steps(&mirror), []);
        assert_eq!(*names.own_terms(), had);
    }

    #[test]
    fn a_name_is_placed_where_its_agent_cannot_run_elsewhere() {
        let (_folder, dir) = test_team();
        let (mut mirror, life) = with_living_carol(&dir);
        let carol = name("carol");
        let mut names = NamePlaces::new(host("a"), BTreeMap::new());
        let place = |names: &NamePlaces, mirror: &_| names.place_on(&carol, &host("b"), mirror);
        assert!(place(&names, &mirror).unwrap_err().contains("runs on a"));
        drop(life);
        mirror.news().unwrap();
        let create = NameStep::Create(carol.clone(), at("b", 1));
        assert_eq!(place(&names, &mirror), Ok(Some(create)));
        names.note(carol.clone(), Some(at("b", 1)), 7);
        assert_eq!(place(&names, &mirror), Ok(None), "it is placed there");
        names.note(carol.clone(), Some(at("c", 2)), 8);
        assert!(place(&names, &mirror).unwrap_err().contains("belongs to c"));
        mirror.set_away(&host("c"), None);
        mirror.note_names(&host("c"), BTreeSet::new(), None);
        let replace = NameStep::Replace(carol.clone(), after("c", "b", 3), 8);
        assert_eq!(place(&names, &mirror), Ok(Some(replace)));
    }

    #[test]
    fn an_ordered_agent_whose_name_was_taken_back_ends_and_one_of_a_person_does_not() {
        let (_folder, dir) = test_team();
        let (mut mirror, _life) = with_living_carol(&dir);
        let carol = name("carol");
        let mut lead = NamePlaces::new(host("b"), BTreeMap::new());
        lead.note(carol.clone(), Some(at("a", 1)), 7);
        let TakeBack::Step(NameStep::Replace(_, taken_back, 7)) =
            lead.take_back(&carol, &host("a"))
        else {
            panic!("it is not taken back");
        };
        assert_eq!((&taken_back.host, taken_back.term), (&host("b"), 2));
        assert_eq!(lead.take_back(&carol, &host("c")), TakeBack::Done, "it is not placed there");
        let mut names = NamePlaces::new(host("a"), BTreeMap::new());
        names.note(carol.clone(), Some(taken_back), 8);
        // No agent of that name is on b.
        mirror.set_away(&host("b"), None);
        mirror.note_names(&host("b"), BTreeSet::new(), None);
        let set_starter = |by| {
            roster::update(&dir, Fsync::Never, |roster| {
                roster.member_mut("carol").unwrap().started_by = by;
            })
            .unwrap();
        };
        set_starter(StartedBy::Lead);
        mirror.news().unwrap();
        let end = Displaced { name: carol.clone(), host: host("b"), is_certain: true };
        assert_eq!(names.steps(&mirror), [NameStep::End(end)]);
        set_starter(StartedBy::Hand);
        mirror.news().unwrap();
        let mut moved = after("b", "a", 3);
        moved.earlier = BTreeSet::from([host("b")]);
        assert_eq!(names.steps(&mirror), [NameStep::Replace(carol, moved, 8)]);
    }

    #[test]
    fn the_authority_places_names_where_they_are_free_and_only_for_those_that_may_ask() {
        let (_folder, dir) = test_team();
        let (mut mirror, _life) = with_living_carol(&dir);
        let (carol, bob, lead) = (name("carol"), name("bob"), AgentName::lead());
        let user = AgentName::user();
        let shared = KnownPlacements::default();
        let mut names = NamePlaces::sharing(host("a"), BTreeMap::new(), shared.clone());
        names.note(carol.clone(), Some(at("a", 1)), 5);
        let claim = |names: &NamePlaces, mirror: &_, name, wanted: Placement, by, may_lead| {
            let leads: &[&str] = if may_lead { &["a", by] } else { &["a"] };
            shared.set_leads(leads.iter().copied().map(host).collect());
            names.claim((name, wanted), &host(by), mirror)
        };
        let created = NameStep::Create(bob.clone(), at("b", 3));
        assert_eq!(claim(&names, &mirror, &bob, at("b", 3), "b", false), Ok(Some(created)));
        // Of a living agent, on another host, or the lead: no.
        assert!(claim(&names, &mirror, &carol, at("b", 9), "b", false).is_err());
        assert!(claim(&names, &mirror, &bob, at("c", 1), "b", false).is_err());
        assert!(claim(&names, &mirror, &lead, at("b", 1), "b", false).is_err());
        claim(&names, &mirror, &bob, at("c", 1), "b", true).unwrap();
        claim(&names, &mirror, &lead, at("b", 1), "b", true).unwrap();
        // Its own name again, after the carrier has forgotten it.
        names.note(bob.clone(), Some(at("b", 3)), 6);
        assert_eq!(claim(&names, &mirror, &bob, at("b", 1), "b", false), Ok(None));
        // It knows of more moves than this host, which has lost some; there are not so many.
        let higher = NameStep::Replace(bob.clone(), at("b", MOST_CLAIMED), 6);
        assert_eq!(claim(&names, &mirror, &bob, at("b", u64::MAX), "b", false), Ok(Some(higher)));
        assert!(claim(&names, &mirror, &user, at("b", 1), "b", false).is_err());
        names.overwritten(&bob, 8);
        let again = NameStep::Replace(bob.clone(), at("b", 3), 8);
        assert_eq!(claim(&names, &mirror, &bob, at("b", 1), "b", false), Ok(Some(again.clone())));
        assert_eq!(names.steps_for_others(), [again]);
        names.note(bob.clone(), Some(at("b", 3)), 9);
        assert_eq!(names.steps_for_others(), []);
        // A name of another host moves once its agent is known to have ended, or the host that has ordered it says so.
        assert!(claim(&names, &mirror, &bob, at("c", 1), "c", false).is_err());
        let taken = Placement { taken_from: Some(host("b")), ..at("c", 1) };
        assert!(claim(&names, &mirror, &bob, taken.clone(), "c", false).is_err());
        let next = Placement { taken_from: Some(host("b")), ..at("c", 4) };
        let next = NameStep::Replace(bob.clone(), next, 9);
        assert_eq!(claim(&names, &mirror, &bob, taken, "c", true), Ok(Some(next)));
        mirror.set_away(&host("b"), None);
        mirror.note_names(&host("b"), BTreeSet::new(), None);
        let moved = NameStep::Replace(bob.clone(), after("b", "c", 4), 9);
        assert_eq!(claim(&names, &mirror, &bob, at("c", 1), "c", false), Ok(Some(moved)));
    }

    #[test]
    fn an_authority_that_starts_anew_gives_no_name_away_that_the_carrier_has_forgotten() {
        let (_folder, dir) = test_team();
        let (mirror, _life) = with_living_carol(&dir);
        let bob = name("bob");
        let mut before = NamePlaces::new(host("a"), BTreeMap::new());
        before.note(bob.clone(), Some(at("b", 3)), 6);
        let mut names = NamePlaces::new(host("a"), BTreeMap::new());
        names.restore(before.all());
        let refused = names.claim((&bob, at("c", 9)), &host("c"), &mirror).unwrap_err();
        assert!(refused.contains("belongs to b"), "{refused}");
        let again = NameStep::Create(bob.clone(), at("b", 3));
        assert_eq!(names.steps_for_others(), std::slice::from_ref(&again));
        assert_eq!(names.claim((&bob, at("b", 3)), &host("b"), &mirror), Ok(Some(again)));
        // The name of a living agent of its own, which was not placed yet.
        assert!(names.claim((&name("carol"), at("c", 1)), &host("c"), &mirror).is_err());
        // The carrier knows of a later move than the file.
        names.note(bob.clone(), Some(at("c", 4)), 8);
        names.restore(before.all());
        assert_eq!(names.place_of(&bob), Some((at("c", 4), 8)));
    }
}
