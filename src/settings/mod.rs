//! Flags, environment and settings files -> one immutable [`Settings`]; the only reader of the
//! environment.
//!
//! Order (SPEC 7): flag, then environment, then `.team/settings.toml`, then
//! `$XDG_CONFIG_HOME/team/settings.toml`, then the default. Every value remembers where it came from.

pub(crate) mod endpoints;
pub(crate) mod environment;
mod hooks;
pub(crate) mod model;
pub(crate) mod permissions;
pub(crate) mod spending;
pub(crate) mod trust;

use crate::error::{Exit, Failure};
use crate::wire::budget::Budgets;
use crate::wire::hook::Hook;
use crate::wire::limits;
use crate::wire::money::Price;
use crate::wire::permission::{PermissionMode, PlanApproval};
use crate::wire::restart::RestartPolicy;
use endpoints::{AnthropicLayer, Endpoints, OpenAiLayer};
use environment::Environment;
use permissions::{PermissionLayer, PermissionSettings};
use serde::{Deserialize, Serialize};
use spending::Spending;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use trust::TrustList;

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting<T> {
    /// The value in force.
    pub(crate) value: T,
    /// Who said so.
    pub(crate) source: Source,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A command-line flag.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A settings file.
    File(PathBuf),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => out.write_str("flag"),
            Self::Environment(name) => write!(out, "environment ({name})"),
            Self::File(path) => write!(out, "{}", path.display()),
            Self::Default => out.write_str("default"),
        }
    }
}

/// What is made durable before a send is called successful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fsync {
    /// Survives power loss.
    Always,
    /// Survives `kill -9`, not power loss.
    Never,
}

impl fmt::Display for Fsync {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// Where llama-server, Ollama and LM Studio listen.
const LOCAL_PORTS: [u16; 3] = [8080, 11434, 1234];

/// How much a model is told beforehand: all of it, or what a small local one can keep in mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PromptProfile {
    /// Compact for a local server, else full.
    Auto,
    /// Everything.
    Full,
    /// A short prompt and five tools.
    Compact,
}

impl fmt::Display for PromptProfile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Auto => "auto",
            Self::Full => "full",
            Self::Compact => "compact",
        })
    }
}

/// All settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Teammates that may live at once.
    pub(crate) max_teammates: Setting<usize>,
    /// Model calls that one turn may take.
    pub(crate) max_rounds: Setting<u32>,
    /// Bytes that the content of one message may have.
    pub(crate) max_message_bytes: Setting<usize>,
    /// Bytes that one inbox may hold.
    pub(crate) inbox_bytes: Setting<u64>,
    /// Durability of mail.
    pub(crate) fsync: Setting<Fsync>,
    /// When an ended teammate is started again.
    pub(crate) restart: Setting<RestartPolicy>,
    /// Seconds without a sign of life after which a teammate counts as hung; 0 for never.
    pub(crate) hung_after: Setting<u64>,
    /// Turns that two agents may give each other without doing anything else.
    pub(crate) max_exchanges: Setting<u32>,
    /// Messages that one agent's model may send in a minute.
    pub(crate) max_sends: Setting<usize>,
    /// Whether idle teammates take tasks by themselves.
    pub(crate) auto_claim: Setting<bool>,
    /// What runs when something happens: the hooks of all files together, the nearest file named.
    pub(crate) hooks: Setting<Vec<Hook>>,
    /// What a folder that is not trusted wanted to run or loosen; for the person.
    pub(crate) ignored: Option<String>,
    /// `provider/name` of the model, if anything names one.
    pub(crate) model: Setting<Option<String>>,
    /// Tokens that fit the model, where somebody has said so.
    pub(crate) context_tokens: Setting<Option<u64>>,
    /// How much the model is told beforehand.
    pub(crate) prompt_profile: Setting<PromptProfile>,
    /// Loopback ports on which a local model server is looked for.
    pub(crate) local_ports: Setting<Vec<u16>>,
    /// Where calls go.
    pub(crate) endpoints: Endpoints,
    /// What may be used, and what it costs.
    pub(crate) spending: Spending,
    /// `[permissions]`.
    pub(crate) permissions: PermissionSettings,
}

/// What flags may set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// `--model`.
    pub(crate) model: Option<String>,
    /// `--mode`.
    pub(crate) mode: Option<PermissionMode>,
}

