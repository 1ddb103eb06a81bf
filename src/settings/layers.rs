//! The declaration of a setting, and the layers from which it is read: flag, environment, the folder's file, the
//! user's own file.

use super::environment::Environment;
use super::mcp_json::WorkspaceServers;
use super::trust::Risks;
use super::value::{SettingEntry, SettingValue};
use crate::error::{Exit, Failure, OrFail};
use crate::wire::nearest::nearest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The declaration of one setting: a row of [`super::table`].
#[derive(Debug)]
pub(crate) struct SettingSpec {
    /// The dotted name in a settings file, such as `permissions.mode`.
    pub(super) key: &'static str,
    /// The lines of the documentation comment.
    pub(super) description: &'static str,
    /// Whether no environment variable sets it.
    pub(super) is_file_only: bool,
    pub(super) flag: Option<&'static str>,
    /// A second environment variable, which counts if the first one is not set.
    pub(super) also: Option<&'static str>,
    /// The text that `team config` shows while no value is set.
    pub(super) unset: &'static str,
    /// The value that the commented file shows if there is no default.
    pub(super) example: Option<&'static str>,
    /// The lines that the commented file shows instead of `key = value`.
    pub(super) block: Option<&'static str>,
    /// Whether 0 is refused.
    pub(super) is_positive: bool,
    /// Whether the value in a team folder's file needs `team trust`.
    pub(super) needs_trust: bool,
}

impl SettingSpec {
    /// Declares a setting with this field name; its documentation comment is the description.
    pub(super) const fn new(field: &'static str, description: &'static str) -> Self {
        Self {
            key: field,
            description,
            is_file_only: false,
            flag: None,
            also: None,
            unset: "(none)",
            example: None,
            block: None,
            is_positive: false,
            needs_trust: false,
        }
    }

    /// Returns the environment variable that sets it, if any.
    pub(super) fn variable(&self) -> Option<String> {
        let name = self.trust_key().replace('.', "_").to_uppercase();
        let providers = ["ANTHROPIC_", "OPENAI_", "GEMINI_"];
        let is_providers_own = providers.iter().any(|prefix| name.starts_with(prefix));
        (!self.is_file_only).then(|| if is_providers_own { name } else { format!("TEAM_{name}") })
    }

    /// Returns the environment variables that set it, the one that wins first.
    pub(super) fn variables(&self) -> impl Iterator<Item = String> {
        self.variable().into_iter().chain(self.also.map(Into::into))
    }

    /// Returns its name in the list of trusted settings.
    pub(super) fn trust_key(&self) -> &'static str {
        self.key.strip_prefix("permissions.").unwrap_or(self.key)
    }

    pub(super) fn description_lines(&self) -> impl Iterator<Item = &'static str> {
        self.description.lines().map(str::trim)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    /// The nearest layer that sets the value, as `team config` shows it.
    pub(crate) source: String,
}

impl<T> Setting<T> {
    /// Whether no layer sets the value.
    pub(crate) fn is_default(&self) -> bool {
        self.source == DEFAULT_SOURCE
    }

    /// Whether a flag or the environment sets the value for this run.
    pub(crate) fn is_of_this_run(&self) -> bool {
        self.source == FLAG_SOURCE || self.source.starts_with(ENVIRONMENT_SOURCE)
    }
}

pub(super) const DEFAULT_SOURCE: &str = "default";

const FLAG_SOURCE: &str = "flag";

const ENVIRONMENT_SOURCE: &str = "environment (";

/// A settings table with free keys; each entry has its own source.
pub(crate) type SettingMap<T> = BTreeMap<<T as SettingEntry>::Name, Setting<T>>;

pub(super) fn environment_source(variable: &str) -> String {
    format!("{ENVIRONMENT_SOURCE}{variable})")
}

/// A setting as `team config` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

/// Settings given as command-line flags: the flag's name and its text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(BTreeMap<&'static str, String>);

