//! A roster, or a part of one, that is read again only after the file has changed.

use super::reading::read_as;
use crate::store::file::read::{Stamp, open_if_there, stamp};
use crate::store::{StoreError, TeamDir};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::path::PathBuf;

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
            self.file = None;
            self.roster = read_as(dir, R::default)?;
            self.file = opened.map(|(file, known)| (file, stamp(&known)));
        }
        Ok(&self.roster)
    }
}
