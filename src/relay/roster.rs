//! The members of all hosts in the roster of each: a host tells the others of its own members, and writes what the others tell
//! into its `config.json`.
//!
//! *Invariant:* an entry is written by the host on which its agent runs, and by nobody else. An entry with `host` is a copy.

use super::own_entries::{HostEntry, OwnEntries, runs_here};
use super::{RelayError, link::Recipient, placements::KnownPlacements};
use crate::store::relay::HostIdentity;
use crate::store::{Fsync, TeamDir, roster};
use crate::wire::carried::{HostName, ValueVersion};
use crate::wire::roster::{Lead, Member, Roster, StartedBy};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The word before the names in the keys of entries.
const KEY: &str = "member";

/// Returns the key under which a host tells of its member.
pub fn member_key(host: &HostName, name: &AgentName) -> String {
    format!("{KEY}.{host}.{name}")
}

/// Returns the host and the member of a key; `None` if it is not a key of an entry.
pub fn parse_member_key(key: &str) -> Option<(HostName, AgentName)> {
    let (host, name) = key.strip_prefix(KEY)?.strip_prefix('.')?.split_once('.')?;
    Some((HostName::parse(host).ok()?, AgentName::mailbox(name).ok()?))
}

/// The entries of all hosts.
#[derive(Debug)]
pub struct RosterMirror {
    dir: TeamDir,
    host: HostName,
    own: OwnEntries,
    others: BTreeMap<HostName, OtherHost>,
    placements: KnownPlacements,
}

/// Another host, as far as it is known.
#[derive(Debug, Default)]
struct OtherHost {
    entries: BTreeMap<AgentName, OtherEntry>,
    /// The names of all its members, as it has said last. A carrier that forgets has no entry for them, and they are still
    /// there.
    listed: Option<BTreeSet<String>>,
    listed_version: Option<ValueVersion>,
    away_since: Option<WallTime>,
    /// Whether it was heard since the start of this relay.
    is_heard: bool,
}

/// An agent of another host.
#[derive(Debug)]
struct OtherEntry {
    alive: bool,
    version: Option<ValueVersion>,
    /// Its entry, but for what only this host knows of it; `None` if this version does not understand it.
    agent: Option<OtherAgent>,
}

#[derive(Debug)]
enum OtherAgent {
    Lead(Box<WithUnknownFields<Lead>>),
    Member(Box<WithUnknownFields<Member>>),
}

impl OtherEntry {
    fn new(host: &HostName, name: &AgentName, told: HostEntry) -> Self {
        let HostEntry { alive, entry, version } = told;
        let agent = if name.is_lead() {
            lead_of(host, entry).map(|lead| OtherAgent::Lead(Box::new(lead)))
        } else {
            member_of(host, name, entry).map(|member| OtherAgent::Member(Box::new(member)))
        };
        Self { alive, version, agent: agent.ok() }
    }
}

impl RosterMirror {
    /// Creates the mirror of a host that has told nothing yet.
    pub fn new(dir: TeamDir, identity: &HostIdentity) -> Self {
        Self::sharing(dir, identity, KnownPlacements::default())
    }

    /// Creates the same, which goes by these placements.
    pub fn sharing(dir: TeamDir, identity: &HostIdentity, placements: KnownPlacements) -> Self {
        let own = OwnEntries::new(dir.clone(), identity);
        Self { dir, host: identity.host.clone(), own, others: BTreeMap::new(), placements }
    }

    /// Returns the version of the next value that this host tells.
    pub fn next_version(&mut self) -> ValueVersion {
        self.own.next_version()
    }

    /// Returns the entries of this host that the others do not know yet, each with its name; `None` for one that is gone.
    ///
    /// # Errors
    /// The roster or a life lock cannot be read.
    pub fn news(&mut self) -> Result<Vec<(AgentName, Option<HostEntry>)>, RelayError> {
        self.own.news()
    }

    /// Notes that the others may not know one entry as it is. It stays among the names of this host.
    pub fn tell_again(&mut self, name: &AgentName) {
        self.own.tell_again(name);
    }

    /// Whether there are entries of this host that the others may not know.
    pub fn has_untold(&self) -> bool {
        self.own.has_untold()
    }

    /// Notes that all values of the bucket are read now: what it had before of this host does not count.
    pub fn begin_reading(&mut self) {
        self.own.begin_reading();
    }

    /// Notes that all values were read. The entries of this host that the bucket does not have as they were told are news again.
    pub fn end_reading(&mut self) {
        self.own.end_reading();
    }

