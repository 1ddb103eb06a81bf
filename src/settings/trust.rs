//! The list of the folders that the user trusts, with the trusted settings of each (SPEC 7).
//!
//! The list is in the user's own state folder, outside every workspace, so that a cloned repository cannot
//! contain its own trust. It holds the trusted settings themselves, under the real path of the folder: when one of
//! them changes, none of them is trusted until the user trusts the folder again.

use super::environment::Environment;
use crate::error::{Exit, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Settings of a folder that need trust, by key.
pub(crate) type Risks = Map<String, Value>;

#[derive(Debug)]
pub(crate) struct TrustList {
    file: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct TrustFile {
    version: u32,
    folders: BTreeMap<String, Risks>,
}

impl TrustList {
    pub(crate) fn of(environment: &Environment) -> Self {
        Self { file: environment.state_home().map(|home| home.join("team/trust.json")) }
    }

    /// Whether exactly these settings of a team folder are trusted; `false` if the list cannot be read.
    pub(crate) fn has(&self, folder: &Path, risks: &Risks) -> bool {
        let known = self.read().unwrap_or_default();
        folder_key(folder).is_ok_and(|key| known.folders.get(&key) == Some(risks))
    }

    /// Returns the file to lock while the list is changed. Creates its folder; fails if other users can write there.
    pub(crate) fn lock_file(&self) -> Result<PathBuf, Failure> {
        let file = self.file()?;
        make_folder(file).map_err(|why| unchanged(file, &why))?;
        Ok(file.with_extension("lock"))
    }

    /// Replaces the trusted settings of a team folder; `None` removes the folder from the list.
    pub(crate) fn set(&self, folder: &Path, risks: Option<Risks>) -> Result<(), Failure> {
        let file = self.file()?;
        let failed = |why: io::Error| unchanged(file, &why);
        let mut known = self.read().map_err(failed)?;
        let key = folder_key(folder).map_err(failed)?;
        match risks {
            Some(risks) => drop(known.folders.insert(key, risks)),
            None => drop(known.folders.remove(&key)),
        }
        known.version = 1;
        let text = serde_json::to_string_pretty(&known).map_err(|why| failed(why.into()))?;
        replace(file, &text).map_err(failed)
    }

    fn file(&self) -> Result<&Path, Failure> {
        let hint = "set HOME or XDG_STATE_HOME, and try again";
        let why = "neither HOME nor XDG_STATE_HOME is set";
        let homeless = || Failure::new(Exit::Failure, "trust cannot be saved", why, hint);
        self.file.as_deref().ok_or_else(homeless)
    }

    fn read(&self) -> io::Result<TrustFile> {
        let Some(file) = &self.file else { return Ok(TrustFile::default()) };
        match fs::read_to_string(file) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(TrustFile::default()),
            Err(why) => Err(why),
        }
    }
}

/// Returns the key of a folder in the list: its real path.
pub(super) fn folder_key(folder: &Path) -> io::Result<String> {
    let real = fs::canonicalize(folder)?;
    real.to_str().map(ToOwned::to_owned).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

fn unchanged(file: &Path, why: &io::Error) -> Failure {
    let what = format!("{} cannot be changed", file.display());
    let hint = "check the file and its permissions; without it, no folder is trusted";
    Failure::new(Exit::Failure, what, why.to_string(), hint)
}

fn make_folder(file: &Path) -> io::Result<()> {
    if let Some(parent) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        // A list that other users can write is no evidence of the trust of this user.
        let known = fs::metadata(parent)?;
        if known.mode() & 0o022 != 0 {
            let why = format!("{} can be written by others", parent.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

/// Replaces the file atomically, so that a crash never leaves an incomplete list.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    make_folder(file)?;
    let draft = file.with_extension(format!("{}.draft", std::process::id()));
    let mut open = OpenOptions::new();
    let mut out = open.create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&draft, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn some(value: u32) -> Risks {
        [("hooks".to_owned(), json!(value))].into_iter().collect()
    }

    #[test]
    fn trust_holds_for_the_real_path_and_the_listed_settings_only() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state").display().to_string();
        let list = TrustList::of(&Environment::of(&[("XDG_STATE_HOME", &state)]));
        let (one, other) = (home.path().join("one"), home.path().join("one/two"));
        fs::create_dir_all(&other).unwrap();
        symlink(&one, home.path().join("link")).unwrap();
        assert!(!list.has(&one, &some(1)));
        list.set(&home.path().join("link"), Some(some(1))).unwrap();
        assert!(list.has(&one, &some(1)));
        assert!(!list.has(&one, &some(2)), "a setting has changed");
        assert!(!list.has(&other, &some(1)) && !list.has(home.path(), &some(1)));
        let file = home.path().join("state/team/trust.json");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        list.set(&one, None).unwrap();
        assert!(!list.has(&one, &some(1)));
        list.set(&one, Some(some(1))).unwrap();
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(list.set(&one, Some(some(2))).unwrap_err().why.contains("by others"));
        let nowhere = TrustList::of(&Environment::of(&[]));
        assert!(nowhere.set(&one, Some(some(1))).unwrap_err().why.contains("HOME"));
    }
}
