//! The parts of `config.json` that some processes need often, which take less time and memory than the whole.

use super::cached::Cached;
use crate::store::{StoreError, TeamDir};
use crate::wire::roster::{Lead, Member, Status};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The names and statuses of the members. A sender needs no more, and they take a tenth of the memory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "ReadStandings")]
pub(crate) struct MemberStandings {
    lead: Option<LeadStanding>,
    members: Vec<MemberStanding>,
    /// The first position of each name.
    positions: BTreeMap<String, usize>,
}

/// The same as it stands in the file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadStandings {
    lead: Option<LeadStanding>,
    members: Vec<MemberStanding>,
}

impl From<ReadStandings> for MemberStandings {
    fn from(ReadStandings { lead, members }: ReadStandings) -> Self {
        let positions = members.iter().enumerate().rev();
        let positions = positions.map(|(at, member)| (member.name.clone(), at)).collect();
        Self { lead, members, positions }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct LeadStanding {
    host: Option<String>,
    away_since: Option<WallTime>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct MemberStanding {
    name: String,
    status: Status,
    host: Option<String>,
    alive: Option<bool>,
    away_since: Option<WallTime>,
    given_up: bool,
}

/// The part of an entry that a sender needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) status: Status,
    /// Whether it runs on another host.
    pub(crate) is_remote: bool,
    /// Whether its host has said that its process is alive.
    pub(crate) is_alive_there: bool,
}

impl MemberStandings {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    fn member(&self, name: &str) -> Option<&MemberStanding> {
        self.members.get(*self.positions.get(name)?)
    }

    /// Whether there is an agent of this name, the lead included.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        if name == AgentName::lead().as_str() {
            self.lead.is_some()
        } else {
            self.member(name).is_some()
        }
    }

    /// Returns the other host on which an agent, or the lead, runs, with the time since which it is not heard.
    pub(crate) fn place_elsewhere(&self, name: &str) -> Option<(&str, Option<WallTime>)> {
        let (host, away_since) = if name == AgentName::lead().as_str() {
            let lead = self.lead.as_ref()?;
            (&lead.host, lead.away_since)
        } else {
            let member = self.member(name)?;
            (&member.host, member.away_since)
        };
        Some((host.as_deref()?, away_since))
    }

    /// Returns the host of a member if it was given up.
    pub(crate) fn given_up_host(&self, name: &str) -> Option<&str> {
        let member = self.member(name)?;
        member.host.as_deref().filter(|_| member.given_up)
    }

    pub(crate) fn standing(&self, name: &str) -> Option<Standing> {
        let member = self.member(name)?;
        let (status, is_remote) = (member.status, member.host.is_some());
        let is_alive_there = member.alive.unwrap_or_default();
        Some(Standing { status, is_remote, is_alive_there })
    }
}

/// The agents of this host, each entry as it stands in the file.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "ReadAgents")]
pub(crate) struct OwnAgents {
    pub(crate) lead: Option<Value>,
    /// The entry of each member, with its name.
    pub(crate) members: Vec<(String, Value)>,
}

/// The agents of all hosts as they stand in the file, not parsed: there may be thousands on others.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadAgents {
    lead: Option<Box<RawValue>>,
    members: Vec<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostOfAgent {
    host: Option<String>,
}

impl HostOfAgent {
    fn is_elsewhere(entry: &RawValue) -> serde_json::Result<bool> {
        Ok(serde_json::from_str::<Self>(entry.get())?.host.is_some())
    }
}

impl TryFrom<ReadAgents> for OwnAgents {
    type Error = serde_json::Error;

    fn try_from(ReadAgents { lead, members }: ReadAgents) -> Result<Self, Self::Error> {
        let mut own = Self::default();
        if let Some(lead) = lead
            && !HostOfAgent::is_elsewhere(&lead)?
        {
            let lead: WithUnknownFields<Lead> = serde_json::from_str(lead.get())?;
            own.lead = Some(serde_json::to_value(lead)?);
        }
        for member in members {
            if !HostOfAgent::is_elsewhere(&member)? {
                let member: WithUnknownFields<Member> = serde_json::from_str(member.get())?;
                own.members.push((member.name.clone(), serde_json::to_value(member)?));
            }
        }
        Ok(own)
    }
}

/// The place of the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeadPlace {
    /// There was none yet.
    Nowhere,
    /// This host.
    Here,
    /// Another host, of this name.
    On(String),
}

/// The place of the lead for a process that asks for it often.
#[derive(Debug)]
pub struct KnownLeadPlace {
    dir: TeamDir,
    roster: Cached<LeadOnly>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeadOnly {
    lead: Option<LeadStanding>,
}

impl KnownLeadPlace {
    /// Creates it without a look.
    pub fn of(dir: TeamDir) -> Self {
        Self { roster: Cached::of(&dir), dir }
    }

