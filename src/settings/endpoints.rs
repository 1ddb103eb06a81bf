//! `[anthropic]` and `[openai]`: where the APIs are, in which version, and which further headers go there.
//!
//! Each provider's own variables win over the files. Each header is looked for by itself, so that a user's
//! file can name a gateway's and a folder's another; those of the environment are added last. Whatever
//! leads a conversation elsewhere needs trust when a folder says it.

use super::environment::Environment;
use super::spending::Row;
use super::trust::Risks;
use super::{Layer, Setting, Source, pick};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;

/// What stands for a value that may be a secret.
const REDACTED: &str = "[redacted]";

/// `[anthropic]` of one source.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnthropicLayer {
    base_url: Option<String>,
    version: Option<String>,
    headers: Option<Headers>,
}

impl AnthropicLayer {
    /// What the environment says; its further headers are added by [`Endpoint::header_lines`].
    pub(super) fn of(environment: &Environment) -> Self {
        let own = |name| environment.get(name).map(Into::into);
        let (base_url, version) = (own("ANTHROPIC_BASE_URL"), own("ANTHROPIC_VERSION"));
        Self { base_url, version, headers: None }
    }
}

/// `[openai]` of one source.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenAiLayer {
    base_url: Option<String>,
    headers: Option<Headers>,
}

impl OpenAiLayer {
    /// What the environment says, without further headers.
    pub(super) fn of(environment: &Environment) -> Self {
        Self { base_url: environment.get("OPENAI_BASE_URL").map(Into::into), headers: None }
    }
}

type Headers = BTreeMap<HeaderName, HeaderValue>;

/// A header's name, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
struct HeaderName(String);

impl TryFrom<String> for HeaderName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(format!("{name:?} is no header name: letters, digits, - and _"));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

/// A header's value. It may be a secret: it never prints itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
struct HeaderValue(String);

impl TryFrom<String> for HeaderValue {
    type Error = String;

    fn try_from(value: String) -> Result<Self, String> {
        let fits = |c: char| c == ' ' || c.is_ascii_graphic();
        if value.chars().all(fits) {
            return Ok(Self(value));
        }
        Err("a header's value is visible ascii on one line".into())
    }
}

impl fmt::Debug for HeaderValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

/// Whether everybody may see what a header says: the API's own name versions and features.
pub(super) fn is_public(header: &str) -> bool {
    header.trim().to_ascii_lowercase().starts_with("anthropic-")
}

/// Where calls go, and with what, besides the credentials.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    /// `[anthropic]`.
    pub(super) anthropic: Endpoint,
    /// The version of the Messages API to ask for.
    pub(super) version: Setting<Option<String>>,
    /// `[openai]`.
    pub(super) openai: Endpoint,
}

/// What is configured of one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) base_url: Setting<Option<String>>,
    headers: BTreeMap<HeaderName, Setting<HeaderValue>>,
}

impl Endpoints {
    pub(super) fn of(layers: &[(Source, Layer)]) -> Self {
        Self {
            anthropic: Endpoint {
                base_url: pick(
                    layers,
                    "anthropic.base_url",
                    |layer| layer.anthropic.base_url.clone().map(Some),
                    None,
                ),
                headers: together(layers, |layer| layer.anthropic.headers.as_ref()),
            },
            version: pick(
                layers,
                "anthropic.version",
                |layer| layer.anthropic.version.clone().map(Some),
                None,
            ),
            openai: Endpoint {
                base_url: pick(
                    layers,
                    "openai.base_url",
                    |layer| layer.openai.base_url.clone().map(Some),
                    None,
                ),
                headers: together(layers, |layer| layer.openai.headers.as_ref()),
            },
        }
    }

    /// The endpoint of a provider that has a section of its own.
    pub(super) fn of_provider(&self, name: &str) -> Option<&Endpoint> {
        [("anthropic", &self.anthropic), ("openai", &self.openai)]
            .into_iter()
            .find_map(|(provider, endpoint)| (provider == name).then_some(endpoint))
    }

