//! The types of the settings in `[anthropic]`, `[openai]` and `[gemini]`: the address of an API, and the headers sent to it.
//!
//! Each header has its own source, so that a user's file can set one and a folder's file another; headers of the
//! environment are added last.

use super::layers::SettingMap;
use super::trust::Risks;
use super::value::{SettingEntry, SettingValue};
use crate::llm::secret::REDACTED;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaseUrl(pub(super) String);

impl SettingValue for BaseUrl {
    fn expected() -> String {
        "an address in quotes, such as \"https://api.example.com/v1\"".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.into()))
    }

    fn shown(&self) -> Option<String> {
        // The part before an @ may be a password.
        self.0.rsplit('@').next().map(Into::into)
    }
}

/// A header's name, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HeaderName(String);

impl TryFrom<String> for HeaderName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(format!("{name:?} is not a header name: letters, digits, - and _"));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A header's value. `Debug` does not show it, since it may be a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HeaderValue(String);

impl TryFrom<String> for HeaderValue {
    type Error = String;

    fn try_from(value: String) -> Result<Self, String> {
        let fits = |c: char| c == ' ' || c.is_ascii_graphic();
        let why = "a header's value is visible ASCII on one line";
        if value.chars().all(fits) { Ok(Self(value)) } else { Err(why.into()) }
    }
}

impl fmt::Debug for HeaderValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

impl SettingEntry for HeaderValue {
    type Name = HeaderName;
    const IS_TRUSTED_AS_A_WHOLE: bool = true;
    const EXPECTED: &'static str = "a table of headers, such as { X-Gateway = \"NAME\" }";

    fn shown(&self, name: &HeaderName) -> String {
        if is_public(&name.0) { self.0.clone() } else { REDACTED.into() }
    }

    fn acts_untrusted(&self, _: &Self::Name, _own: Option<&Self>) -> bool {
        false
    }
}

/// Whether a header's value is public: the API's own headers name versions and features.
pub(super) fn is_public(header: &str) -> bool {
    header.trim().to_ascii_lowercase().starts_with("anthropic-")
}

/// Returns the headers as lines of `Name: value`. Those of the environment come last and win.
pub(super) fn header_lines(
    headers: &SettingMap<HeaderValue>,
    environment: Option<String>,
) -> Option<String> {
    let own = headers.iter().map(|(name, header)| format!("{name}: {}", header.value.0));
    let lines: Vec<String> = own.chain(environment).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns the sentence that lists the settings of a folder that are not in force.
pub(super) fn untrusted(folder_file: &Path, ignored: &Risks) -> String {
    let ignored = redacted(ignored);
    let shown = ignored.iter().map(|(key, value)| format!("{key} = {value}"));
    format!(
        "{}: not in force, since this folder is not trusted: {}. Look at the file; `team trust` puts it in \
         force as it stands now.",
        folder_file.display(),
        shown.collect::<Vec<_>>().join(", ")
    )
}

/// Returns the settings without the values of headers and variables that may hold a secret.
pub(crate) fn redacted(risks: &Risks) -> Risks {
    let mut shown = risks.clone();
    for (_, value) in shown.iter_mut().filter(|(key, _)| key.ends_with(".headers")) {
        let headers = value.as_object_mut().into_iter().flatten();
        let secret = headers.filter(|(name, _)| !is_public(name));
        secret.for_each(|(_, value)| *value = REDACTED.into());
    }
    shown.values_mut().for_each(redact_server);
    shown
}

/// Redacts the values of the variables and headers of an MCP server, or of all servers of a file. A reference to a
/// variable is no secret, and says where the value comes from.
fn redact_server(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for (key, field) in fields {
        if key == "env" || key == "headers" {
            let values = field.as_object_mut().into_iter().flat_map(Map::values_mut);
            let is_secret =
                |value: &&mut Value| !value.as_str().is_some_and(|text| text.starts_with("${"));
            values.filter(is_secret).for_each(|value| *value = REDACTED.into());
        } else if field.is_object() {
            redact_server(field);
        }
    }
}
