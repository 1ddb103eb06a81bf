//! The process environment, read once, and the part of it that is passed on to commands and teammates.

use super::value::SettingValue;
use crate::llm::CREDENTIAL_VARIABLES;
use crate::llm::registry::Variables;
use crate::wire::model_keys::ModelKeys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A copy of the environment. Values that are not UTF-8 are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
}

/// Variables that are passed on to teammates and to the commands of agents. All others are left out, since they
/// may be credentials.
const PASSED_ON: [&str; 18] = [
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
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// The folders of the user's home with skills, nearest first.
const SKILLS: [&str; 2] = [".agents/skills", ".claude/skills"];

/// Variables with the address of a proxy, which are passed on, too.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Parts of names of variables that hold a key. No setting passes them on.
const PARTS_OF_KEYS: [&str; 9] = [
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
];

/// Names of further variables that are passed on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct PassedNames(Vec<String>);

impl TryFrom<Vec<String>> for PassedNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        names.iter().try_for_each(|name| may_be_passed(name))?;
        Ok(Self(names))
    }
}

/// Fails for a name that is no name of a variable, or that may be one of a key.
fn may_be_passed(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(fits) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(format!("{name:?} is not the name of a variable: letters, digits and _"));
    }
    let upper = name.to_uppercase();
    let mut of_providers = CREDENTIAL_VARIABLES.into_iter();
    let is_key = PARTS_OF_KEYS.iter().any(|part| upper.contains(part))
        || of_providers.any(|variables| variables.owns(&upper));
    if is_key {
        let why = "may hold a key, which teammates and commands do not get; the lead passes a \
                   model's key by itself";
        return Err(format!("{name} {why}"));
    }
    if upper.starts_with("TEAM_") {
        return Err(format!("{name} is a variable of this program, which sets it itself"));
    }
    Ok(())
}

impl SettingValue for PassedNames {
    fn parse(text: &str) -> Result<Self, String> {
        let names = text.split([',', ' ']).filter(|part| !part.is_empty());
        Self::try_from(names.map(ToOwned::to_owned).collect::<Vec<_>>())
    }

    fn expected() -> String {
        "a list of names of variables such as [\"EDITOR\"]".into()
    }

    fn shown(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(", "))
    }

    fn is_said(&self) -> bool {
        !self.0.is_empty()
    }

    fn with_farther(mut self, farther: Self) -> Self {
        self.0.extend(farther.0);
        self
    }
}

/// Returns the variables with keys of models.
fn key_variables() -> impl Iterator<Item = String> {
    CREDENTIAL_VARIABLES.into_iter().flat_map(Variables::credentials)
}

/// Checks that a variable is one with the key of a model.
///
/// # Errors
/// In words: it is another one.
pub fn check_key_variable(name: &str) -> Result<(), String> {
    let all: Vec<_> = key_variables().collect();
    if all.iter().any(|known| known == name) {
        return Ok(());
    }
    Err(format!("{name} is no variable with the key of a model; these are: {}", all.join(", ")))
}