    /// The version of the API to ask a provider for.
    pub(super) fn version_of(&self, name: &str) -> Option<String> {
        self.version.value.clone().filter(|_| name == "anthropic")
    }

    /// For `team config`; no value that may be a secret.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let word = |key: &str, setting: &Setting<Option<String>>, unset: &str| {
            let value = setting.value.clone().unwrap_or_else(|| unset.into());
            // What stands before an @ may be a password.
            let shown = value.rsplit('@').next().unwrap_or_default().to_owned();
            (key.to_owned(), shown, setting.source.to_string())
        };
        let headers = |provider: &'static str, endpoint: &Endpoint| -> Vec<Row> {
            let row = |(name, setting): (&HeaderName, &Setting<HeaderValue>)| {
                let shown = if is_public(&name.0) { &setting.value.0 } else { REDACTED };
                let key = format!("{provider}.headers.{}", name.0);
                (key, shown.to_owned(), setting.source.to_string())
            };
            endpoint.headers.iter().map(row).collect()
        };
        let mut rows = vec![
            word("anthropic.base_url", &self.anthropic.base_url, "(its own)"),
            word("anthropic.version", &self.version, "(current)"),
        ];
        rows.extend(headers("anthropic", &self.anthropic));
        rows.push(word("openai.base_url", &self.openai.base_url, "(its own)"));
        rows.extend(headers("openai", &self.openai));
        rows
    }
}

