//! The model of an agent, and the credentials for it. `llm` has the list of providers.

use super::agents::AgentPrograms;
use super::endpoints::{header_lines, is_public};
use super::environment::Environment;
use super::layers::{Setting, environment_source};
use super::table::Settings;
use crate::error::{Exit, Failure};
use crate::llm::PROVIDERS;
use crate::llm::registry::{Access, ProviderSpec};
use crate::wire::budget::Budgets;
use crate::wire::money::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub(crate) use super::model_choice::{ModelChoice, credential_variables, model_forms};
pub(crate) use super::model_settings::RoleFallbacks;

impl Settings {
    /// Returns the agents of other vendors that teammates can run.
    pub(crate) fn agent_programs(&self, environment: &Environment) -> AgentPrograms {
        AgentPrograms::of(&self.agents, &self.pass_environment.value, environment)
    }
}

/// Returns the model in force, in the order of SPEC 8; `None` if neither a setting nor a credential selects one.
pub(crate) fn resolve(
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<Setting<ModelChoice>>, Failure> {
    if let Setting { value: Some(text), source } = settings.model.clone() {
        let chosen = ModelChoice::parse(&text);
        let value = chosen
            .map_err(|bad| Failure { why: format!("it is from {source}; {}", bad.why), ..bad })?;
        return Ok(Some(Setting { value, source }));
    }
    Ok(PROVIDERS.iter().find_map(|provider| {
        let variables = provider.variables?;
        let key = variables.credentials().find(|key| environment.get(key).is_some())?;
        let named = environment.get(&variables.name("MODEL")).or(provider.default_model);
        let value = ModelChoice { provider, name: named.map(Into::into) };
        Some(Setting { value, source: environment_source(&key) })
    }))
}

/// Fails if a budget limits money, the provider bills the model, and its price is not known.
pub(crate) fn check_price(
    model: &ModelChoice,
    price: Option<Price>,
    budgets: &Budgets,
) -> Result<(), Failure> {
    if price.is_none() && budgets.limit_money() && model.is_paid() {
        return Err(Failure::new(
            Exit::Usage,
            format!("the price of {model} is not known"),
            "a budget in money needs prices, and neither the settings nor the table of public prices has this one",
            format!(
                "set input and output for a million tokens under [models.\"{model}\"] in the settings"
            ),
        ));
    }
    Ok(())
}

/// The access to each provider, by its name. Teammates receive it over the control socket, never in arguments or
/// the environment. `Debug` shows no secret.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ProviderCredentials(BTreeMap<String, Access>);

impl ProviderCredentials {
    /// Collects keys from the environment, and addresses and headers from the settings. For a provider without rows
    /// in the settings, addresses and headers are from the environment, too.
    pub(crate) fn of(settings: &Settings, environment: &Environment) -> Self {
        let Settings { anthropic_base_url, anthropic_headers, anthropic_version, .. } = settings;
        let Settings { openai_base_url, openai_headers, openai_api, .. } = settings;
        let Settings { gemini_base_url, gemini_headers, .. } = settings;
        let rows = [
            ("anthropic", anthropic_base_url, anthropic_headers, anthropic_version.value.as_ref()),
            ("openai", openai_base_url, openai_headers, None),
            ("gemini", gemini_base_url, gemini_headers, None),
        ];
        let access = |provider: &&ProviderSpec| {
            let variables = provider.variables?;
            let variable = |word| environment.get(&variables.name(word));
            let own = |word| variable(word).map(ToOwned::to_owned);
            let keys = variables.keys().filter_map(|key| environment.get(&key).map(Into::into));
            let mut keys = keys.collect::<Vec<String>>().into_iter();
            let mut access = Access {
                api_key: keys.next(),
                unused_keys: keys.collect(),
                auth_token: own("AUTH_TOKEN").filter(|_| variables.has_auth_token),
                base_url: own("BASE_URL"),
                base_url_source: Some(environment_source(&variables.name("BASE_URL"))),
                custom_headers: own("CUSTOM_HEADERS"),
                api_version: None,
                openai_api: openai_api.value.filter(|_| provider.name == "openai"),
                listed_context: BTreeMap::new(),
            };
            if let Some((_, url, more, version)) = rows.iter().find(|row| row.0 == provider.name) {
                access.base_url = url.value.clone().map(|url| url.0);
                access.base_url_source = Some(url.source.clone());
                access.custom_headers = header_lines(more, access.custom_headers);
                access.api_version = version.cloned();
            }
            Some((provider.name.to_owned(), access))
        };
        Self(PROVIDERS.iter().filter_map(access).collect())
    }

    pub(crate) fn access(&self, model: &ModelChoice) -> Access {
        self.0.get(model.spec().name).cloned().unwrap_or_default()
    }

    /// Returns these credentials with `base_url` for this model's provider.
    pub(crate) fn with_base_url(mut self, model: &ModelChoice, base_url: String) -> Self {
        let access = self.0.entry(model.spec().name.to_owned()).or_default();
        (access.base_url, access.base_url_source) = (Some(base_url), None);
        self
    }

    /// Returns the configured base URL of a provider.
    pub(crate) fn base_url(&self, provider: &ProviderSpec) -> Option<&str> {
        self.0.get(provider.name)?.base_url.as_deref()
    }

    /// Returns the size of a model's context that the provider's endpoint has listed, in tokens.
    pub(crate) fn listed_context(&self, provider: &ProviderSpec, name: &str) -> Option<u64> {
        self.0.get(provider.name)?.listed_context.get(name).copied()
    }

    /// Keeps the size of a model's context that the provider's endpoint has listed.
    pub(crate) fn note_context(&mut self, provider: &ProviderSpec, name: &str, tokens: u64) {
        let access = self.0.entry(provider.name.to_owned()).or_default();
        access.listed_context.insert(name.to_owned(), tokens);
    }

    /// Returns only the part that an agent with these models needs.
    pub(crate) fn only_for(&self, models: &[ModelChoice]) -> Self {
        let own = models.iter().filter_map(|model| self.0.get_key_value(model.spec().name));
        Self(own.map(|(name, access)| (name.clone(), access.clone())).collect())
    }

    /// Adds the access to providers that these credentials do not have.
    pub(crate) fn add(&mut self, others: Self) {
        for (name, access) in others.0 {
            self.0.entry(name).or_insert(access);
        }
    }

    /// Whether the model needs no credentials or has usable ones. A teammate looks for a local server itself.
    pub(crate) fn suffice_for(&self, model: &ModelChoice) -> bool {
        !model.is_paid() || self.access(model).is_usable()
    }

    /// Returns the secret strings, for redaction: every header except the API's own may hold a key.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let keys = self.0.values().flat_map(|access| {
            let unused = access.unused_keys.iter().map(Some);
            [access.api_key.as_ref(), access.auth_token.as_ref()].into_iter().chain(unused)
        });
        let headers = self.0.values().filter_map(|access| access.custom_headers.as_ref());
        let headers = headers.flat_map(|headers| headers.lines());
        let headers = headers.filter_map(|line| line.split_once(':'));
        let values = headers.filter(|(name, _)| !is_public(name)).map(|(_, value)| value.trim());
        keys.flatten().map(String::as_str).chain(values).map(Into::into).collect()
    }
}