/// One settings file, or the environment read the same way.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    max_teammates: Option<usize>,
    max_rounds: Option<u32>,
    max_message_bytes: Option<usize>,
    inbox_bytes: Option<u64>,
    fsync: Option<Fsync>,
    restart: Option<RestartPolicy>,
    hung_after: Option<u64>,
    max_exchanges: Option<u32>,
    max_sends: Option<usize>,
    auto_claim: Option<bool>,
    hooks: Option<Vec<Hook>>,
    model: Option<String>,
    context_tokens: Option<u64>,
    prompt_profile: Option<PromptProfile>,
    local_ports: Option<Vec<u16>>,
    #[serde(default)]
    anthropic: AnthropicLayer,
    #[serde(default)]
    openai: OpenAiLayer,
    budget: Option<Budgets>,
    prices: Option<BTreeMap<String, Price>>,
    #[serde(default)]
    permissions: PermissionLayer,
}

impl Settings {
    /// Puts all sources together. `folder_file` is the team folder's settings file.
    ///
    /// # Errors
    /// A file or variable has an unknown key or a value of the wrong kind; the failure names the file
    /// and line.
    pub(crate) fn load(
        environment: &Environment,
        folder_file: &Path,
        flags: &Flags,
    ) -> Result<Self, Failure> {
        let user_file = environment.config_home().map(|home| home.join("team/settings.toml"));
        let mut layers = vec![
            (Source::Flag, from_flags(flags)),
            (Source::Environment(String::new()), from_environment(environment)?),
            (Source::File(folder_file.to_path_buf()), from_file(folder_file)?),
        ];
        if let Some(file) = user_file {
            layers.push((Source::File(file.clone()), from_file(&file)?));
        }
        let ignored = trust::strip_untrusted(&mut layers, folder_file, &TrustList::of(environment));
        let settings = Self {
            max_teammates: pick(
                &layers,
                "max_teammates",
                |layer| layer.max_teammates,
                limits::DEFAULT_TEAMMATES,
            ),
            max_rounds: pick(
                &layers,
                "max_rounds",
                |layer| layer.max_rounds,
                limits::DEFAULT_ROUNDS,
            ),
            max_message_bytes: pick(
                &layers,
                "max_message_bytes",
                |layer| layer.max_message_bytes,
                limits::DEFAULT_MESSAGE_BYTES,
            ),
            inbox_bytes: pick(
                &layers,
                "inbox_bytes",
                |layer| layer.inbox_bytes,
                limits::DEFAULT_INBOX_BYTES,
            ),
            fsync: pick(&layers, "fsync", |layer| layer.fsync, Fsync::Always),
            restart: pick(&layers, "restart", |layer| layer.restart, RestartPolicy::default()),
            hung_after: pick(
                &layers,
                "hung_after",
                |layer| layer.hung_after,
                limits::DEFAULT_HUNG_AFTER.as_secs(),
            ),
            max_exchanges: pick(&layers, "max_exchanges", |layer| layer.max_exchanges, 30),
            max_sends: pick(&layers, "max_sends", |layer| layer.max_sends, 120),
            hooks: hooks::together(&layers)?,
            auto_claim: pick(&layers, "auto_claim", |layer| layer.auto_claim, false),
            model: pick(&layers, "model", |layer| layer.model.clone().map(Some), None),
            context_tokens: pick(
                &layers,
                "context_tokens",
                |layer| layer.context_tokens.map(Some),
                None,
            ),
            prompt_profile: pick(
                &layers,
                "prompt_profile",
                |layer| layer.prompt_profile,
                PromptProfile::Auto,
            ),
            local_ports: pick(
                &layers,
                "local_ports",
                |layer| layer.local_ports.clone(),
                LOCAL_PORTS.to_vec(),
            ),
            endpoints: Endpoints::of(&layers),
            spending: Spending::of(&layers),
            permissions: PermissionSettings::of(&layers),
            ignored,
        };
        settings.check()
    }