    /// Notes what a host tells of its member, unless it is older than what is known.
    pub fn note(&mut self, host: &HostName, name: &AgentName, entry: HostEntry) {
        if *host == self.host {
            return self.own.note(name, entry.version);
        }
        let entries = &mut self.others.entry(host.clone()).or_default().entries;
        let known = entries.get(name).and_then(|known| known.version.as_ref());
        if !is_outdated(entry.version.as_ref(), known) {
            entries.insert(name.clone(), OtherEntry::new(host, name, entry));
        }
    }

    /// Notes that the bucket has no entry of a member of this host any more. One that is there is news again.
    pub fn note_removed(&mut self, name: &AgentName) {
        self.own.note_removed(name);
    }

    /// Whether another host tells of an agent of this name, and no third one does.
    pub fn is_only_on(&self, name: &AgentName, host: &HostName) -> bool {
        let mut with = self.others.iter().filter(|(_, other)| other.entries.contains_key(name));
        with.next().is_some_and(|(first, _)| first == host) && with.next().is_none()
    }

    /// Notes the names of all members of another host, unless they are older than those that are known. Its other entries
    /// are gone.
    pub fn note_names(
        &mut self,
        host: &HostName,
        names: BTreeSet<String>,
        version: Option<ValueVersion>,
    ) {
        if *host == self.host {
            return;
        }
        let other = self.others.entry(host.clone()).or_default();
        if is_outdated(version.as_ref(), other.listed_version.as_ref()) {
            return;
        }
        other.entries.retain(|name, _| names.contains(name.as_str()));
        (other.listed, other.listed_version) = (Some(names), version);
    }

    /// Returns the version of what a host has told last of itself.
    pub fn version_of(&self, host: &HostName) -> Option<&ValueVersion> {
        self.others.get(host)?.listed_version.as_ref()
    }

    /// Returns the names of the members of this host, also of those whose entries are not told yet.
    pub fn own_names(&self) -> BTreeSet<String> {
        self.own.names()
    }

    /// Returns the agents of this host whose names it claims, as the others know them: those that are alive, and those that have
    /// ended before it could.
    pub fn claiming(&self) -> Vec<&AgentName> {
        self.own.claiming()
    }

    /// Notes which names are placed on this host: those of its agents that have ended are not claimed again.
    pub fn note_claimed(&mut self, is_placed_here: impl Fn(&AgentName) -> bool) {
        self.own.note_claimed(is_placed_here);
    }

    /// Whether an agent of this host was alive when the roster was read last.
    pub fn is_alive_here(&self, name: &AgentName) -> bool {
        self.own.is_alive(name)
    }

    /// Whether an agent of this host was started by the order of a lead on another one.
    pub fn is_ordered(&self, name: &AgentName) -> bool {
        let has_lead = self.is_alive_here(&AgentName::lead());
        let started_by = self.own.field(name, "started_by");
        let started_by = started_by.and_then(|by| StartedBy::deserialize(by).ok());
        !has_lead && started_by == Some(StartedBy::Lead)
    }

    /// Whether a host that is heard says that its agent of this name has ended, or that it has none.
    pub fn has_ended_on(&self, name: &AgentName, host: &HostName) -> bool {
        let is_heard = |other: &&OtherHost| other.is_heard && other.away_since.is_none();
        let Some(other) = self.others.get(host).filter(is_heard) else { return false };
        match other.entries.get(name) {
            Some(entry) => !entry.alive,
            None => other.listed.as_ref().is_some_and(|listed| !listed.contains(name.as_str())),
        }
    }

    /// Whether a host has said last that its agent of this name is alive.
    pub fn is_alive_on(&self, name: &AgentName, host: &HostName) -> bool {
        let told = self.others.get(host).and_then(|other| other.entries.get(name));
        told.is_some_and(|told| told.alive)
    }

    /// Notes the time since which a host is not heard; `None` if it is heard.
    pub fn set_away(&mut self, host: &HostName, since: Option<WallTime>) {
        let other = self.others.entry(host.clone()).or_default();
        other.away_since = since;
        other.is_heard |= since.is_none();
    }

