//! The placement of names, one step after the other.

use super::names::{Displaced, MOST_CLAIMED, NamePlaces, NameStep, TakeBack};
use super::placements::{KnownPlacements, Placement};
use super::roster::RosterMirror;
use crate::relay::HostEntry;
use crate::store::relay::{HostIdentity, Servers};
use crate::store::{Fsync, LifeLock, LifeRecord, TeamDir, roster, test_team};
use crate::wire::AgentName;
use crate::wire::WallTime;
use crate::wire::carried::Epoch;
use crate::wire::carried::HostName;
use crate::wire::roster::StartedBy;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

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
    living_carol(dir, &KnownPlacements::default())
}

/// Returns the same, where the mirror goes by these placements.
fn living_carol(dir: &TeamDir, placements: &KnownPlacements) -> (RosterMirror, LifeLock) {
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
    let mut mirror = RosterMirror::sharing(dir.clone(), &identity, placements.clone());
    mirror.news().unwrap();
    (mirror, life)
}

#[test]
fn an_agent_claims_its_name_until_it_has_it_or_has_ended_since() {
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
fn an_agent_that_has_ended_before_its_name_was_claimed_has_it_once_and_is_not_ended_for_it() {
    let (_folder, dir) = test_team();
    let (mut mirror, life) = with_living_carol(&dir);
    let mut names = NamePlaces::new(host("a"), BTreeMap::new());
    drop(life);
    mirror.news().unwrap();
    assert_eq!(names.steps(&mirror), [NameStep::Create(name("carol"), at("a", 1))]);
    names.note(name("carol"), Some(at("b", 1)), 7);
    mirror.set_away(&host("b"), None);
    assert_eq!(names.steps(&mirror), [], "it may live there, and nothing of it is left here");
    let entry = HostEntry { alive: false, entry: json!({}), version: None };
    mirror.note(&host("b"), &name("carol"), entry);
    assert_eq!(
        names.steps(&mirror),
        [NameStep::Replace(name("carol"), after("b", "a", 2), 7)],
        "it was the last one of this name"
    );
    names.note(name("carol"), Some(after("b", "a", 2)), 8);
    mirror.note_claimed(|name| names.is_here(name));
    names.note(name("carol"), Some(after("a", "b", 3)), 9);
    assert_eq!(names.steps(&mirror), [], "it is not the last one any more");
}

#[test]
fn the_last_agent_of_a_name_stands_in_the_roster_also_if_it_ended_before_it_was_heard_of() {
    let (_folder, dir) = test_team();
    let shared = KnownPlacements::default();
    let (mut mirror, life) = living_carol(&dir, &shared);
    let carol = || roster::read(&dir).unwrap().member("carol").unwrap().clone();
    let own = carol();
    let entry = json!({ "name": "carol", "incarnation": "of-b" });
    mirror.note(&host("b"), &name("carol"), HostEntry { alive: false, entry, version: None });
    drop(life);
    mirror.news().unwrap();
    mirror.write().unwrap();
    assert_eq!(carol(), own, "nobody knows which one was the last");
    shared.note(&name("carol"), &at("b", 1));
    mirror.write().unwrap();
    assert_eq!(carol(), own, "it has started since, and will claim its name");
    mirror.note_claimed(|_| true);
    roster::update(&dir, Fsync::Never, |roster| {
        roster.member_mut("carol").unwrap().incarnation = "next".into();
    })
    .unwrap();
    mirror.write().unwrap();
    assert_eq!(carol().host, None, "it has started again");
    mirror.news().unwrap();
    mirror.note_claimed(|_| true);
    mirror.write().unwrap();
    assert_eq!((carol().host.as_deref(), &*carol().incarnation), (Some("b"), "of-b"));
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
    let TakeBack::Step(NameStep::Replace(_, taken_back, 7)) = lead.take_back(&carol, &host("a"))
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

#[test]
fn a_placement_that_a_reading_of_the_carrier_does_not_bring_is_put_again() {
    let mut names = NamePlaces::new(host("a"), BTreeMap::new());
    names.note(name("carol"), Some(at("b", 2)), 7);
    names.note(name("dave"), Some(at("b", 1)), 8);
    // The server was put back to before carol was placed.
    names.begin_reading();
    names.note(name("dave"), Some(at("b", 1)), 5);
    names.end_reading();
    assert_eq!(names.steps_for_others(), [NameStep::Create(name("carol"), at("b", 2))]);
    names.note(name("carol"), Some(at("b", 2)), 9);
    assert_eq!(names.steps_for_others(), []);
    names.end_reading();
    assert_eq!(names.steps_for_others(), [], "there was no other reading");
}
