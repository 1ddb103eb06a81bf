//! Creates the committed part of a team folder: settings and roles.

use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, create_new};
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

impl TeamDir {
    /// Returns the path of the settings file in a folder that may not be a team yet.
    pub fn settings_in(root: &Path) -> PathBuf {
        root.join("settings.toml")
    }

    /// Creates a committed file unless it exists; returns whether it was created.
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
    fn an_existing_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        assert!(dir.create_committed("roles/coder.md", b"Code.\n").unwrap());
        assert!(!dir.create_committed("roles/coder.md", b"other").unwrap());
        assert_eq!(dir.role("coder", |_| None).unwrap().role.instructions, "Code.");
    }
}