impl Flags {
    /// Returns those of these flags that are given.
    pub(crate) fn of<const N: usize>(flags: [(&'static str, Option<&str>); N]) -> Self {
        let given = |(flag, text): (_, Option<&str>)| Some((flag, text?.to_owned()));
        Self(flags.into_iter().filter_map(given).collect())
    }
}

/// Reads the text of a settings file; empty if there is none.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        text => {
            let what = format!("{} cannot be read", file.display());
            text.or_fail(what, "check the file's permissions")
        }
    }
}

/// A settings file: its values by dotted key.
#[derive(Debug)]
pub(super) struct SettingsFile<'t> {
    path: &'t Path,
    text: &'t str,
    values: BTreeMap<String, Spanned<DeValue<'t>>>,
}

impl<'t> SettingsFile<'t> {
    /// Parses the text of a file that may have these settings and no others. Returns the values that are understood,
    /// and a failure with the line of each other one.
    pub(super) fn parse(
        path: &'t Path,
        text: &'t str,
        specs: &[&SettingSpec],
    ) -> (Self, Vec<Failure>) {
        let mut file = Self { path, text, values: BTreeMap::new() };
        let mut failures = Vec::new();
        match DeTable::parse(text) {
            Ok(table) => file.flatten("", table.into_inner(), specs, &mut failures),
            Err(why) => failures.push(file.not_toml(&why)),
        }
        (file, failures)
    }

    fn flatten(
        &mut self,
        above: &str,
        table: DeTable<'t>,
        specs: &[&SettingSpec],
        failures: &mut Vec<Failure>,
    ) {
        for (name, value) in table {
            let key = format!("{above}{}", name.get_ref());
            let (section, at) = (format!("{key}."), value.span().start);
            // A quoted name with a dot is one name, not a path.
            let is_path = !name.get_ref().contains('.');
            if is_path && specs.iter().any(|spec| spec.key == key) {
                let value = self.take_settings(&section, value, specs);
                self.values.insert(key, value);
            } else if !(is_path && specs.iter().any(|spec| spec.key.starts_with(&section))) {
                let near = nearest(&key, specs.iter().map(|spec| spec.key));
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let why = format!("unknown key `{key}`{near}");
                failures.push(self.unusable_at(name.span().start, why));
            } else if let DeValue::Table(table) = value.into_inner() {
                self.flatten(&section, table, specs, failures);
            } else {
                let why = format!("`{key}` must be a table: write [{key}] above its keys");
                failures.push(self.unusable_at(at, why));
            }
        }
    }

    /// Takes the settings of their own out of a table with free keys, and returns the rest of it.
    fn take_settings(
        &mut self,
        section: &str,
        value: Spanned<DeValue<'t>>,
        specs: &[&SettingSpec],
    ) -> Spanned<DeValue<'t>> {
        if !value.get_ref().is_table() {
            return value;
        }
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Spanned::new(span, DeValue::Table(DeTable::new()));
        };
        let mut rest = DeTable::new();
        for (name, value) in table {
            let key = format!("{section}{}", name.get_ref());
            if specs.iter().any(|spec| spec.key == key) {
                self.values.insert(key, value);
            } else {
                rest.insert(name, value);
            }
        }
        Spanned::new(span, DeValue::Table(rest))
    }

    /// Reads a value; `expected` says in plain words what it must be.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        key: &str,
        expected: impl FnOnce() -> String,
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let read = T::deserialize(ValueDeserializer::from(value.clone()));
        read.map(Some).map_err(|why| {
            let why_not = format!("`{key}` must be {}; {}", expected(), why.message());
            self.unusable_at(why.span().unwrap_or_else(|| value.span()).start, why_not)
        })
    }

    fn source(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes the failure of a text that is not TOML, in the words of the line where it breaks.
    fn not_toml(&self, why: &toml::de::Error) -> Failure {
        let offset = why.span().map_or(0, |span| span.start);
        let before = self.text.get(..offset).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let what = match line.split_once('=') {
            Some((key, _)) if why.message().starts_with("duplicate key") => {
                let why = format!("`{}` is in the file twice", key.trim());
                return self.unusable_at(offset, why);
            }
            Some((key, value)) if value.trim().is_empty() => {
                format!("`{}` has no value", key.trim())
            }
            Some((key, value)) if value.trim().starts_with(|c: char| c.is_ascii_alphabetic()) => {
                format!("the value of `{}` is text, which needs quotes", key.trim())
            }
            Some((key, _)) => format!("the value of `{}` is not complete", key.trim()),
            None => "a line is `key = value` or `[table]`".into(),
        };
        self.unusable_at(offset, format!("{what} ({})", why.message().replace('\n', ", ")))
    }

    fn unusable_at(&self, offset: usize, why: String) -> Failure {
        let line = self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let what = format!("{} line {line} is invalid", self.path.display());
        Failure::new(
            Exit::Usage,
            what,
            why,
            "correct the line; `team config` shows all errors, or all keys if there are none",
        )
    }
}

