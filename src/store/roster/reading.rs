//! The reading of `config.json`, also where it is damaged.

use crate::os::file::At;
use crate::protocol::lifecycle::{self, LifecycleEvent};
use crate::store::file::atomic::pretty_json;
use crate::store::file::read::{newer_version, open_if_there, whole};
use crate::store::process::liveness::{Liveness, probe};
use crate::store::{StoreError, TeamDir};
use crate::wire::roster::{Member, Roster, team_name_of};
use crate::wire::{AgentName, WithUnknownFields};
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of a roster. A larger file counts as damaged, so that readers do not load it repeatedly.
pub(super) const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Reads the roster. A missing file yields the default; a damaged file yields its repaired contents, which are not
/// written.
pub fn read(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
    read_as(dir, || fresh(dir))
}

/// Returns the roster of a team without members. Its name is that of the workspace.
pub(super) fn fresh(dir: &TeamDir) -> WithUnknownFields<Roster> {
    let folder = dir.workspace().file_name().unwrap_or_default();
    Roster::of_new_team(team_name_of(&folder.to_string_lossy())).into()
}

/// Reads the roster, or the part of it that `R` declares; `missing` is that of a file that does not exist.
pub(super) fn read_as<R: DeserializeOwned>(
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

pub(super) enum Loaded<R> {
    Missing,
    Good { roster: Box<R>, text: Vec<u8> },
    Damaged,
}

pub(super) fn load<R: DeserializeOwned>(path: &Path) -> Result<Loaded<R>, StoreError> {
    let Some((file, known)) = open_if_there(path)? else { return Ok(Loaded::Missing) };
    let Some(text) = whole(&file, &known, MOST_BYTES).at(path)? else { return Ok(Loaded::Damaged) };
    if let Ok(roster) = serde_json::from_slice(&text) {
        return Ok(Loaded::Good { roster: Box::new(roster), text });
    }
    match newer_version(&text) {
        Some(found) => Err(StoreError::Newer { path: path.into(), found }),
        None => Ok(Loaded::Damaged),
    }
}

/// Returns the path of the last good copy.
pub(super) fn copy(path: &Path) -> PathBuf {
    path.with_extension("json.bak")
}

/// Returns the last good copy, or else a roster of the names that have a life lock.
pub(super) fn repaired(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
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
