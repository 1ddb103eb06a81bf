//! `config.json`: read without a lock, changed under its side lock, replaced as a whole.
//!
//! An unreadable roster never blocks a team: it is quarantined and rebuilt from the last good copy, or
//! else from the life locks. `protocol::lifecycle` decides which statuses follow each other.

use super::file::atomic::{Fsync, pretty_json, replace, sync_data, sync_parent};
use super::file::lock::exclusive;
use super::file::read::{Stamp, newer_version, open_if_there, quarantine, stamp};
use super::process::liveness::{Liveness, probe};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, open};
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::roster::{Member, Roster, Status, team_name_of};
use crate::wire::{AgentName, FORMAT_VERSION, WallTime, WithUnknownFields};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a roster. A larger file counts as damaged, so that readers do not load it repeatedly.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the status of a member as readers show it: that of `LifecycleEvent::FoundDead` if its life
/// lock is free, unless a live lead is about to start it.
pub fn effective_status(member: &Member, life: &Liveness, lead: &Liveness) -> Status {
    let mut status = member.status;
    let is_expected = status == Status::Starting && lead.is_alive();
    if !life.is_alive() && !is_expected {
        let _refused = lifecycle::apply(&mut status, LifecycleEvent::FoundDead);
    }
    status
}

/// Whether a person is at the terminal of the lead that is alive, so that no question to it expires.
pub(crate) fn is_attended(dir: &TeamDir) -> bool {
    let Ok(Liveness::Alive(Some(record))) = probe(dir, &AgentName::lead()) else {
        return false;
    };
    let lead = read(dir).ok().and_then(|roster| roster.lead.clone());
    lead.is_some_and(|lead| lead.person && lead.incarnation == record.incarnation)
}

/// Reads the roster. A missing file yields the default; a damaged file yields its repaired contents, which are not
/// written.
pub fn read(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
    read_as(dir, || fresh(dir))
}

/// Returns the roster of a team without members. Its name is that of the workspace.
fn fresh(dir: &TeamDir) -> WithUnknownFields<Roster> {
    let folder = dir.workspace().file_name().unwrap_or_default();
    Roster::of_new_team(team_name_of(&folder.to_string_lossy())).into()
}

/// Reads the roster, or the part of it that `R` declares; `missing` is that of a file that does not exist.
fn read_as<R: DeserializeOwned>(
    dir: &TeamDir,
    missing: impl FnOnce() -> R,
) -> Result<R, StoreError> {
    let path = dir.config();
    match load(&path)? {
        Loaded::Missing => Ok(missing()),
        Loaded::Good { roster, .. } => Ok(*roster),
        Loaded::Damaged => {
            let text = pretty_json(&repaired(dir)?, &path)?;
            Ok(serde_json::from_slice(&text).map_err(io::Error::from).at(&path)?)
        }
    }
}

/// Whether the file exists and cannot be parsed. Fails if it was written by a newer version.
pub fn is_damaged(dir: &TeamDir) -> Result<bool, StoreError> {
    Ok(matches!(load::<WithUnknownFields<Roster>>(&dir.config())?, Loaded::Damaged))
}

/// Applies `change` to the current roster under its lock, and stores the result before it returns if it differs.
/// On an error, such as a file of a newer version, the roster is unchanged.
pub fn update<R>(
    dir: &TeamDir,
    fsync: Fsync,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R,
) -> Result<R, StoreError> {
    dir.is_still_there()?;
    let path = dir.config();
    let held = exclusive(&dir.config_lock(), LOCK_TIMEOUT)?;
    crate::store::failpoint::hit("config.locked");
    let (mut roster, before) = match load::<WithUnknownFields<Roster>>(&path)? {
        Loaded::Missing => (fresh(dir), Vec::new()),
        Loaded::Good { roster, text } => {
            if roster.version > FORMAT_VERSION {
                return Err(StoreError::Newer { path, found: roster.version.into() });
            }
            (*roster, text)
        }
        Loaded::Damaged => {
            quarantine(&path)?;
            (repaired(dir)?, Vec::new())
        }
    };
    let incarnations_before = incarnations(&roster);
    let answer = change(&mut roster);
    let after = pretty_json(&roster, &path)?;
    if after != before {
        if incarnations(&roster) != incarnations_before {
            // Not synced: the copy is for damage by hand edits. After a power cut the life locks suffice for a
            // repair.
            replace(&copy(&path), &after, Fsync::Never)?;
        }
        crate::store::failpoint::hit("config.copied");
        replace(&path, &after, fsync)?;
        crate::store::failpoint::hit("config.replaced");
    }
    drop(held);
    Ok(answer)
}

