//! The redaction of an export, which leaves the machine: known secrets, text in the form of a key, and the home of the user.

use crate::llm::{Redactor, Secret};
use crate::settings::environment::Environment;
use serde_json::Value;
use std::borrow::Cow;

/// The ends of the names of variables that hold secrets.
const SECRET_NAMES: [&str; 10] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "_PWD",
    "_PASS",
    "CREDENTIALS",
    "_HEADERS",
    "DATABASE_URL",
];

/// The length of the shortest part of a value that is redacted, in bytes.
const SHORTEST: usize = 8;

/// The begin of a block in the form of PEM, the end of the name of a private key, and the begin of the last line.
const PEM_BEGIN: &str = "-----BEGIN ";
const PRIVATE_KEY: &str = "PRIVATE KEY";
const PEM_END: &str = "-----END ";

const REDACTED: &str = "[redacted]";
const REDACTED_KEY: &str = "[redacted private key]";

/// Replaces secrets in values, and counts the texts in which it has found some.
#[derive(Debug)]
pub(super) struct ExportRedactor {
    redactor: Redactor,
    /// Values that no header can carry, line by line.
    others: Vec<String>,
    home: Option<String>,
    pub(super) found: usize,
}

impl ExportRedactor {
    /// Knows the secrets in the variables of this environment.
    pub(super) fn new(environment: &Environment) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_uppercase();
            SECRET_NAMES.iter().any(|end| name.ends_with(end))
        };
        let variables = environment.all().filter(|(name, _)| is_secret(name));
        let values = variables.map(|(_, value)| value.to_owned());
        let known: Vec<String> = values.chain(environment.proxy_passwords()).collect();
        let lines = known.iter().flat_map(|value| value.lines());
        // A value of headers has the name of each before a colon.
        let parts = lines.flat_map(|line| [line, line.split_once(": ").map_or("", |it| it.1)]);
        let parts = parts.map(str::trim).filter(|part| part.len() >= SHORTEST);
        let others: Vec<String> = parts.flat_map(|part| [part.to_owned(), in_json(part)]).collect();
        let home = environment.get("HOME").filter(|home| home.len() > 1).map(ToOwned::to_owned);
        let redactor = Redactor::new(known.into_iter().flat_map(Secret::new));
        Self { redactor, others, home, found: 0 }
    }

    /// Returns a value without secrets, in its keys too.
    pub(super) fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let fields =
                    fields.into_iter().map(|(key, value)| (self.text(&key), self.value(value)));
                Value::Object(fields.collect())
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }

    pub(super) fn text(&mut self, text: &str) -> String {
        let mut plain = Cow::Borrowed(text);
        for secret in &self.others {
            if plain.contains(secret) {
                plain = Cow::Owned(plain.replace(secret, REDACTED));
            }
        }
        let clean = self.redactor.redact(&plain);
        let clean = match without_private_keys(&clean) {
            Cow::Borrowed(_) => clean,
            Cow::Owned(clean) => Cow::Owned(clean),
        };
        self.found += usize::from(clean != text);
        match &self.home {
            Some(home) => without_home(&clean, home),
            None => clean.into_owned(),
        }
    }
}

/// Returns a text as it stands in a JSON string.
fn in_json(text: &str) -> String {
    Value::from(text).to_string().trim_matches('"').to_owned()
}

/// Replaces the home of the user by `~`, where it is the begin of a path.
fn without_home(text: &str, home: &str) -> String {
    let mut parts = text.split(home);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let is_path = !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
        clean.push_str(if is_path { "~" } else { home });
        clean.push_str(rest);
    }
    clean
}

fn without_private_keys(text: &str) -> Cow<'_, str> {
    let is_key = |at: usize| {
        let name = text.get(at + PEM_BEGIN.len()..).and_then(|rest| rest.split("-----").next());
        name.is_some_and(|name| name.ends_with(PRIVATE_KEY))
    };
    let mut begins = text.match_indices(PEM_BEGIN).map(|(at, _)| at);
    let Some(begin) = begins.find(|at| is_key(*at)) else { return Cow::Borrowed(text) };
    let (before, key) = text.split_at(begin);
    // A key without its end is cut off.
    let after = key
        .split_once(PEM_END)
        .map_or("", |(_, end)| end.split_once("-----").map(|(_, after)| after).unwrap_or_default());
    Cow::Owned([before, REDACTED_KEY, &without_private_keys(after)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_secret_and_no_home_leaves_the_machine() {
        let environment = Environment::of(&[
            ("HOME", "/home/ann"),
            ("DB_PASSWORD", "canary-0123456789"),
            ("EDITOR", "an-ordinary-editor"),
        ]);
        let mut redactor = ExportRedactor::new(&environment);
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb";
        for (text, clean) in [
            ("x canary-0123456789 y", "x [redacted] y"),
            ("ghp_0123456789abcdefABCDEF0123456789abcd", "[redacted]"),
            ("/home/ann/work and /home/anna", "~/work and /home/anna"),
            ("/home/ann", "~"),
            ("an-ordinary-editor", "an-ordinary-editor"),
            (key, "a\n[redacted private key]\nb"),
            ("-----BEGIN PRIVATE KEY-----\nMIIE", "[redacted private key]"),
            ("-----BEGIN CERTIFICATE-----\nMIIE", "-----BEGIN CERTIFICATE-----\nMIIE"),
            (
                "-----BEGIN CERTIFICATE-----\nMIIE\n-----BEGIN EC PRIVATE KEY-----\nx",
                "-----BEGIN CERTIFICATE-----\nMIIE\n[redacted private key]",
            ),
        ] {
            assert_eq!(redactor.text(text), clean);
        }
        let value = json!({"canary-0123456789": [{"a": "canary-0123456789", "b": 1.5}]});
        assert_eq!(redactor.value(value), json!({"[redacted]": [{"a": "[redacted]", "b": 1.5}]}));
        assert_eq!(redactor.found, 7);
    }
}