/// Returns the keys of models in the environment of this process.
pub fn own_model_keys() -> ModelKeys {
    Environment::read().model_keys()
}

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

    /// Returns the keys of models.
    pub(crate) fn model_keys(&self) -> ModelKeys {
        let named = |name: String| Some((self.get(&name)?.to_owned(), name));
        key_variables().filter_map(named).map(|(key, name)| (name, key)).collect()
    }

    /// Returns this environment with the keys of others, for providers of which it has none. Other variables are left out.
    pub(crate) fn with_keys(&self, keys: &ModelKeys) -> Self {
        let mut variables = self.variables.clone();
        for provider in CREDENTIAL_VARIABLES {
            if provider.credentials().all(|name| self.get(&name).is_none()) {
                let given = provider.credentials().filter_map(|name| {
                    let key = keys.get(&name)?.to_owned();
                    Some((name, key))
                });
                variables.extend(given);
            }
        }
        Self { variables }
    }

    /// Returns the variables that are not empty.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(_, value)| !value.is_empty())
    }

    /// Returns the passwords in the addresses of proxies, for redaction.
    pub(crate) fn proxy_passwords(&self) -> impl Iterator<Item = String> {
        let addresses = PROXIES.iter().filter_map(|name| self.get(name));
        addresses.filter_map(|address| {
            let (user, _host) = address.rsplit_once('@')?;
            let user = user.rsplit_once("//").map_or(user, |(_, user)| user);
            user.split_once(':').map(|(_, password)| password.to_owned())
        })
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

    /// Returns the folders with the user's own skills, nearest first.
    pub(crate) fn skill_folders(&self) -> Vec<PathBuf> {
        let home = self.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute()).into_iter();
        home.flat_map(|home| SKILLS.map(|folder| home.join(folder))).collect()
    }

    /// Returns the folder for the state of the user's programs.
    pub(crate) fn state_home(&self) -> Option<PathBuf> {
        self.folder("XDG_STATE_HOME", ".local/state")
    }

    fn folder(&self, variable: &str, in_home: &str) -> Option<PathBuf> {
        let home = || self.get("HOME").map(|home| PathBuf::from(home).join(in_home));
        self.get(variable).map(PathBuf::from).or_else(home)
    }

    /// Returns the variables that are passed on to teammates and commands: the allow list, the locale, and `further`.
    pub(crate) fn passed_on(&self, further: &PassedNames) -> Vec<(String, String)> {
        let is_listed = |name: &String| {
            let known = PASSED_ON.iter().chain(&PROXIES);
            known.into_iter().any(|known| known == name)
                || name.starts_with("LC_")
                || further.0.contains(name)
        };
        let pairs = self.variables.iter().filter(|(name, _)| is_listed(name));
        pairs.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others_are_for_providers_without_one() {
        let own = Environment::of(&[("ANTHROPIC_AUTH_TOKEN", "own"), ("GEMINI_API_KEY", "")]);
        let given =
            ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "OPENAI_BASE_URL", "PATH"];
        let keys = given.map(|name| (name.to_owned(), "sent".to_owned())).into_iter().collect();
        let both = own.with_keys(&keys);
        let found = given.map(|name| both.get(name));
        assert_eq!(found, [None, Some("sent"), Some("sent"), None, None]);
        assert_eq!(both.get("ANTHROPIC_AUTH_TOKEN"), Some("own"));
        assert_eq!(both.model_keys().iter().count(), 3);
    }

    #[test]
    fn credentials_are_not_passed_on_even_if_a_setting_names_them() {
        let environment = Environment::of(&[
            ("PATH", "/bin"),
            ("ANTHROPIC_API_KEY", "sk-ant-canary"),
            ("AWS_SECRET_ACCESS_KEY", "canary"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "/x.so"),
            ("https_proxy", "http://me:canary@proxy:1"),
            ("EDITOR", "vi"),
        ]);
        let passed = |further: &PassedNames| -> Vec<String> {
            environment.passed_on(further).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(environment.proxy_passwords().collect::<Vec<_>>(), ["canary"]);
        assert_eq!(passed(&PassedNames::default()), ["LC_ALL", "PATH", "https_proxy"]);
        let further = PassedNames::parse("EDITOR, UNSET").unwrap();
        assert_eq!(passed(&further), ["EDITOR", "LC_ALL", "PATH", "https_proxy"]);
        for (name, why) in [
            ("ANTHROPIC_API_KEY", "may hold a key"),
            ("ANTHROPIC_CUSTOM_HEADERS", "may hold a key"),
            ("OPENAI_BASE_URL", "may hold a key"),
            ("GEMINI_CUSTOM_HEADERS", "may hold a key"),
            ("GOOGLE_API_KEY", "may hold a key"),
            ("GOOGLE_GEMINI_BASE_URL", "may hold a key"),
            ("AWS_SECRET_ACCESS_KEY", "may hold a key"),
            ("gh_token", "may hold a key"),
            ("PGPASSWORD", "may hold a key"),
            ("TEAM_RUN", "of this program"),
            ("NPM_*", "is not the name"),
            ("1A", "is not the name"),
        ] {
            let refused = PassedNames::parse(name).unwrap_err();
            assert!(refused.contains(name) && refused.contains(why), "{refused}");
        }
    }
}
