//! The news of this host for the others: its own members, and which of their entries the bucket does not have.

use super::RelayError;
use crate::store::relay::HostIdentity;
use crate::store::roster::{Cached, OwnAgents};
use crate::store::{TeamDir, liveness};
use crate::wire::AgentName;
use crate::wire::carried::ValueVersion;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One member, as its host tells the others of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Whether its process is alive.
    pub alive: bool,
    /// Its entry in the roster of its host.
    pub entry: Value,
    /// The version of what is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ValueVersion>,
}

impl HostEntry {
    /// Whether both tell the same of the agent, whatever their versions.
    fn is_same_agent(&self, other: &Self) -> bool {
        (other.alive, &other.entry) == (self.alive, &self.entry)
    }

    /// Returns the incarnation of the agent; `None` of one that has none.
    fn incarnation(&self) -> Option<&str> {
        self.entry.get("incarnation")?.as_str()
    }
}

/// The entries of this host.
#[derive(Debug)]
pub(super) struct OwnEntries {
    dir: TeamDir,
    roster: Cached<OwnAgents>,
    /// The version of what was told last.
    version: ValueVersion,
    /// The entries as they were read last, each with the version with which it was told.
    entries: BTreeMap<AgentName, HostEntry>,
    /// The names whose entries the others do not know as they are, or not that they are gone.
    untold: BTreeSet<AgentName>,
    /// The names of the agents that have started since the names of this host were claimed, also of those that have ended.
    unclaimed: BTreeSet<AgentName>,
    /// Whether the roster was read.
    is_read: bool,
    /// The versions that the bucket has given since a reading of all its values began; `None` if there is none.
    reading: Option<BTreeMap<AgentName, Option<ValueVersion>>>,
}

impl OwnEntries {
    /// Creates those of a host that has told nothing yet.
    pub(super) fn new(dir: TeamDir, identity: &HostIdentity) -> Self {
        let HostIdentity { epoch, starts, .. } = identity;
        let version = ValueVersion { epoch: epoch.clone(), start: *starts, number: 0 };
        Self {
            roster: Cached::of(&dir),
            dir,
            version,
            entries: BTreeMap::new(),
            untold: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            is_read: false,
            reading: None,
        }
    }

    /// Returns the version of the next value that this host tells.
    pub(super) fn next_version(&mut self) -> ValueVersion {
        self.version.number += 1;
        self.version.clone()
    }

    /// Returns the entries that the others do not know yet, each with its name; `None` for one that is gone.
    ///
    /// # Errors
    /// The roster or a life lock cannot be read.
    pub(super) fn news(&mut self) -> Result<Vec<(AgentName, Option<HostEntry>)>, RelayError> {
        let mut now = self.read()?;
        let mut news = Vec::new();
        for (name, entry) in &mut now {
            let told = self.entries.get(name).filter(|told| told.is_same_agent(entry));
            match told.filter(|_| !self.untold.contains(name)) {
                Some(told) => entry.version.clone_from(&told.version),
                None => {
                    entry.version = Some(self.next_version());
                    news.push((name.clone(), Some(entry.clone())));
                }
            }
        }
        self.untold.extend(self.entries.keys().cloned());
        let gone = self.untold.iter().filter(|name| !now.contains_key(name));
        news.extend(gone.map(|name| (name.clone(), None)));
        self.note_starts(&now);
        (self.entries, self.untold) = (now, BTreeSet::new());
        Ok(news)
    }

    /// Notes which agents have started since the roster was read before. One that has ended before that, and was never read,
    /// has had its name as well as any other.
    fn note_starts(&mut self, now: &BTreeMap<AgentName, HostEntry>) {
        self.unclaimed.retain(|name| now.contains_key(name));
        let has_started = |(name, entry): &(&AgentName, &HostEntry)| match self.entries.get(*name) {
            Some(before) => before.incarnation() != entry.incarnation(),
            None => self.is_read || entry.alive,
        };
        self.unclaimed.extend(now.iter().filter(has_started).map(|(name, _)| name.clone()));
        self.is_read = true;
    }

    /// Notes the names that are placed on this host now, of those for which it is asked.
    pub(super) fn note_claimed(&mut self, is_placed_here: impl Fn(&AgentName) -> bool) {
        self.unclaimed.retain(|name| !is_placed_here(name));
    }

