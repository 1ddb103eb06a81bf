//! The limits that the user of a host sets to the teams of other hosts: `team/host.toml` beside the user's settings. No file
//! of a project changes them.

use super::environment::Environment;
use crate::wire::carried::HostName;
use crate::wire::permission::PermissionMode;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The limits of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLimits {
    /// The hosts that may have the lead: those whose orders this host obeys. `None` for the one that has signed it in.
    pub leads: Option<BTreeSet<HostName>>,
    /// The loosest permission mode of a teammate that another host orders.
    pub mode: Option<PermissionMode>,
    /// The most teammates that other hosts have here at a time.
    pub max_members: Option<usize>,
    /// The folders in which teams of other hosts may work; `None` for all.
    pub folders: Option<Vec<PathBuf>>,
}

impl HostLimits {
    /// Reads the limits of this host; without a file, there are none.
    ///
    /// # Errors
    /// In words: the file cannot be read or understood. Then no order of another host may be carried out.
    pub(crate) fn read(environment: &Environment) -> Result<Self, String> {
        let Some(path) = Self::file(environment) else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(why) => return Err(format!("{}: {why}", path.display())),
        };
        let parsed = Self::parse(&text, environment.get("HOME").map(Path::new));
        parsed.map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Returns the path of the file.
    pub(crate) fn file(environment: &Environment) -> Option<PathBuf> {
        environment.config_home().map(|home| home.join("team/host.toml"))
    }

    fn parse(text: &str, home: Option<&Path>) -> Result<Self, String> {
        let mut limits: Self =
            toml::from_str(text).map_err(|why| why.to_string().trim_end().to_owned())?;
        for folder in limits.folders.iter_mut().flatten() {
            if let (Ok(rest), Some(home)) = (folder.strip_prefix("~"), home) {
                *folder = home.join(rest);
            }
            if !folder.is_absolute() {
                return Err(format!("{} is not an absolute path", folder.display()));
            }
        }
        Ok(limits)
    }

    /// Refuses a folder in which teams of other hosts may not work.
    ///
    /// # Errors
    /// In words.
    pub fn check_folder(&self, folder: &Path) -> Result<(), String> {
        let Some(folders) = &self.folders else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if folders.iter().any(|allowed| real(folder).starts_with(real(allowed))) {
            return Ok(());
        }
        Err(format!("{} is in none of the `folders` of host.toml", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_limits_is_read_and_wrong_ones_are_refused() {
        let text = "leads = [\"ann\"]\nmode = \"plan\"\nmax_members = 2\nfolders = [\"~/work\"]\n";
        let limits = HostLimits::parse(text, Some(Path::new("/home/eve"))).unwrap();
        assert_eq!(limits.folders, Some(vec![PathBuf::from("/home/eve/work")]));
        assert_eq!((limits.max_members, limits.mode), (Some(2), Some(PermissionMode::Plan)));
        limits.check_folder(Path::new("/home/eve/work/shop")).unwrap();
        limits.check_folder(Path::new("/home/eve/workshop")).unwrap_err();
        HostLimits::default().check_folder(Path::new("/anywhere")).unwrap();
        for (wrong, word) in [
            ("lead = \"ann\"", "lead"),
            ("leads = [\"Ann\"]", "Ann"),
            ("mode = \"fast\"", "fast"),
            ("folders = [\"work\"]", "absolute"),
        ] {
            let why = HostLimits::parse(wrong, None).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
