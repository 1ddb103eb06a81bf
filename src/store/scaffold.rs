//! Making the part of a team folder that people write and commit: settings and roles.

use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, create_new};
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

impl TeamDir {
    /// The settings file of a folder that may not be a team yet.
    pub fn settings_in(root: &Path) -> PathBuf {
        root.join("settings.toml")
    }

    /// Makes a committed file, unless there is one. Tells whether it was made.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create_committed(&self, name: &str, text: &[u8]) -> Result<bool, StoreError> {
        let path = self.root().join(name);
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).at(folder)?;
        }
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(false);
        }
        let mut file = create_new(&path, Access::Update)?;
        file.write_all(text).at(&path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_wrote_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        assert!(dir.create_committed("roles/coder.md", b"Code.\n").unwrap());
        assert!(!dir.create_committed("roles/coder.md", b"other").unwrap());
        assert_eq!(dir.role("coder", |_| None).unwrap().role.instructions, "Code.");
    }
}
