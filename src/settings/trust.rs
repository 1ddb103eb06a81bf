//! Which team folders the user has trusted (SPEC 7): only there do a folder's settings loosen anything.
//!
//! The list lies in the user's own state folder, outside of every workspace, so that no clone brings its
//! own trust along.

use super::environment::Environment;
use crate::error::{Exit, Failure};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The list of trusted folders.
#[derive(Debug)]
pub(crate) struct TrustList {
    file: Option<PathBuf>,
}

impl TrustList {
    /// The user's list.
    pub(crate) fn of(environment: &Environment) -> Self {
        let file = environment.state_home().map(|home| home.join("team/trusted"));
        Self { file }
    }

    /// Whether this team folder is on it.
    pub(crate) fn has(&self, folder: &Path) -> bool {
        let (Some(line), Some(file)) = (line(folder), &self.file) else { return false };
        fs::read_to_string(file).is_ok_and(|list| list.lines().any(|known| known == line))
    }

    /// Puts a team folder on it. Whether it was not there before.
    ///
    /// # Errors
    /// There is no state folder, or it cannot be written.
    pub(crate) fn add(&self, folder: &Path) -> Result<bool, Failure> {
        let file = self.file.as_deref().ok_or_else(|| {
            let hint = "set HOME or XDG_STATE_HOME, and try again";
            let why = "neither HOME nor XDG_STATE_HOME is set";
            Failure::new(Exit::Failure, "trust cannot be kept", why, hint)
        })?;
        let failed = |why: io::Error| {
            let what = format!("{} cannot be written", file.display());
            Failure::new(Exit::Failure, what, why.to_string(), "check the folder's permissions")
        };
        let line = line(folder).ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        if self.has(folder) {
            return Ok(false);
        }
        if let Some(parent) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        let open = OpenOptions::new().create(true).append(true).mode(0o600).open(file);
        open.and_then(|mut list| list.write_all(format!("{line}\n").as_bytes())).map_err(failed)?;
        Ok(true)
    }
}

/// A folder as it stands in the list: its real path, if that can stand on a line.
fn line(folder: &Path) -> Option<String> {
    let real = fs::canonicalize(folder).ok()?;
    real.to_str().filter(|path| !path.contains('\n')).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_is_trusted_by_its_real_path_and_nothing_below_it() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state").display().to_string();
        let list = TrustList::of(&Environment::of(&[("XDG_STATE_HOME", &state)]));
        let (one, other) = (home.path().join("one"), home.path().join("one/two"));
        fs::create_dir_all(&other).unwrap();
        symlink(&one, home.path().join("link")).unwrap();
        assert!(!list.has(&one));
        assert!(list.add(&home.path().join("link")).unwrap());
        assert!(!list.add(&one).unwrap(), "it is there already");
        assert!(list.has(&one) && !list.has(&other) && !list.has(home.path()));
        let mode = fs::metadata(home.path().join("state/team/trusted")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert!(!list.has(&home.path().join("gone")));
        let nowhere = TrustList::of(&Environment::of(&[]));
        assert!(nowhere.add(&one).unwrap_err().why.contains("HOME"));
    }
}