    /// Key, value and source of every setting, for `team config`.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String, String)> {
        fn row<T>(
            key: &'static str,
            setting: &Setting<T>,
            show: impl Fn(&T) -> String,
        ) -> (&'static str, String, String) {
            (key, show(&setting.value), setting.source.to_string())
        }
        let list = |rules: &Vec<String>| match rules.as_slice() {
            [] => "(none)".to_owned(),
            rules => rules.join(", "),
        };
        let permissions = &self.permissions;
        vec![
            row("max_teammates", &self.max_teammates, ToString::to_string),
            row("max_rounds", &self.max_rounds, ToString::to_string),
            row("max_message_bytes", &self.max_message_bytes, ToString::to_string),
            row("inbox_bytes", &self.inbox_bytes, ToString::to_string),
            row("fsync", &self.fsync, ToString::to_string),
            row("restart", &self.restart, ToString::to_string),
            row("hung_after", &self.hung_after, ToString::to_string),
            row("max_exchanges", &self.max_exchanges, ToString::to_string),
            row("max_sends", &self.max_sends, ToString::to_string),
            row("hooks", &self.hooks, |hooks| hooks::shown(hooks)),
            row("auto_claim", &self.auto_claim, ToString::to_string),
            row("model", &self.model, |model| model.clone().unwrap_or_else(|| "(none)".into())),
            row("context_tokens", &self.context_tokens, |tokens| {
                tokens.map_or_else(|| "(by model)".into(), |tokens| tokens.to_string())
            }),
            row("prompt_profile", &self.prompt_profile, ToString::to_string),
            row("local_ports", &self.local_ports, |ports| format!("{ports:?}")),
            row("permissions.mode", &permissions.mode, ToString::to_string),
            row("permissions.allow", &permissions.allow, list),
            row("permissions.ask", &permissions.ask, list),
            row("permissions.deny", &permissions.deny, list),
            row("permissions.timeout", &permissions.timeout, ToString::to_string),
            row("permissions.plan_approval", &permissions.plan_approval, |who| {
                match who {
                    PlanApproval::Lead => "lead",
                    PlanApproval::Person => "person",
                }
                .into()
            }),
        ]
    }

    fn check(self) -> Result<Self, Failure> {
        let positive = [
            "max_rounds",
            "max_message_bytes",
            "inbox_bytes",
            "max_exchanges",
            "max_sends",
            "permissions.timeout",
            "context_tokens",
        ];
        let rows = self.rows().into_iter().map(|(key, value, source)| (key.into(), value, source));
        let zero = rows.chain(self.spending.rows()).find(|(key, value, _): &spending::Row| {
            value == "0" && (positive.contains(&key.as_str()) || key.starts_with("budget."))
        });
        match zero {
            None => Ok(self),
            Some((key, _, source)) => Err(Failure::new(
                Exit::Usage,
                format!("{key} may not be 0"),
                format!("it was set by: {source}"),
                "give it a positive number, or leave it out for the default",
            )),
        }
    }
}

fn pick<T>(
    layers: &[(Source, Layer)],
    key: &str,
    get: impl Fn(&Layer) -> Option<T>,
    default: T,
) -> Setting<T> {
    for (source, layer) in layers {
        if let Some(value) = get(layer) {
            let source = match source {
                Source::Environment(_) => Source::Environment(variable(key)),
                other @ (Source::Flag | Source::File(_) | Source::Default) => other.clone(),
            };
            return Setting { value, source };
        }
    }
    Setting { value: default, source: Source::Default }
}

fn variable(key: &str) -> String {
    if key.starts_with("anthropic.") || key.starts_with("openai.") {
        return key.replace('.', "_").to_uppercase();
    }
    let key = key.trim_start_matches("permissions.").replace('.', "_");
    format!("TEAM_{}", key.to_uppercase())
}

fn number<T: std::str::FromStr>(
    environment: &Environment,
    key: &str,
) -> Result<Option<T>, Failure> {
    let name = variable(key);
    let Some(text) = environment.get(&name) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| {
        Failure::new(
            Exit::Usage,
            format!("{name} is not usable"),
            format!("{text:?} is not a whole number"),
            format!("set {name} to a number, or unset it"),
        )
    })
}

fn from_flags(flags: &Flags) -> Layer {
    let permissions = PermissionLayer::of_mode(flags.mode);
    Layer { model: flags.model.clone(), permissions, ..Layer::default() }
}

