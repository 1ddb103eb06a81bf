//! The part of a team folder that people write and commit: settings and roles.

use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, create_new};
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Bytes of a role's instructions that go into a prompt.
const LONGEST_ROLE: u64 = 32 * 1024;

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

    /// The instructions in `roles/ROLE.md` without its front matter; `None` when there is no such
    /// role. Only plain words name a file: a role is free text.
    pub fn role_instructions(&self, role: &str) -> Option<String> {
        let is_word =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if role.is_empty() || role.len() > 64 || !role.chars().all(is_word) {
            return None;
        }
        let file = fs::File::open(self.roles().join(format!("{role}.md"))).ok()?;
        let mut bytes = Vec::new();
        file.take(LONGEST_ROLE).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let body = match text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")) {
            Some((_front_matter, body)) => body,
            None => &text,
        };
        Some(body.trim().to_owned()).filter(|body| !body.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_its_body_and_never_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        assert!(dir.create_committed("roles/coder.md", b"---\nname: coder\n---\nCode.\n").unwrap());
        assert!(!dir.create_committed("roles/coder.md", b"other").unwrap());
        assert_eq!(dir.role_instructions("coder").as_deref(), Some("Code."));
        for role in ["", "tester", "../settings", "Coder", "a/b"] {
            assert_eq!(dir.role_instructions(role), None, "{role}");
        }
    }
}
