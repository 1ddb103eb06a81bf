//! File access of one agent's file tools.
//!
//! *Invariants:* a call opens only the file that permission rules judged. An agent never overwrites content
//! that it has not seen: a change needs the content that the agent last read or wrote.

use super::workspace::{Workspace, path_error};
use crate::os::safe_path::Spot;
use crate::protocol::permission::PermissionSubject;
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file in bytes that file tools load.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// The state that the file tools of one agent share.
#[derive(Debug)]
pub(in crate::tools) struct FileAccess {
    workspace: Workspace,
    /// A hash of each file's content as the agent last saw it.
    seen: RefCell<BTreeMap<PathBuf, u64>>,
    judged: RefCell<Option<JudgedFile>>,
}

/// The file that a call was judged by. A link that is changed later leads elsewhere.
#[derive(Debug)]
struct JudgedFile {
    call_id: String,
    path: PathBuf,
}

/// Whether the agent has seen the content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// It never read or wrote the file.
    Never,
    /// The file has changed since.
    Stale,
    /// It has seen this content.
    Current,
}

impl FileAccess {
    /// Access to the workspace; `team` is the team folder.
    ///
    /// # Errors
    /// The workspace cannot be entered.
    pub(in crate::tools) fn open(workspace: &Path, team: &Path) -> io::Result<Self> {
        let (seen, judged) = (RefCell::default(), RefCell::default());
        Ok(Self { workspace: Workspace::open(workspace, team)?, seen, judged })
    }

    /// The workspace's folder.
    pub(in crate::tools) fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// The file of a call that reads, for permission rules.
    ///
    /// # Errors
    /// The path is invalid or never readable.
    pub(super) fn subject_to_read(
        &self,
        call: &Call,
        path: &str,
    ) -> Result<PermissionSubject, ToolError> {
        Ok(self.subject(call, &self.workspace.to_read(path)?))
    }

    /// The file of a call that writes, for permission rules.
    ///
    /// # Errors
    /// The path is invalid or never writable.
    pub(super) fn subject_to_write(
        &self,
        call: &Call,
        path: &str,
    ) -> Result<PermissionSubject, ToolError> {
        Ok(self.subject(call, &self.workspace.to_write(path)?))
    }

    /// The path with links followed.
    fn subject(&self, call: &Call, spot: &Spot) -> PermissionSubject {
        let path = spot.path();
        let name = path.to_string_lossy().into_owned();
        let subject = if path.is_absolute() {
            PermissionSubject::Outside(name)
        } else {
            PermissionSubject::Path(name)
        };
        *self.judged.borrow_mut() = Some(JudgedFile { call_id: call.id.clone(), path });
        subject
    }

    /// The file of a judged call that reads.
    ///
    /// # Errors
    /// The path is invalid, or leads to another file than the judged one.
    pub(super) fn to_read(&self, call: &Call, path: &str) -> Result<Spot, ToolError> {
        self.as_judged(call, self.workspace.to_read(path)?)
    }

    /// The file of a judged call that writes.
    ///
    /// # Errors
    /// The path is invalid, or leads to another file than the judged one.
    pub(super) fn to_write(&self, call: &Call, path: &str) -> Result<Spot, ToolError> {
        self.as_judged(call, self.workspace.to_write(path)?)
    }

    fn as_judged(&self, call: &Call, spot: Spot) -> Result<Spot, ToolError> {
        let judged = self.judged.borrow();
        if judged.as_ref().is_some_and(|file| file.call_id == call.id && file.path == spot.path()) {
            return Ok(spot);
        }
        Err(ToolError::Reply(format!(
            "not done: a link was changed meanwhile, and the path now leads to {}, which nobody has \
             judged; look where it leads, then repeat the call",
            spot.path().display()
        )))
    }

    /// Replaces the content of a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) async fn replace(
        &self,
        path: &str,
        spot: Spot,
        bytes: Vec<u8>,
    ) -> Result<(), ToolError> {
        let (replaced, spot, bytes) = offload(move || (spot.replace(&bytes), spot, bytes)).await;
        replaced.map_err(|why| path_error(path, &why))?;
        self.mark_seen(&spot, &bytes);
        Ok(())
    }

    /// Notes that the agent has seen this content.
    pub(super) fn mark_seen(&self, spot: &Spot, bytes: &[u8]) {
        self.seen.borrow_mut().insert(spot.path(), hash(bytes));
    }

    /// Whether the agent has seen this content.
    pub(super) fn knowledge(&self, spot: &Spot, bytes: &[u8]) -> Knowledge {
        match self.seen.borrow().get(&spot.path()) {
            None => Knowledge::Never,
            Some(seen) if *seen == hash(bytes) => Knowledge::Current,
            Some(_) => Knowledge::Stale,
        }
    }
}

/// The content of a file; `None` if it does not exist.
///
/// # Errors
/// The file cannot be read or is too large.
pub(super) fn load(path: &str, spot: &Spot) -> Result<Option<Vec<u8>>, ToolError> {
    let failed = |why: io::Error| path_error(path, &why.into());
    let Some(file) = spot.open().map_err(|why| path_error(path, &why))? else { return Ok(None) };
    let mut bytes = Vec::new();
    let size = file.metadata().map_err(failed)?.len();
    // One byte more than allowed: the reported size may be wrong or may grow.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolError::Reply(format!(
            "{path} has {size} bytes, file tools take up to {MAX_FILE_BYTES}; look at parts of it with \
             bash (head, tail, sed -n, grep)"
        )));
    }
    Ok(Some(bytes))
}

/// The error for a file that must exist.
pub(super) fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; look with `ls` which files there are"))
}

/// The error for content that the agent has not seen.
pub(super) fn changed(path: &str) -> ToolError {
    ToolError::Reply(format!(
        "{path} has changed since you read it; read it again, then repeat what still applies"
    ))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
