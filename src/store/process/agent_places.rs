//! The places of agents of other vendors: so many of a team have a process at once, for each may use hundreds of MB.
//!
//! A place is the lock of a file, so it is free as soon as the process of its member is gone. Who finds none holds a wish,
//! and then a member whose agent is idle gives its place away, one member for each wish.

use crate::os::file::{Access, At, open_or_create};
use crate::store::file::lock::{release, try_exclusive, try_shared};
use crate::store::{StoreError, TeamDir};
use std::fs::File;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub(crate) struct AgentPlaces {
    dir: TeamDir,
    /// The number of places; 0 for any number.
    most: u32,
}

/// A place that is taken until this value is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct AgentPlace {
    /// The locked file; `None` where any number of agents may run.
    _file: Option<File>,
}

/// A member that waits for a place, until this value is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct PlaceWish {
    _file: File,
}

/// The one member that is giving its place away, until this value is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct GivingAway {
    _file: File,
}

impl AgentPlaces {
    pub(crate) fn new(dir: TeamDir, most: u32) -> Self {
        Self { dir, most }
    }

    /// The number of places; 0 for any number.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Takes a place, if one is free.
    pub(crate) fn take(&self) -> Result<Option<AgentPlace>, StoreError> {
        if self.most == 0 {
            return Ok(Some(AgentPlace { _file: None }));
        }
        for number in 1..=self.most {
            let (file, path) = self.open(&number.to_string())?;
            if try_exclusive(&file).at(&path)? {
                return Ok(Some(AgentPlace { _file: Some(file) }));
            }
        }
        Ok(None)
    }

    /// Asks the idle ones for a place. `None` while one of them looks whether somebody asks: try again.
    pub(crate) fn wish(&self) -> Result<Option<PlaceWish>, StoreError> {
        let (file, path) = self.open("wish")?;
        Ok(try_shared(&file).at(&path)?.then_some(PlaceWish { _file: file }))
    }

    /// Whether the holder of a place whose agent is idle should give it away now.
    pub(crate) fn give_away(&self) -> Result<Option<GivingAway>, StoreError> {
        let (wish, path) = self.open("wish")?;
        if try_exclusive(&wish).at(&path)? {
            release(&wish);
            return Ok(None);
        }
        let (file, path) = self.open("giving")?;
        Ok(try_exclusive(&file).at(&path)?.then_some(GivingAway { _file: file }))
    }

    fn open(&self, name: &str) -> Result<(File, PathBuf), StoreError> {
        let path = self.dir.state(&format!("agents.{name}"));
        Ok((open_or_create(&path, Access::Update)?, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_gets_one_of_the_places_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let places = AgentPlaces::new(dir.clone(), 2);
        let take = || places.take().unwrap();
        let (first, second) = (take().unwrap(), take().unwrap());
        assert!(take().is_none() && places.give_away().unwrap().is_none());
        let wishes = [places.wish().unwrap().unwrap(), places.wish().unwrap().unwrap()];
        let giving = places.give_away().unwrap().unwrap();
        assert!(places.give_away().unwrap().is_none(), "one gives at a time");
        drop(first);
        let third = take().unwrap();
        drop((wishes, giving));
        assert!(places.give_away().unwrap().is_none(), "nobody waits");
        drop((second, third));
        assert!(take().is_some());
        let any = AgentPlaces::new(dir, 0);
        let all: Vec<AgentPlace> = (0..20).map(|_| any.take().unwrap().unwrap()).collect();
        assert_eq!(all.len(), 20);
    }
}