impl fmt::Debug for ProviderCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ProviderCredentials([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::Flags;
    use super::*;

    #[test]
    fn a_model_is_parsed_and_shown_with_its_provider() {
        let good = "rehearsal script:a/b.jsonl anthropic/claude-x openai openai/o/x:1 gemini/g-1 local local/q";
        for text in good.split(' ') {
            assert_eq!(ModelChoice::parse(text).unwrap().to_string(), text);
        }
        // A model has a name only if its provider's form has one.
        let bad = " gpt anthropic anthropic/ anthropic: anthropicx openai/ openai: openaix gemini gemini/ local/ local: \
            localx script script/ script: scriptx Rehearsal rehearsal/ rehearsal: rehearsalx";
        for text in bad.split(' ') {
            assert_eq!(ModelChoice::parse(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let environment = Environment::of(&[
            ("ANTHROPIC_API_KEY", "canary"),
            ("ANTHROPIC_CUSTOM_HEADERS", "X-House: canary two\nAnthropic-Beta: fast-2026"),
            ("OPENAI_API_KEY", "canary three"),
            ("GEMINI_API_KEY", "canary four"),
            ("GOOGLE_API_KEY", "canary five"),
        ]);
        let file = std::path::Path::new("does-not-exist.toml");
        let settings = Settings::load(&environment, file, &Flags::default()).unwrap();
        let credentials = ProviderCredentials::of(&settings, &environment);
        assert!(!format!("{credentials:?}").contains("canary"));
        let all = ["canary", "canary five", "canary four", "canary three", "canary two"];
        assert_eq!(credentials.secrets(), all);
        let gemini = ModelChoice::parse("gemini/m").unwrap();
        // The official client prefers this key as well.
        assert_eq!(credentials.access(&gemini).api_key.as_deref(), Some("canary five"));
        let only = |model: &str| {
            let model = ModelChoice::parse(model).unwrap();
            assert!(credentials.suffice_for(&model));
            assert!(!ProviderCredentials::default().suffice_for(&model) || !model.is_paid());
            credentials.only_for(&[model]).secrets()
        };
        assert_eq!(only("anthropic/m"), ["canary", "canary two"]);
        assert_eq!(only("openai/m"), ["canary three"]);
        assert_eq!(only("gemini/m"), ["canary five", "canary four"]);
        assert_eq!(only("rehearsal"), [""; 0]);
    }
}