    /// Whether this entry of the roster is one that was read, of an agent whose name was claimed.
    pub(super) fn is_claimed(&self, name: &AgentName, incarnation: &str) -> bool {
        let own = self.entries.get(name).filter(|_| !self.unclaimed.contains(name));
        own.is_some_and(|own| own.incarnation().unwrap_or_default() == incarnation)
    }

    fn read(&mut self) -> Result<BTreeMap<AgentName, HostEntry>, RelayError> {
        let OwnAgents { lead, members } = self.roster.current(&self.dir)?;
        let lead = lead.iter().map(|lead| (AgentName::lead(), lead));
        let members =
            members.iter().filter_map(|(name, entry)| Some((AgentName::member(name).ok()?, entry)));
        let mut own = BTreeMap::new();
        for (name, entry) in lead.chain(members) {
            let alive = runs_here(&self.dir, &name)?;
            own.insert(name, HostEntry { alive, entry: entry.clone(), version: None });
        }
        Ok(own)
    }

    /// Notes that the others may not know one entry as it is. It stays among the names of this host.
    pub(super) fn tell_again(&mut self, name: &AgentName) {
        self.untold.insert(name.clone());
    }

    /// Whether there are entries that the others may not know.
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Notes that all values of the bucket are read now: what it had before does not count.
    pub(super) fn begin_reading(&mut self) {
        self.reading = Some(BTreeMap::new());
    }

    /// Notes the version of an entry that the bucket has. It may have it though that was not heard in time.
    pub(super) fn note(&mut self, name: &AgentName, version: Option<ValueVersion>) {
        if self.entries.get(name).is_some_and(|own| own.version == version) {
            self.untold.remove(name);
        }
        if let Some(reading) = &mut self.reading {
            reading.insert(name.clone(), version);
        }
    }

    /// Notes that the bucket has no entry of a name any more.
    pub(super) fn note_removed(&mut self, name: &AgentName) {
        if let Some(reading) = &mut self.reading {
            reading.remove(name);
        }
        if self.entries.contains_key(name) {
            self.untold.insert(name.clone());
        }
    }

    /// Notes that all values were read. The entries that the bucket does not have as they were told are news again.
    pub(super) fn end_reading(&mut self) {
        let reading = self.reading.take().unwrap_or_default();
        let is_there =
            |(name, entry): &(&AgentName, &HostEntry)| reading.get(*name) == Some(&entry.version);
        let missing = self.entries.iter().filter(|own| !is_there(own)).map(|(name, _)| name);
        self.untold.extend(missing.cloned());
        let gone = reading.into_keys().filter(|name| !self.entries.contains_key(name));
        self.untold.extend(gone);
    }

    /// Returns the names, also of those that are not told yet.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.entries.keys().map(ToString::to_string).collect()
    }

    /// Returns the agents whose names this host claims, as the others know them: those that are alive, and those that have ended
    /// before it could.
    pub(super) fn claiming(&self) -> Vec<&AgentName> {
        let claims = |name: &&AgentName| {
            (self.is_alive(name) || self.unclaimed.contains(*name)) && !self.untold.contains(*name)
        };
        self.entries.keys().filter(claims).collect()
    }

    /// Whether an agent was alive when the roster was read last.
    pub(super) fn is_alive(&self, name: &AgentName) -> bool {
        self.entries.get(name).is_some_and(|own| own.alive)
    }

    /// Returns a value of an entry of the roster.
    pub(super) fn field(&self, name: &AgentName, field: &str) -> Option<&Value> {
        self.entries.get(name)?.entry.get(field)
    }
}

/// Whether an agent of this name runs on this host. A command holds the name for a moment, and is none.
pub(super) fn runs_here(dir: &TeamDir, name: &AgentName) -> Result<bool, RelayError> {
    Ok(match liveness::probe(dir, name)? {
        liveness::Liveness::Alive(Some(record)) => record.host.is_empty() && !record.is_command,
        liveness::Liveness::Alive(None) => true,
        liveness::Liveness::Dead => false,
    })
}

/// Whether a lead runs on this host. One that cannot be looked for counts as running.
pub fn runs_lead(dir: &TeamDir) -> bool {
    runs_here(dir, &AgentName::lead()).unwrap_or(true)
}