fn from_environment(environment: &Environment) -> Result<Layer, Failure> {
    fn word<T: Copy + ToString>(
        environment: &Environment,
        key: &str,
        values: &[T],
    ) -> Result<Option<T>, Failure> {
        let name = variable(key);
        let Some(text) = environment.get(&name) else { return Ok(None) };
        let known = values.iter().find(|value| value.to_string() == text.trim());
        let words: Vec<String> = values.iter().map(ToString::to_string).collect();
        known.copied().map(Some).ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("{name} is not usable"),
                format!("{text:?} is none of: {}", words.join(", ")),
                format!("set {name} to one of them, or unset it"),
            )
        })
    }
    let ports = environment.get("TEAM_LOCAL_PORTS").map(|text| {
        let ports = text.split([',', ' ']).filter(|part| !part.is_empty() && *part != "none");
        ports.map(str::parse).collect::<Result<Vec<u16>, _>>().map_err(|_| {
            Failure::new(
                Exit::Usage,
                "TEAM_LOCAL_PORTS is not usable",
                format!("{text:?} is no list of ports"),
                "set TEAM_LOCAL_PORTS to ports with commas between them, or to none",
            )
        })
    });
    Ok(Layer {
        anthropic: AnthropicLayer::of(environment),
        openai: OpenAiLayer::of(environment),
        hooks: None,
        auto_claim: word(environment, "auto_claim", &[true, false])?,
        context_tokens: number(environment, "context_tokens")?,
        prompt_profile: word(
            environment,
            "prompt_profile",
            &[PromptProfile::Auto, PromptProfile::Full, PromptProfile::Compact],
        )?,
        local_ports: ports.transpose()?,
        max_teammates: number(environment, "max_teammates")?,
        max_rounds: number(environment, "max_rounds")?,
        max_message_bytes: number(environment, "max_message_bytes")?,
        inbox_bytes: number(environment, "inbox_bytes")?,
        fsync: word(environment, "fsync", &[Fsync::Always, Fsync::Never])?,
        restart: word(environment, "restart", &RestartPolicy::ALL)?,
        hung_after: number(environment, "hung_after")?,
        max_exchanges: number(environment, "max_exchanges")?,
        max_sends: number(environment, "max_sends")?,
        model: environment.get("TEAM_MODEL").map(Into::into),
        budget: spending::from_environment(environment)?,
        prices: None,
        permissions: permissions::from_environment(environment)?,
    })
}

fn from_file(file: &Path) -> Result<Layer, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Layer::default()),
        Err(why) => {
            return Err(Failure::new(
                Exit::Failure,
                format!("{} cannot be read", file.display()),
                why.to_string(),
                "check the file's permissions",
            ));
        }
    };
    toml::from_str(&text).map_err(|why| {
        let line = why.span().map_or(1, |span| line_of(&text, span.start));
        Failure::new(
            Exit::Usage,
            format!("{} line {line} is not usable", file.display()),
            why.message().to_owned(),
            "correct the line; `team config` lists the keys",
        )
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn load(variables: &[(&str, &str)], folder: &str) -> Result<Settings, Failure> {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("settings.toml");
        #[expect(clippy::disallowed_methods, reason = "a test fixture")]
        std::fs::write(&file, folder).unwrap();
        Settings::load(&Environment::of(variables), &file, &Flags::default())
    }

    #[test]
    fn the_nearest_source_wins_and_is_named() {
        let variables = [("TEAM_MAX_ROUNDS", "7"), ("TEAM_RESTART", "always")];
        let file = "max_rounds = 9\nfsync = \"never\"\nrestart = \"on-crash\"";
        let settings = load(&variables, file).unwrap();
        assert_eq!(settings.max_rounds.value, 7);
        assert_eq!(settings.max_rounds.source.to_string(), "environment (TEAM_MAX_ROUNDS)");
        assert_eq!(settings.fsync.value, Fsync::Never);
        assert_eq!(settings.restart.value, RestartPolicy::Always);
        assert!(matches!(settings.fsync.source, Source::File(_)));
        assert_eq!(settings.max_teammates, Setting { value: 16, source: Source::Default });
    }

    #[test]
    fn a_wrong_key_names_file_and_line() {
        let failure = load(&[], "max_rounds = 9\nmax_rouns = 1\n").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.what.contains("settings.toml line 2"), "{failure}");
        assert!(failure.why.contains("max_rouns"), "{failure}");
        assert!(load(&[("TEAM_FSYNC", "maybe")], "").is_err());
        assert!(load(&[("TEAM_AUTO_CLAIM", "maybe")], "").is_err());
        assert!(load(&[("TEAM_AUTO_CLAIM", "true")], "").unwrap().auto_claim.value);
        let failure = load(&[("TEAM_RESTART", "on crash")], "").unwrap_err();
        assert!(failure.why.contains("never, on-crash, always"), "{failure}");
        assert!(load(&[], "max_rounds = 0").is_err());
    }
}
