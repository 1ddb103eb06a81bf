//! The last lead that the user started in a folder, recorded in the user's own state folder.
//!
//! A resumed lead takes over the permission mode that the roster names. Others may have written the roster, so a looser
//! mode counts only if it is recorded here, for the lead that the roster names.

use super::environment::Environment;
use super::trust::{folder_key, replace};
use crate::wire::permission::PermissionMode;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The record of one folder.
#[derive(Debug)]
pub(crate) struct LastLead {
    file: Option<PathBuf>,
    folder: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    version: u32,
    folder: String,
    incarnation: String,
    mode: String,
}

impl LastLead {
    /// Names the record of a team folder; there is none without `HOME` and `XDG_STATE_HOME`.
    pub(crate) fn of(environment: &Environment, folder: &Path) -> Self {
        let folder = folder_key(folder).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let name = format!("team/leads/{:016x}.json", hasher.finish());
        let file = environment.state_home().filter(|_| !folder.is_empty());
        Self { file: file.map(|home| home.join(name)), folder }
    }

    /// Returns the last mode of this incarnation, if it was the last lead that the user started in the folder.
    pub(crate) fn mode_of(&self, incarnation: &str) -> Option<PermissionMode> {
        let text = fs::read_to_string(self.file.as_ref()?).ok()?;
        let record: Record = serde_json::from_str(&text).ok()?;
        let is_it = record.folder == self.folder && record.incarnation == incarnation;
        PermissionMode::parse(&record.mode).filter(|_| is_it)
    }

    /// Records a lead that runs, and its mode. Fails if the file cannot be written.
    pub(crate) fn set(&self, incarnation: &str, mode: PermissionMode) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (folder, incarnation) = (self.folder.clone(), incarnation.to_owned());
        let record = Record { version: 1, folder, incarnation, mode: mode.word().into() };
        replace(file, &serde_json::to_string(&record)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lead_of_the_same_folder_and_user_counts() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::of(&[("HOME", home.path().to_str().unwrap())]);
        let [here, there] = ["here", "there"].map(|name| home.path().join(name));
        for folder in [&here, &there] {
            fs::create_dir(folder).unwrap();
        }
        let last = LastLead::of(&environment, &here);
        let bypass = PermissionMode::Bypass;
        assert_eq!(last.mode_of("one"), None);
        last.set("one", bypass).unwrap();
        last.set("two", bypass).unwrap();
        assert_eq!((last.mode_of("two"), last.mode_of("one")), (Some(bypass), None));
        assert_eq!(LastLead::of(&environment, &there).mode_of("two"), None);
        let homeless = LastLead::of(&Environment::default(), &here);
        homeless.set("two", bypass).unwrap();
        assert_eq!(homeless.mode_of("two"), None, "without a home nothing is recorded");
    }
}
