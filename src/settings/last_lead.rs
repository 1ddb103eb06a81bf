//! The last lead that the user started in a folder, recorded in the user's own state folder.
//!
//! A resumed lead takes over the permission mode that the roster names. A cloned folder may contain a roster, so a
//! looser mode counts only if the roster is that of the recorded lead.

use super::environment::Environment;
use super::trust::{folder_key, replace};
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

    /// Whether the last lead that the user started in the folder had this incarnation.
    pub(crate) fn was(&self, incarnation: &str) -> bool {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let record = text.and_then(|text| serde_json::from_str(&text).ok());
        record == Some(self.record_of(incarnation))
    }

    /// Records the incarnation of a lead that starts. Fails if the file cannot be written.
    pub(crate) fn set(&self, incarnation: &str) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        replace(file, &serde_json::to_string(&self.record_of(incarnation))?)
    }

    fn record_of(&self, incarnation: &str) -> Record {
        Record { version: 1, folder: self.folder.clone(), incarnation: incarnation.into() }
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
        assert!(!last.was("one"));
        last.set("one").unwrap();
        last.set("two").unwrap();
        assert!(last.was("two") && !last.was("one"));
        assert!(!LastLead::of(&environment, &there).was("two"));
        let homeless = LastLead::of(&Environment::default(), &here);
        homeless.set("two").unwrap();
        assert!(!homeless.was("two"), "without a home nothing is recorded");
    }
}