/// All layers, and the values of the folder that are not in force.
pub(super) struct Layers<'t> {
    flags: &'t Flags,
    environment: &'t Environment,
    /// The nearest first; the first one is the team folder's.
    files: Vec<SettingsFile<'t>>,
    /// The servers that the workspace's `.mcp.json` defines, which belongs to the folder.
    workspace_servers: Option<WorkspaceServers>,
    /// Whether all values of the folder are in force.
    pub(super) is_trusted: bool,
    /// The values of the folder that need trust.
    pub(super) risks: Risks,
    /// The values of the folder that are not in force.
    pub(super) ignored: Risks,
}

impl<'t> Layers<'t> {
    /// Creates layers with a trusted folder.
    pub(super) fn new(
        flags: &'t Flags,
        environment: &'t Environment,
        files: Vec<SettingsFile<'t>>,
    ) -> Self {
        let (risks, ignored) = (Risks::new(), Risks::new());
        Self {
            flags,
            environment,
            files,
            workspace_servers: None,
            is_trusted: true,
            risks,
            ignored,
        }
    }

    /// Adds the servers of the workspace's own file.
    pub(super) fn with_workspace_servers(self, servers: Option<WorkspaceServers>) -> Self {
        Self { workspace_servers: servers, ..self }
    }

    pub(super) fn workspace_servers(&self) -> Option<WorkspaceServers> {
        self.workspace_servers.clone()
    }

    /// Returns the source of values of the folder's settings file.
    pub(super) fn folder_source(&self) -> Option<String> {
        self.files.first().map(SettingsFile::source)
    }

    /// Returns the values of a setting that are in force, the nearest layer first. Records a folder's value that
    /// needs trust or is not in force.
    fn values<T: SettingValue>(&mut self, spec: &SettingSpec) -> Result<Vec<Setting<T>>, Failure> {
        let mut found = Vec::new();
        if let Some(flag) = spec.flag
            && let Some(text) = self.flags.0.get(flag)
        {
            found.push(Setting { value: parse(flag, text)?, source: FLAG_SOURCE.into() });
        }
        for name in spec.variables() {
            let Some(text) = self.environment.get(&name) else { continue };
            found.push(Setting { value: parse(&name, text)?, source: environment_source(&name) });
        }
        let nearer = found.len();
        let mut of_files = self.files.iter().map(|file| {
            let value = file.get(spec.key, T::expected)?.filter(T::is_said);
            Ok::<_, Failure>(value.map(|value| Setting { value, source: file.source() }))
        });
        let of_folder = of_files.next().transpose()?.flatten();
        for of_user in of_files {
            found.extend(of_user?);
        }
        if let Some(folders) = of_folder {
            let (needs_trust, key) = (spec.needs_trust, || spec.trust_key().to_owned());
            if needs_trust && folders.value.is_risk() {
                self.risks.insert(key(), json!(folders.value));
            }
            let own = found.first().map(|own| &own.value);
            if !needs_trust || self.is_trusted || folders.value.acts_untrusted(own) {
                found.insert(nearer, folders);
            } else {
                self.ignored.insert(key(), json!(folders.value));
            }
        }
        Ok(found)
    }
}

