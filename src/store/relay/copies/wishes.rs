//! The wishes for copies: `copies/.wanted/ID.json`, which the process that wants to see the files holds locked. Beside it,
//! `ID.state.json` says how far they are.

use super::make_copy_folders;
use crate::os::file::{Access, At, create_new};
use crate::store::file::atomic::{Fsync, pretty_json, remove, replace};
use crate::store::file::lock::try_exclusive;
use crate::store::file::read::{changed_at, known_if_there, names_in, read_json};
use crate::store::relay::{MOST_BYTES, is_held};
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::HostName;
use crate::wire::host_copy::CopyWish;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;
use uuid::Uuid;

const ENDING: &str = ".json";
const STATE_ENDING: &str = ".state.json";

/// The ending of a wish that is not in force yet.
const NEW_ENDING: &str = ".new";

/// The age at which such a one is left by a killed process.
const NEW_FOR: Duration = Duration::from_secs(60);

/// A wish of this process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Wish {
    dir: TeamDir,
    id: String,
    _lock: File,
}

impl Wish {
    /// Makes a wish.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn new(dir: &TeamDir, wish: &CopyWish) -> Result<Self, StoreError> {
        make_copy_folders(dir)?;
        let id = Uuid::new_v4().simple().to_string();
        let (new, path) =
            (dir.relay_wishes().join(format!("{id}{NEW_ENDING}")), dir.relay_wish(&id));
        let mut lock = create_new(&new, Access::Update)?;
        // Nobody else knows the file.
        try_exclusive(&lock).at(&new)?;
        lock.write_all(&pretty_json(wish, &new)?).at(&new)?;
        fs::rename(&new, &path).at(&path)?;
        Ok(Self { dir: dir.clone(), id, _lock: lock })
    }

    /// Returns the id of the wish.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        if let Err(why) = remove_wish(&self.dir, &self.id) {
            tracing::warn!(%why, "a wish for copies is not removed");
        }
    }
}

/// The state of the copies that a wish names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WishState {
    /// The hosts.
    pub hosts: BTreeMap<HostName, CopiedHost>,
}

/// The state of the copy of a host's files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CopiedHost {
    /// The time at which all wanted files were copied last; `None` if that has not been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<WallTime>,
    /// Whether they are being copied for the first time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_coming: bool,
    /// The reason for which the copy is not up to date; `None` if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Returns the wishes of living processes, each with its id. Those of others are removed.
///
/// # Errors
/// A file cannot be read or removed.
pub fn live_wishes(dir: &TeamDir, now: WallTime) -> Result<Vec<(String, CopyWish)>, StoreError> {
    let mut found = Vec::new();
    for name in names_in(&dir.relay_wishes())? {
        let path = dir.relay_wishes().join(&name);
        if let Some(id) = name.strip_suffix(STATE_ENDING) {
            if !dir.relay_wish(id).exists() {
                remove(&path)?;
            }
        } else if name.ends_with(NEW_ENDING) {
            // A young one is not locked yet.
            let known = known_if_there(&path)?;
            if known.is_some_and(|known| now.since(changed_at(&known)) > NEW_FOR) {
                remove(&path)?;
            }
        } else if let Some(id) = name.strip_suffix(ENDING) {
            if !is_held(&path)? {
                remove_wish(dir, id)?;
            } else if let Ok(Some(wish)) = read_json(&path, MOST_BYTES) {
                found.push((id.to_owned(), wish));
            }
        }
    }
    Ok(found)
}

/// Records how far the copies for a wish are. The caller holds the relay's lock.
///
/// # Errors
/// The file cannot be written.
pub fn put_wish_state(dir: &TeamDir, id: &str, state: &WishState) -> Result<(), StoreError> {
    let path = dir.relay_wish_state(id);
    Ok(replace(&path, &pretty_json(state, &path)?, Fsync::Never)?)
}

/// Returns how far the copies for a wish are; `None` before the relay has tried once.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn wish_state(dir: &TeamDir, wish: &Wish) -> Result<Option<WishState>, StoreError> {
    Ok(read_json(&dir.relay_wish_state(wish.id()), MOST_BYTES)?)
}

fn remove_wish(dir: &TeamDir, id: &str) -> Result<(), StoreError> {
    remove(&dir.relay_wish(id))?;
    Ok(remove(&dir.relay_wish_state(id))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Clock, SystemClock, test_team};
    use crate::wire::host_copy::{CopyPart, CopySelection};

    #[test]
    fn a_wish_lasts_as_long_as_its_process_holds_it() {
        let (_folder, dir) = test_team();
        let now = SystemClock.now();
        assert_eq!(live_wishes(&dir, now).unwrap(), []);
        let selection = CopySelection { parts: vec![CopyPart::Logs], agents: Vec::new() };
        let wanted = CopyWish { hosts: vec![HostName::parse("gpu1").unwrap()], selection };
        let wish = Wish::new(&dir, &wanted).unwrap();
        assert_eq!(live_wishes(&dir, now).unwrap(), [(wish.id().to_owned(), wanted.clone())]);
        let state = WishState::default();
        put_wish_state(&dir, wish.id(), &state).unwrap();
        assert_eq!(wish_state(&dir, &wish).unwrap(), Some(state.clone()));
        drop(wish);
        assert_eq!(live_wishes(&dir, now).unwrap(), []);
        // A killed process leaves it.
        let left = Wish::new(&dir, &wanted).unwrap();
        put_wish_state(&dir, left.id(), &state).unwrap();
        let kept = dir.relay_wishes().join("kept");
        fs::rename(dir.relay_wish(left.id()), &kept).unwrap();
        let path = dir.relay_wish(left.id());
        drop(left);
        fs::rename(kept, path).unwrap();
        assert_eq!(live_wishes(&dir, now).unwrap(), []);
        assert_eq!(names_in(&dir.relay_wishes()).unwrap(), Vec::<String>::new());
        // So does one that is killed before its wish is in force; one that is about to make it is not disturbed.
        create_new(&dir.relay_wishes().join("a.new"), Access::Update).unwrap();
        live_wishes(&dir, now).unwrap();
        assert_eq!(names_in(&dir.relay_wishes()).unwrap(), ["a.new"]);
        live_wishes(&dir, now + NEW_FOR * 2).unwrap();
        assert_eq!(names_in(&dir.relay_wishes()).unwrap(), Vec::<String>::new());
    }
}