    /// Writes the entries of the other hosts into the roster, and removes those that their hosts do not have any more.
    /// Returns the members of other hosts.
    ///
    /// # Errors
    /// The roster cannot be read or written.
    pub fn write(&self) -> Result<BTreeMap<AgentName, Recipient>, RelayError> {
        roster::update(&self.dir, Fsync::Always, |roster| {
            self.remove_gone(roster);
            let mut positions = positions_of(roster);
            for (host, other) in &self.others {
                let is_given_up = self.placements.is_given_up(host);
                for (name, told) in &other.entries {
                    if self.is_elsewhere(name, host) {
                        continue;
                    }
                    let alive = told.alive && !is_given_up;
                    match &told.agent {
                        Some(OtherAgent::Member(member)) => {
                            let known = positions.get(name.as_str());
                            let known = known.and_then(|at| roster.members.get(*at));
                            let is_news = known.is_none_or(|known| {
                                !is_as_told(known, member, alive)
                                    && (alive || self.yields_member(known, name, host))
                            });
                            if is_news && !self.runs_here_too(name, host, alive)? {
                                write_member(roster, &mut positions, member, alive);
                            }
                        }
                        Some(OtherAgent::Lead(lead)) => {
                            let known = roster.lead.as_ref().filter(|_| !alive);
                            let is_news = known.is_none_or(|it| self.yields_lead(it, name, host));
                            if is_news && !self.runs_here_too(name, host, alive)? {
                                write_lead(roster, lead, alive);
                            }
                        }
                        None => {}
                    }
                }
            }
            self.mark_away(roster);
            Ok::<_, RelayError>(recipients_of(roster))
        })?
    }

    /// Whether an agent of this name runs on this host. It is asked with the roster's lock: an agent that starts here takes its
    /// life lock, and then its entry under this lock.
    fn runs_here_too(
        &self,
        name: &AgentName,
        host: &HostName,
        alive: bool,
    ) -> Result<bool, RelayError> {
        let is_alive_here = runs_here(&self.dir, name)?;
        if is_alive_here && alive {
            tracing::warn!(%name, %host, "the name is in use on this host and on another one");
        }
        Ok(is_alive_here)
    }

    /// Whether a name is placed on another host than the one that tells of it, which does not count then: it would get the mail of
    /// an agent that has ended on its own host. The lead is told of only by a host that may have it.
    fn is_elsewhere(&self, name: &AgentName, host: &HostName) -> bool {
        let place = self.placements.place_of(name.as_str());
        place.is_some_and(|place| place.host != *host)
            || (name.is_lead() && !self.placements.may_lead(host))
    }

    /// Whether the entry of a member gives way to that of one that has ended on another host. Of two hosts, the one on which the
    /// member is alive has it, or else the one on which its name was placed last; but what it has left to do here stays known.
    fn yields_member(&self, known: &Member, name: &AgentName, host: &HostName) -> bool {
        match &known.host {
            Some(of) if of == host.as_str() || known.alive != Some(true) => true,
            Some(_) => self.is_placed_on(name, host),
            None => known.work.is_none() && self.yields_own(name, &known.incarnation, host),
        }
    }

    /// The same of the lead. The end of one of this host is known here.
    fn yields_lead(&self, known: &Lead, name: &AgentName, host: &HostName) -> bool {
        known.host.is_some() || self.yields_own(name, &known.incarnation, host)
    }

    /// Whether an agent of this host had its name, and another host has had it since.
    fn yields_own(&self, name: &AgentName, incarnation: &str, host: &HostName) -> bool {
        self.own.is_claimed(name, incarnation) && self.is_placed_on(name, host)
    }

    fn is_placed_on(&self, name: &AgentName, host: &HostName) -> bool {
        self.placements.place_of(name.as_str()).is_some_and(|place| place.host == *host)
    }

    fn remove_gone(&self, roster: &mut Roster) {
        let is_gone = |name: &str, host: &str| {
            let other = HostName::parse(host).ok().and_then(|host| self.others.get(&host));
            let listed = other.and_then(|other| other.listed.as_ref());
            listed.is_some_and(|listed| !listed.contains(name))
        };
        roster.members.retain(|member| {
            member.host.as_deref().is_none_or(|host| !is_gone(&member.name, host))
        });
        let lead_host = roster.lead.as_ref().and_then(|lead| lead.host.clone());
        if lead_host.is_some_and(|host| is_gone(AgentName::lead().as_str(), &host)) {
            roster.lead = None;
        }
    }

