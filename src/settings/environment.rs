//! The process environment, read once, and the part of it that is passed on to commands and teammates.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A copy of the environment. Values that are not UTF-8 are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
}

/// Variables that are passed on to teammates and to the commands of agents. All others are left out, since they
/// may be credentials.
const PASSED_ON: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TERM",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
];

impl Environment {
    pub(crate) fn read() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(own).collect() }
    }

    /// Returns the value of a variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn config_home(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config")
    }

    /// Returns the folders with the user's own roles, nearest first.
    pub(crate) fn role_folders(&self) -> Vec<PathBuf> {
        let own = self.config_home().map(|home| home.join("team/roles"));
        let foreign = self.get("HOME").map(|home| PathBuf::from(home).join(".claude/agents"));
        own.into_iter().chain(foreign).collect()
    }

    /// Returns the folder for the state of the user's programs.
    pub(crate) fn state_home(&self) -> Option<PathBuf> {
        self.folder("XDG_STATE_HOME", ".local/state")
    }

    fn folder(&self, variable: &str, in_home: &str) -> Option<PathBuf> {
        let home = || self.get("HOME").map(|home| PathBuf::from(home).join(in_home));
        self.get(variable).map(PathBuf::from).or_else(home)
    }

    /// Returns the variables that are passed on to teammates and commands: the allow list and the locale.
    pub(crate) fn passed_on(&self) -> Vec<(String, String)> {
        let allowed = |name: &str| PASSED_ON.contains(&name) || name.starts_with("LC_");
        let pairs = self.variables.iter().filter(|(name, _)| allowed(name));
        pairs.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_passed_on() {
        let environment = Environment::of(&[
            ("PATH", "/bin"),
            ("ANTHROPIC_API_KEY", "sk-ant-canary"),
            ("AWS_SECRET_ACCESS_KEY", "canary"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "/x.so"),
        ]);
        let names: Vec<_> = environment.passed_on().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }
}