    /// Returns the place as the roster has it now.
    ///
    /// # Errors
    /// The roster cannot be read.
    pub fn current(&mut self) -> Result<LeadPlace, StoreError> {
        let lead = &self.roster.current(&self.dir)?.lead;
        Ok(match lead.as_ref().map(|lead| &lead.host) {
            None => LeadPlace::Nowhere,
            Some(None) => LeadPlace::Here,
            Some(Some(host)) => LeadPlace::On(host.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::atomic::replace;
    use crate::store::roster::update;
    use crate::store::{Fsync, test_team};
    use crate::wire::roster::Roster;

    #[test]
    fn the_senders_view_of_the_roster_equals_the_full_one() {
        let (_folder, dir) = test_team();
        let (mut all, mut some) =
            (Cached::<WithUnknownFields<Roster>>::of(&dir), Cached::<MemberStandings>::of(&dir));
        let mut same = |count: usize| {
            let roster = serde_json::to_value(all.current(&dir).unwrap()).unwrap();
            let expected: MemberStandings = serde_json::from_value(roster).unwrap();
            assert_eq!(*some.current(&dir).unwrap(), expected);
            assert_eq!(expected.names().count(), count);
            expected
        };
        same(0);
        update(&dir, Fsync::Never, |roster| {
            roster.enter("alice", 1.0).status = Status::Idle;
            roster.enter("bob", 2.0).status = Status::Failed;
        })
        .unwrap();
        let two = same(2);
        let status = |of: &MemberStandings, name| of.standing(name).map(|standing| standing.status);
        assert_eq!([status(&two, "alice"), status(&two, "carol")], [Some(Status::Idle), None]);
        let text = br#"{"future":[{"name":"x"}],"members":[{"name":"alice","mood":{"status":"idle"}},{}]}"#;
        replace(&dir.config(), text, Fsync::Never).unwrap();
        assert_eq!(status(&same(2), "alice"), Some(Status::Starting));
        replace(&dir.config(), b"{", Fsync::Never).unwrap();
        assert_eq!(same(2), two, "from the copy");
    }

    #[test]
    fn the_agents_of_this_host_are_those_of_the_full_roster_without_a_host() {
        let (_folder, dir) = test_team();
        let mut own = Cached::<OwnAgents>::of(&dir);
        let mut lead = KnownLeadPlace::of(dir.clone());
        assert_eq!(*own.current(&dir).unwrap(), OwnAgents::default());
        assert_eq!(lead.current().unwrap(), LeadPlace::Nowhere);
        update(&dir, Fsync::Never, |roster| {
            roster.enter("alice", 1.0).status = Status::Idle;
            roster.enter("bob", 2.0).host = Some("gpu1".into());
            roster.lead = Some(Lead::default().into());
        })
        .unwrap();
        let all = crate::store::roster::read(&dir).unwrap();
        let expected = OwnAgents {
            lead: all.lead.as_ref().map(|lead| serde_json::to_value(lead).unwrap()),
            members: vec![("alice".into(), serde_json::to_value(&all.members[0]).unwrap())],
        };
        assert_eq!(*own.current(&dir).unwrap(), expected);
        assert_eq!(lead.current().unwrap(), LeadPlace::Here);
        let text = br#"{"lead":{"host":"gpu1"},"members":[{"name":"alice","mood":{"a":1}}]}"#;
        replace(&dir.config(), text, Fsync::Never).unwrap();
        let read = own.current(&dir).unwrap();
        assert_eq!((&read.lead, &read.members[0].1["mood"]["a"]), (&None, &Value::from(1)));
        assert_eq!(lead.current().unwrap(), LeadPlace::On("gpu1".into()));
        replace(&dir.config(), br#"{"lead":null,"members":[{"name":3}]}"#, Fsync::Never).unwrap();
        assert_eq!(own.current(&dir).unwrap().members.len(), 1, "damaged: from the copy");
    }

    #[test]
    fn a_roster_that_cannot_be_read_is_not_taken_for_the_one_of_before() {
        let (_folder, dir) = test_team();
        let mut own = Cached::<OwnAgents>::of(&dir);
        update(&dir, Fsync::Never, |roster| {
            roster.enter("alice", 1.0);
        })
        .unwrap();
        assert_eq!(own.current(&dir).unwrap().members.len(), 1);
        let text = br#"{"version":99,"members":{"of":"a later version"}}"#;
        replace(&dir.config(), text, Fsync::Never).unwrap();
        for _ in 0..2 {
            assert!(matches!(own.current(&dir), Err(StoreError::Newer { .. })));
        }
    }
}