impl Endpoint {
    /// The headers as lines of `Name: value`, then those of the environment, which win.
    pub(super) fn header_lines(&self, environment: Option<&str>) -> Option<String> {
        let own = self.headers.iter().map(|(name, it)| format!("{}: {}", name.0, it.value.0));
        let lines: Vec<String> = own.chain(environment.map(Into::into)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn together(
    layers: &[(Source, Layer)],
    headers: impl Fn(&Layer) -> Option<&Headers>,
) -> BTreeMap<HeaderName, Setting<HeaderValue>> {
    let mut found = BTreeMap::new();
    for (source, layer) in layers {
        for (name, value) in headers(layer).into_iter().flatten() {
            let setting = || Setting { value: value.clone(), source: source.clone() };
            found.entry(name.clone()).or_insert_with(setting);
        }
    }
    found
}

/// What of it leads elsewhere.
pub(super) fn risks(layer: &Layer) -> Risks {
    let Layer { anthropic, openai, .. } = layer;
    let mut risks = Risks::new();
    for (provider, base_url, headers) in [
        ("anthropic", &anthropic.base_url, &anthropic.headers),
        ("openai", &openai.base_url, &openai.headers),
    ] {
        if let Some(base_url) = base_url {
            risks.insert(format!("{provider}.base_url"), json!(base_url));
        }
        if let Some(headers) = headers.as_ref().filter(|headers| !headers.is_empty()) {
            risks.insert(format!("{provider}.headers"), json!(headers));
        }
    }
    risks
}

/// Takes out what leads elsewhere, and says what that was.
pub(super) fn strip_untrusted(layer: &mut Layer) -> Risks {
    let taken = risks(layer);
    (layer.anthropic.base_url, layer.anthropic.headers) = (None, None);
    (layer.openai.base_url, layer.openai.headers) = (None, None);
    taken
}

/// The same, fit to be shown: of headers that may hold a secret only the names.
pub(crate) fn shown(risks: &Risks) -> Risks {
    let mut shown = risks.clone();
    for (_, value) in shown.iter_mut().filter(|(key, _)| key.ends_with(".headers")) {
        let headers = value.as_object_mut().into_iter().flatten();
        headers
            .filter(|(name, _)| !is_public(name))
            .for_each(|(_, value)| *value = REDACTED.into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::model::{Credentials, ModelChoice};
    use super::super::tests::load;
    use super::super::{Flags, Settings};
    use super::*;
    use std::path::Path;

    const USER: &str = "[anthropic]\nbase_url = \"https://gateway\"\nversion = \"2023-06-01\"\n\
        headers = { X-House = \"canary\", Anthropic-Beta = \"fast\" }\n\
        [openai]\nheaders = { X-Other = \"canary2\" }\n";

    /// With this as the user's own file.
    fn by_user(variables: &[(&str, &str)], text: &str) -> (Settings, Credentials) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("team")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test fixture")]
        std::fs::write(home.path().join("team/settings.toml"), text).unwrap();
        let home = home.path().display().to_string();
        let environment =
            Environment::of(&[&[("XDG_CONFIG_HOME", home.as_str())], variables].concat());
        let nowhere = Path::new("does-not-exist.toml");
        let settings = Settings::load(&environment, nowhere, &Flags::default()).unwrap();
        let credentials = Credentials::of(&settings, &environment);
        (settings, credentials)
    }

    #[test]
    fn a_file_says_where_and_with_what_and_the_environment_wins() {
        let (settings, credentials) = by_user(&[], USER);
        let access = |model: &str| credentials.access(&ModelChoice::parse(model).unwrap());
        let anthropic = access("anthropic/m");
        assert_eq!(anthropic.base_url.as_deref(), Some("https://gateway"));
        assert_eq!(anthropic.api_version.as_deref(), Some("2023-06-01"));
        let lines = "anthropic-beta: fast\nx-house: canary";
        assert_eq!(anthropic.custom_headers.as_deref(), Some(lines));
        assert_eq!(access("openai/m").custom_headers.as_deref(), Some("x-other: canary2"));
        assert_eq!(credentials.secrets(), ["canary", "canary2"]);
        assert!(!format!("{settings:?}").contains("canary"), "{settings:?}");
        let rows = settings.endpoints.rows();
        let row = |key: &str| rows.iter().find(|(of, ..)| of == key).unwrap().1.as_str();
        assert_eq!(row("anthropic.headers.anthropic-beta"), "fast");
        assert_eq!(row("anthropic.headers.x-house"), REDACTED);
        assert_eq!(row("openai.base_url"), "(its own)");

        let variables =
            [("ANTHROPIC_BASE_URL", "https://near"), ("ANTHROPIC_CUSTOM_HEADERS", "X-House: 2")];
        let (settings, credentials) = by_user(&variables, USER);
        let anthropic = credentials.access(&ModelChoice::parse("anthropic/m").unwrap());
        assert_eq!(anthropic.base_url.as_deref(), Some("https://near"));
        let lines = "anthropic-beta: fast\nx-house: canary\nX-House: 2";
        assert_eq!(anthropic.custom_headers.as_deref(), Some(lines));
        let source = &settings.endpoints.anthropic.base_url.source;
        assert_eq!(source.to_string(), "environment (ANTHROPIC_BASE_URL)");
    }

    #[test]
    fn a_folder_sends_nothing_elsewhere_unasked() {
        let settings = load(&[], USER).unwrap();
        assert_eq!(settings.endpoints.anthropic.base_url.value, None);
        assert_eq!(settings.endpoints.version.value.as_deref(), Some("2023-06-01"));
        assert_eq!(settings.endpoints.anthropic.header_lines(None), None);
        let ignored = settings.ignored.unwrap();
        assert!(ignored.contains("anthropic.base_url") && ignored.contains("x-house"), "{ignored}");
        assert!(!ignored.contains("canary"), "{ignored}");
    }

    #[test]
    fn what_is_no_header_is_named_with_its_line() {
        for text in [
            "[anthropic]\nheaders = { x = \"a\\r\\nX-Evil: canary\" }",
            "[anthropic]\nheaders = { \"a b\" = \"canary\" }",
            "[openai]\nversion = \"canary\"",
        ] {
            let failure = load(&[], text).unwrap_err();
            assert!(failure.what.contains("settings.toml line 2"), "{failure}");
            assert!(!failure.why.contains("canary"), "{failure}");
        }
    }
}
