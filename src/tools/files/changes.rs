//! Notices changes of the files that an agent has read, so that it is told before its next model call.
//!
//! A file is opened only if its metadata differ from those of the last look. Files outside the workspace are not
//! looked at, since only a judged call may open them.

use super::access::FileAccess;
use super::load::load;
use super::locked_file::Writer;
use super::own_versions::OwnVersion;
use super::read_log::{DiskState, FileStamp, SeenFile};
use crate::os::safe_path::SafeRoot;
use crate::store::asynchronous::offload;
use crate::store::file_writes;
use crate::tools::call::ToolError;
use crate::wire::file_view::ContentHash;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of changed files that a note names.
const MOST_NAMED: usize = 5;

/// A look at files, as work for another thread.
struct Look {
    workspace: Arc<SafeRoot>,
    writer: Writer,
    files: Vec<Watched>,
    /// Whether to look for drafts of processes that were killed.
    recovers: bool,
}

struct Watched {
    path: PathBuf,
    seen: SeenFile,
    own: Option<OwnVersion>,
}

/// A file with another stamp than at the last look.
struct Found {
    path: PathBuf,
    state: DiskState,
    stamp: Option<FileStamp>,
    own: Option<OwnVersion>,
    /// The member that wrote this state; `None` for another program.
    by: Option<String>,
}

impl FileAccess {
    /// Looks at the files that the agent has read. Returns a note about those that were changed since, once for each
    /// change. A file that is being written now waits for the next look.
    pub(in crate::tools) async fn changes(&self) -> Option<String> {
        let look = self.look();
        if look.files.is_empty() && !look.recovers {
            return None;
        }
        let (found, mut told) = offload(move || look.run()).await;
        let mut changed = Vec::new();
        let mut log = self.log.borrow_mut();
        for Found { path, state, stamp, own, by } in found {
            log.follow(&path, own);
            let Some(seen) = log.files.get_mut(&path) else { continue };
            seen.stamp = stamp;
            let is_seen = state == DiskState::Content(seen.hash.clone());
            let is_news = !is_seen && seen.told.as_ref() != Some(&state);
            seen.told = (!is_seen).then(|| state.clone());
            if is_news {
                changed.push(self.describe(&path, &state, by));
            }
        }
        if let Some(more) = changed.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            changed.truncate(MOST_NAMED);
            changed.push(format!("{more} more files that you read were changed"));
        }
        if !changed.is_empty() {
            told.extend(changed);
            told.push("read such a file again before you rely on it".into());
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    fn look(&self) -> Look {
        let log = self.log.borrow();
        let inside = log.files.iter().filter(|(path, _)| !path.is_absolute());
        let files = inside.map(|(path, seen)| {
            let own = log.own.get(path).cloned();
            Watched { path: path.clone(), seen: seen.clone(), own }
        });
        Look {
            workspace: Arc::clone(&self.workspace),
            writer: self.writer.clone(),
            files: files.collect(),
            recovers: !self.has_recovered.replace(true),
        }
    }

    fn describe(&self, path: &Path, state: &DiskState, by: Option<String>) -> String {
        let by = match by {
            Some(name) if name == self.writer.me.as_str() => {
                "a call of yours that was cut off".into()
            }
            Some(name) => name,
            None => "another program (or a command of yours)".into(),
        };
        let how = match state {
            DiskState::Missing => "removed",
            DiskState::Content(_) => "changed",
        };
        format!("{}, which you read, was {how} by {by}", path.display())
    }
}

impl Look {
    /// Returns the files with another stamp, and texts about versions that were kept.
    fn run(self) -> (Vec<Found>, Vec<String>) {
        let mut kept = Vec::new();
        if self.recovers {
            self.recover(&mut kept);
        }
        let found = self.files.iter().filter_map(|file| {
            let looked = self.look_at(file, &mut kept);
            looked.unwrap_or_else(|why| {
                tracing::debug!(%why, path = %file.path.display(), "a file was not looked at");
                None
            })
        });
        let found = found.collect();
        (found, kept)
    }

    /// Handles the drafts of processes that were killed while they wrote a file.
    fn recover(&self, kept: &mut Vec<String>) {
        let pending = file_writes::pending(&self.writer.dir).unwrap_or_else(|why| {
            tracing::warn!(%why, "the records of writes were not read");
            Vec::new()
        });
        for real in pending {
            let Ok(spot) = self.workspace.find(&real) else { continue };
            match self.writer.try_lock(&real.display().to_string(), &spot) {
                Ok(Some(mut file)) => kept.append(&mut file.kept),
                Ok(None) => {}
                Err(why) => tracing::warn!(%why, "a write that was cut off was not recovered"),
            }
        }
    }

    /// Returns a file if it has another stamp; `None` also if it is being written.
    fn look_at(&self, file: &Watched, kept: &mut Vec<String>) -> Result<Option<Found>, ToolError> {
        let Watched { path, seen, own } = file;
        let name = path.display().to_string();
        let known = fs::symlink_metadata(self.workspace.path().join(path));
        let stamp = known.ok().as_ref().and_then(FileStamp::of);
        let is_own_open = own.as_ref().is_some_and(|own| own.differs_from(&seen.hash));
        if stamp.is_some() && stamp == seen.stamp && !is_own_open {
            return Ok(None);
        }
        let Ok(spot) = self.workspace.find(path) else { return Ok(None) };
        if !self.writer.has_written(&spot) {
            let loaded = load(&name, &spot)?;
            // A member that has written it meanwhile is named at the next look.
            return Ok((!self.writer.has_written(&spot)).then(|| {
                let stamp = loaded.as_ref().and_then(|loaded| loaded.stamp);
                let state = state_of(loaded.as_ref().map(|loaded| loaded.bytes.as_slice()));
                Found { path: path.clone(), state, stamp, own: own.clone(), by: None }
            }));
        }
        let Some(mut locked) = self.writer.lock_soon(&name, &spot)? else { return Ok(None) };
        let loaded = load(&name, &spot)?;
        let stamp = loaded.as_ref().and_then(|loaded| loaded.stamp);
        let bytes = loaded.as_ref().map(|loaded| loaded.bytes.as_slice());
        let own = own.clone().and_then(|own| locked.settle(own, bytes.unwrap_or_default()));
        let state = state_of(bytes);
        let by = match &state {
            DiskState::Content(hash) => locked.record().writer_of(hash).map(str::to_owned),
            DiskState::Missing => None,
        };
        kept.append(&mut locked.kept);
        Ok(Some(Found { path: path.clone(), state, stamp, own, by }))
    }
}

fn state_of(bytes: Option<&[u8]>) -> DiskState {
    bytes.map_or(DiskState::Missing, |bytes| DiskState::Content(ContentHash::of(bytes)))
}