/// Makes the current roster durable. Takes no lock: a process that replaces the file meanwhile has read this
/// version, so its file contains the same changes.
pub fn sync(dir: &TeamDir, fsync: Fsync) -> Result<(), StoreError> {
    if fsync == Fsync::Always {
        let path = dir.config();
        sync_data(&open(&path, Access::Read)?, &path, fsync)?;
        sync_parent(&path, fsync)?;
    }
    Ok(())
}

/// Returns the name and the incarnation of each entry, and whether it is over. [`update`] renews the copy only if
/// these change.
pub(super) fn incarnations(roster: &Roster) -> Vec<(String, String, bool)> {
    let lead = roster.lead.iter().map(|lead| (&lead.name, &lead.incarnation, lead.status));
    let members = roster.members.iter().map(|one| (&one.name, &one.incarnation, one.status));
    let entries = lead.chain(members);
    entries
        .map(|(name, incarnation, status)| (name.clone(), incarnation.clone(), status.is_over()))
        .collect()
}

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

/// The roster for a process that reads it often. The file is read again only after it was replaced or edited.
#[derive(Debug)]
pub(crate) struct Cached<R> {
    path: PathBuf,
    file: Option<(File, Stamp)>,
    roster: R,
}

impl<R: Default + DeserializeOwned> Cached<R> {
    pub(crate) fn of(dir: &TeamDir) -> Self {
        Self { path: dir.config(), file: None, roster: R::default() }
    }

    pub(crate) fn current(&mut self, dir: &TeamDir) -> Result<&R, StoreError> {
        let is_same = self.file.as_ref().is_some_and(|(file, then)| {
            // The link count of a file with a second name does not drop to zero when it is replaced.
            then.0 == 1 && file.metadata().is_ok_and(|now| stamp(&now) == *then)
        });
        if !is_same {
            // The file is opened before it is read: if it changes in between, the next call reads it again.
            let opened = open_if_there(&self.path).ok().flatten();
            self.file = opened.map(|(file, known)| (file, stamp(&known)));
            self.roster = read_as(dir, R::default)?;
        }
        Ok(&self.roster)
    }
}

enum Loaded<R> {
    Missing,
    Good { roster: Box<R>, text: Vec<u8> },
    Damaged,
}

fn load<R: DeserializeOwned>(path: &Path) -> Result<Loaded<R>, StoreError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(Loaded::Missing) };
    let mut text = Vec::new();
    let length = file.take(MOST_BYTES + 1).read_to_end(&mut text).at(path)?;
    if length as u64 > MOST_BYTES {
        return Ok(Loaded::Damaged);
    }
    if let Ok(roster) = serde_json::from_slice(&text) {
        return Ok(Loaded::Good { roster: Box::new(roster), text });
    }
    match newer_version(&text) {
        Some(found) => Err(StoreError::Newer { path: path.into(), found }),
        None => Ok(Loaded::Damaged),
    }
}

fn copy(path: &Path) -> PathBuf {
    path.with_extension("json.bak")
}

/// Returns the last good copy, or else a roster of the names that have a life lock.
fn repaired(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
    if let Ok(Loaded::Good { roster, .. }) = load(&copy(&dir.config())) {
        return Ok(*roster);
    }
    let mut roster = fresh(dir);
    let names = dir.agents_with_locks()?.into_iter();
    for name in names.filter(|name| AgentName::member(name.as_str()).is_ok()) {
        let mut member = Member { name: name.to_string(), ..Member::default() };
        let event = match probe(dir, &name)? {
            Liveness::Alive(record) => {
                let record = record.unwrap_or_default();
                member.pid = Some(record.pid).filter(|pid| *pid > 0);
                member.incarnation = record.incarnation;
                member.since = record.started_at;
                LifecycleEvent::FoundAlive
            }
            Liveness::Dead => LifecycleEvent::FoundDead,
        };
        if let Ok(Some(status)) = lifecycle::next(None, event) {
            roster.members.push(Member { status, ..member }.into());
        }
    }
    Ok(roster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

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
}