fn parse<T: SettingValue>(place: &str, text: &str) -> Result<T, Failure> {
    let hint = format!("give {place} another value, or leave it out");
    T::parse(text).or_exit(Exit::Usage, format!("{place} is invalid"), hint)
}

/// A field of the settings: one value, or a table with free keys.
pub(super) trait SettingField: Sized {
    /// The type of the default in the declaration.
    type Default;

    fn read(
        spec: &SettingSpec,
        default: Self::Default,
        layers: &mut Layers<'_>,
    ) -> Result<Self, Failure>;

    fn rows(&self, spec: &SettingSpec) -> Vec<ConfigRow>;

    /// Returns the value as TOML; `None` if it is unset or a table.
    fn toml(&self) -> Option<String> {
        None
    }
}

impl<T: SettingValue> SettingField for Setting<T> {
    type Default = T;

    fn read(spec: &SettingSpec, default: T, layers: &mut Layers<'_>) -> Result<Self, Failure> {
        let nearer_first = layers.values::<T>(spec)?.into_iter();
        let combine =
            |near: Self, far: Self| Self { value: near.value.with_farther(far.value), ..near };
        let setting = nearer_first.reduce(combine);
        let setting = setting.unwrap_or(Self { value: default, source: DEFAULT_SOURCE.into() });
        if spec.is_positive && json!(setting.value) == json!(0) {
            let what = format!("{} may not be 0", spec.key);
            let why = format!("it was set by: {}", setting.source);
            let hint = "give it a positive number, or leave it out for the default";
            return Err(Failure::new(Exit::Usage, what, why, hint));
        }
        Ok(setting)
    }

    fn rows(&self, spec: &SettingSpec) -> Vec<ConfigRow> {
        let value = self.value.shown().unwrap_or_else(|| spec.unset.into());
        vec![ConfigRow { key: spec.key.into(), value, source: self.source.clone() }]
    }

    fn toml(&self) -> Option<String> {
        // Numbers, words and lists of them are the same in JSON and in TOML.
        let value = json!(self.value);
        if let Value::Array(items) = &value {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            return Some(format!("[{}]", items.join(", ")));
        }
        (!value.is_null()).then(|| value.to_string())
    }
}

impl<T: SettingEntry> SettingField for SettingMap<T> {
    type Default = ();

    fn read(spec: &SettingSpec, (): (), layers: &mut Layers<'_>) -> Result<Self, Failure> {
        let mut found = Self::new();
        let mut ignored = BTreeMap::new();
        // The files are read from the farthest to the nearest, which is the folder's.
        for (at, file) in layers.files.iter().enumerate().rev() {
            let entries: BTreeMap<T::Name, T> =
                file.get(spec.key, || T::EXPECTED.into())?.unwrap_or_default();
            if at == 0 {
                layers.risks.extend(entry_risks(spec, &entries));
            }
            for (name, value) in entries {
                let own = found.get(&name).map(|own| &own.value);
                if at > 0 || layers.is_trusted || value.acts_untrusted(&name, own) {
                    found.insert(name, Setting { value, source: file.source() });
                } else {
                    ignored.insert(name, value);
                }
            }
        }
        layers.ignored.extend(entry_risks(spec, &ignored));
        Ok(found)
    }

    fn rows(&self, spec: &SettingSpec) -> Vec<ConfigRow> {
        let row = |(name, setting): (&T::Name, &Setting<T>)| ConfigRow {
            key: format!("{}.{name}", spec.key),
            value: setting.value.shown(name),
            source: setting.source.clone(),
        };
        self.iter().map(row).collect()
    }
}

fn entry_risks<T: SettingEntry>(spec: &SettingSpec, entries: &BTreeMap<T::Name, T>) -> Risks {
    let key = spec.trust_key();
    if T::IS_TRUSTED_AS_A_WHOLE && !entries.is_empty() {
        return Risks::from_iter([(key.to_owned(), json!(entries))]);
    }
    entries.iter().map(|(name, entry)| (format!("{key}.{name}"), json!(entry))).collect()
}