    /// Notes at every entry since when its host is not heard, or that it was given up.
    fn mark_away(&self, roster: &mut Roster) {
        // That of a host that was neither heard nor missed yet stays.
        let away_since = |host: &str, known: Option<WallTime>| {
            let host = HostName::parse(host).ok()?;
            match self.others.get(&host) {
                Some(other) if other.is_heard || other.away_since.is_some() => other.away_since,
                Some(_) | None => known,
            }
        };
        let given_up = self.placements.given_up();
        let is_given_up = |host: &str| given_up.iter().any(|it| it.as_str() == host);
        for member in &mut roster.members {
            let Some(host) = &member.host else { continue };
            let (since, given_up) = (away_since(host, member.away_since), is_given_up(host));
            (member.away_since, member.given_up) = (since.filter(|_| !given_up), given_up);
            member.alive = if given_up { Some(false) } else { member.alive };
        }
        if let Some(lead) = &mut roster.lead
            && let Some(host) = &lead.host
        {
            let (since, given_up) = (away_since(host, lead.away_since), is_given_up(host));
            (lead.away_since, lead.given_up) = (since.filter(|_| !given_up), given_up);
            lead.alive = if given_up { Some(false) } else { lead.alive };
        }
    }
}

/// Whether a value of a host is older than the one that is known: the carrier was put back to an earlier state.
fn is_outdated(told: Option<&ValueVersion>, known: Option<&ValueVersion>) -> bool {
    told.zip(known).is_some_and(|(told, known)| told.is_before(known))
}

/// Returns the lead of another host as the rosters of the others have it.
fn lead_of(host: &HostName, entry: Value) -> serde_json::Result<WithUnknownFields<Lead>> {
    let mut lead = serde_json::from_value::<WithUnknownFields<Lead>>(entry)?;
    (lead.remote_pid, lead.pid) = (lead.pid, None);
    lead.host = Some(host.to_string());
    Ok(lead)
}

/// Returns a member of another host as the rosters of the others have it.
fn member_of(
    host: &HostName,
    name: &AgentName,
    entry: Value,
) -> serde_json::Result<WithUnknownFields<Member>> {
    let mut member = serde_json::from_value::<WithUnknownFields<Member>>(entry)?;
    member.name = name.to_string();
    (member.remote_pid, member.pid) = (member.pid, None);
    member.host = Some(host.to_string());
    // Only its host can open these.
    (member.work, member.sandbox) = (None, None);
    Ok(member)
}

fn write_lead(roster: &mut Roster, told: &WithUnknownFields<Lead>, alive: bool) {
    let mut lead = told.clone();
    lead.alive = Some(alive);
    roster.lead = Some(lead);
}

/// Returns the position of each member.
fn positions_of(roster: &Roster) -> BTreeMap<String, usize> {
    let names = roster.members.iter().map(|member| member.name.clone());
    names.zip(0..).collect()
}

/// Whether the entry of a member is what its host has told last.
fn is_as_told(
    known: &WithUnknownFields<Member>,
    told: &WithUnknownFields<Member>,
    alive: bool,
) -> bool {
    let mut told = told.clone();
    (told.alive, told.away_since, told.given_up) = (Some(alive), known.away_since, known.given_up);
    told == *known
}

fn write_member(
    roster: &mut Roster,
    positions: &mut BTreeMap<String, usize>,
    told: &WithUnknownFields<Member>,
    alive: bool,
) {
    let position = positions.get(&told.name).copied();
    let there = position.and_then(|at| roster.members.get_mut(at));
    let mut member = told.clone();
    member.alive = Some(alive);
    match there {
        Some(entry) => *entry = member,
        None => {
            positions.insert(member.name.clone(), roster.members.len());
            roster.members.push(member);
        }
    }
}

/// Returns the members of other hosts, and the person if the lead is on another one.
fn recipients_of(roster: &Roster) -> BTreeMap<AgentName, Recipient> {
    let mut recipients = BTreeMap::new();
    let recipient = |host: &str, incarnation: &str, alive: Option<bool>| {
        let host = HostName::parse(host).ok()?;
        let is_alive = alive.unwrap_or_default();
        Some(Recipient { host, incarnation: incarnation.into(), is_alive })
    };
    for member in &roster.members {
        if let Ok(name) = AgentName::member(&member.name)
            && let Some(host) = &member.host
            && let Some(recipient) = recipient(host, &member.incarnation, member.alive)
        {
            recipients.insert(name, recipient);
        }
    }
    if let Some(lead) = &roster.lead
        && let Some(host) = &lead.host
        && let Some(lead) = recipient(host, &lead.incarnation, lead.alive)
    {
        // The person is where the lead is.
        recipients.insert(AgentName::user(), lead.clone());
        recipients.insert(AgentName::lead(), lead);
    }
    recipients
}
