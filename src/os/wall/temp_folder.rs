//! The private folder for temporary files of one agent's commands.

use super::outbox::{self, OutboxText};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A folder that only its user can enter. Dropping it removes it with all files in it.
#[derive(Debug)]
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates the folder of the agent with this `run_id`, below the folder for temporary files of this process. Fails
    /// if there is one of that name.
    pub(super) fn make(run_id: &str) -> io::Result<Self> {
        let path = path_of(run_id);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(fs::canonicalize(path)?))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Removes the folder that a killed agent has left. Does nothing to a folder of another user.
pub(in crate::os) fn remove_left(run_id: &str) {
    if let Some(path) = left(run_id) {
        fs::remove_dir_all(path).unwrap_or_default();
    }
}

/// Reads the mail in the outboxes of the commands of a killed agent.
pub(in crate::os) fn read_left_outboxes(run_id: &str) -> Vec<OutboxText> {
    left(run_id).map(|path| outbox::read_left(&path)).unwrap_or_default()
}

/// Returns the folder that a killed agent has left, if it is one of this user.
fn left(run_id: &str) -> Option<PathBuf> {
    let is_ours = !run_id.is_empty() && run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let path = path_of(run_id);
    let known = fs::symlink_metadata(&path).ok().filter(|_| is_ours)?;
    (known.is_dir() && known.uid() == geteuid().as_raw()).then_some(path)
}

fn path_of(run_id: &str) -> PathBuf {
    std::env::temp_dir().join(format!("team-{run_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_private_and_is_removed_with_its_owner_or_after_it() {
        let id = format!("{:x}", uuid::Uuid::now_v7().as_u128());
        let folder = TempFolder::make(&id).unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(TempFolder::make(&id).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::create_dir(path.join("below")).unwrap();
        drop(folder);
        assert!(!path.exists());
        std::mem::forget(TempFolder::make(&id).unwrap());
        remove_left(&id);
        assert!(!path.exists());
    }
}
