//! The facts about each model, and from where: the settings, the endpoint's list, the table of the program.

use super::layers::{DEFAULT_SOURCE, Setting};
use super::model::ProviderCredentials;
use super::model_settings::ModelSetting;
use super::table::Settings;
use crate::llm::PROVIDERS;
use crate::llm::model_table::{TableEntry, look_up};
use crate::llm::registry::ProviderSpec;
use crate::wire::model_facts::ModelFacts;
use crate::wire::money::Price;
use crate::wire::price_list::PriceList;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The origin of a fact about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactSource {
    /// A setting, from this file, flag or variable.
    Setting(String),
    /// The endpoint's list of models.
    Endpoint,
    /// The table that is shipped with the program.
    Table,
    /// The provider, all of whose models have it.
    Provider,
}

impl fmt::Display for FactSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(source) => out.write_str(source),
            Self::Endpoint => out.write_str("the endpoint"),
            Self::Table => out.write_str("the table"),
            Self::Provider => out.write_str("the provider"),
        }
    }
}

/// The facts about a model, with the origin of each fact that has several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KnownModel {
    pub(crate) facts: ModelFacts,
    pub(crate) context_from: Option<FactSource>,
    pub(crate) price_from: Option<FactSource>,
    pub(crate) abilities_from: Option<FactSource>,
    /// The most that a server can give to a model with open weights, in tokens.
    pub(crate) context_at_most: Option<u64>,
}

/// The knowledge about all models under these settings and credentials.
#[derive(Debug, Clone)]
pub(crate) struct KnownModels {
    models: BTreeMap<String, Setting<ModelSetting>>,
    prices: BTreeMap<String, Setting<Price>>,
    context_tokens: Setting<Option<u64>>,
    credentials: ProviderCredentials,
}

impl KnownModels {
    pub(crate) fn of(settings: &Settings, credentials: &ProviderCredentials) -> Self {
        Self {
            models: settings.models.clone(),
            prices: settings.prices.clone(),
            context_tokens: settings.context_tokens.clone(),
            credentials: credentials.clone(),
        }
    }

    /// Returns what is known without settings.
    pub(crate) fn of_table(credentials: &ProviderCredentials) -> Self {
        Self {
            models: BTreeMap::new(),
            prices: BTreeMap::new(),
            context_tokens: Setting { value: None, source: DEFAULT_SOURCE.into() },
            credentials: credentials.clone(),
        }
    }

    /// Returns what is known of a model, which is written `provider/name`.
    pub(crate) fn facts(&self, model: &str) -> ModelFacts {
        self.find(model).facts
    }

    /// Returns what is known of a model, with the origins. Settings win over the endpoint's list, and this over the table.
    pub(crate) fn find(&self, model: &str) -> KnownModel {
        let (provider, name) = model.split_once('/').unwrap_or((model, ""));
        let spec = PROVIDERS.into_iter().find(|spec| spec.name == provider);
        let set = self.models.get(model);
        let own = set.map(|set| set.value.clone()).unwrap_or_default();
        let of_setting = || set.map(|set| FactSource::Setting(set.source.clone()));
        let TableEntry { facts: table, maker, is_open } = look_up(name);
        let context = self.context(model, spec, name);
        let (context_tokens, context_from) = context.unzip();
        let is_public = spec.is_some_and(|spec| self.is_public(spec)) && maker == Some(provider);
        let (mut price, mut price_from) = match self.prices.get(model) {
            Some(Setting { value, source }) => {
                (Some(*value), Some(FactSource::Setting(source.clone())))
            }
            None => table.price.filter(|_| is_public).map(|it| (it, FactSource::Table)).unzip(),
        };
        if own.has_price() {
            price = own.price_over(price);
            price_from = of_setting().filter(|_| price.is_some());
        }
        let is_table_price = price_from == Some(FactSource::Table);
        let has_own = own.knows_patches.is_some() || own.sees_images.is_some();
        let has_known = table.knows_patches.is_some() || table.sees_images.is_some();
        let by_table = has_known.then_some(FactSource::Table);
        KnownModel {
            facts: ModelFacts {
                context_tokens,
                answer_tokens: own.answer_tokens.or(table.answer_tokens),
                price,
                price_up_to: table.price_up_to.filter(|_| is_table_price),
                knows_patches: own.knows_patches.or(table.knows_patches),
                sees_images: own.sees_images.or(table.sees_images),
            },
            context_from,
            price_from,
            abilities_from: if has_own { of_setting() } else { by_table },
            context_at_most: table.context_tokens.filter(|_| is_open),
        }
    }

    /// Returns the prices as a list that views can keep.
    pub(crate) fn prices(self) -> PriceList {
        let known = Arc::new(self);
        PriceList::new(move |model| known.facts(model).price)
    }

    /// Returns the size of the context of a model, with its origin. A server may give a model with open weights less than
    /// the table says, so there the table does not count.
    fn context(
        &self,
        model: &str,
        spec: Option<&ProviderSpec>,
        name: &str,
    ) -> Option<(u64, FactSource)> {
        if let Some(set) = self.models.get(model)
            && let Some(tokens) = set.value.context_tokens
        {
            return Some((tokens, FactSource::Setting(set.source.clone())));
        }
        if let Setting { value: Some(tokens), source } = &self.context_tokens {
            return Some((*tokens, FactSource::Setting(source.clone())));
        }
        let listed = spec.and_then(|spec| self.credentials.listed_context(spec, name));
        if let Some(tokens) = listed {
            return Some((tokens, FactSource::Endpoint));
        }
        let table = look_up(name);
        if let Some(tokens) = table.facts.context_tokens.filter(|_| !table.is_open) {
            return Some((tokens, FactSource::Table));
        }
        Some((spec?.context_tokens?, FactSource::Provider))
    }

    /// Whether a provider is used at its maker's own address, where the public prices hold.
    fn is_public(&self, spec: &ProviderSpec) -> bool {
        spec.is_own_address(self.credentials.base_url(spec))
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::layers::Flags;
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn known(environment: &[(&str, &str)], file: &str) -> KnownModels {
        let folder = tempfile::tempdir().unwrap();
        // The settings of the user: those of a folder need trust.
        let path = folder.path().join("team/settings.toml");
        std::fs::create_dir(folder.path().join("team")).unwrap();
        std::fs::write(&path, file).unwrap();
        let home = folder.path().to_str().unwrap();
        let environment = Environment::of(&[environment, &[("XDG_CONFIG_HOME", home)]].concat());
        let none = folder.path().join("none.toml");
        let settings = Settings::load(&environment, &none, &Flags::default()).unwrap();
        KnownModels::of(&settings, &ProviderCredentials::of(&settings, &environment))
    }

    fn price(known: &KnownModels, model: &str) -> Option<f64> {
        known.facts(model).price.map(|price| price.input.into())
    }

    #[test]
    fn prices_of_the_table_hold_only_at_the_address_of_their_maker() {
        let plain = known(&[], "");
        assert_eq!(price(&plain, "openai/gpt-5"), Some(1.25));
        assert_eq!(price(&plain, "anthropic/claude-haiku-4-5-20251001"), Some(1.0));
        assert_eq!(price(&plain, "gemini/gemini-2.5-pro"), Some(1.25));
        for model in ["openai/claude-haiku-4-5", "local/gpt-5", "rehearsal", "acp/gpt-5", "gpt-5"] {
            assert_eq!(price(&plain, model), None, "{model}");
        }
        for (url, is_known) in [
            ("https://api.openai.com/v1", true),
            ("https://eu.api.openai.com/v1", true),
            ("https://gateway.example.com/v1", false),
            ("http://127.0.0.1:8000/v1", false),
            ("https://api.openai.com.example.com/v1", false),
        ] {
            let at = known(&[("OPENAI_BASE_URL", url)], "");
            assert_eq!(price(&at, "openai/gpt-5").is_some(), is_known, "{url}");
            assert_eq!(at.facts("openai/gpt-5").context_tokens, Some(400_000));
        }
    }

    #[test]
    fn settings_win_over_the_table_and_those_of_a_model_over_general_ones() {
        let file = "context_tokens = 5000\n\
            [prices.\"openai/gpt-5\"]\ninput = 7\noutput = 8\n\
            [prices.\"openai/gpt-5-mini\"]\ninput = 9\noutput = 9\n\
            [models.\"openai/gpt-5-mini\"]\ncontext_tokens = 6000\ninput = 2\noutput = 3\nsees_images = false\n\
            [models.\"openai/gpt-5-nano\"]\ninput = 0.5\n[models.\"openai/other\"]\noutput = 0.5\n";
        let known = known(&[], file);
        let found = known.find("openai/gpt-5");
        assert_eq!(
            (price(&known, "openai/gpt-5"), found.facts.context_tokens),
            (Some(7.0), Some(5000))
        );
        assert!(matches!(found.price_from, Some(FactSource::Setting(_))));
        assert_eq!(found.abilities_from, Some(FactSource::Table));
        let nano = known.facts("openai/gpt-5-nano").price.unwrap();
        assert_eq!(
            (f64::from(nano.input), f64::from(nano.output)),
            (0.5, 0.4),
            "one of two is set"
        );
        assert_eq!(known.facts("openai/other").price, None, "the other one is not known");
        let mini = known.facts("openai/gpt-5-mini");
        assert_eq!(
            (price(&known, "openai/gpt-5-mini"), mini.context_tokens),
            (Some(2.0), Some(6000))
        );
        assert_eq!((mini.knows_patches, mini.sees_images), (Some(true), Some(false)));
    }

    #[test]
    fn an_endpoint_says_more_about_a_context_than_the_table() {
        let mut known = known(&[("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")], "");
        let open = known.find("openai/gpt-oss-20b");
        assert_eq!((open.facts.context_tokens, open.context_at_most), (None, Some(131_072)));
        let spec = PROVIDERS.into_iter().find(|spec| spec.name == "openai").unwrap();
        for name in ["gpt-5", "gpt-oss-20b"] {
            known.credentials.note_context(spec, name, 16_384);
            let found = known.find(&format!("openai/{name}"));
            assert_eq!(found.facts.context_tokens, Some(16_384));
            assert_eq!(found.context_from, Some(FactSource::Endpoint));
        }
        let other = known.find("anthropic/fake");
        assert_eq!(other.facts.context_tokens, Some(200_000));
        assert_eq!(other.context_from, Some(FactSource::Provider));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a person writes the file")]
    fn a_folder_gives_prices_only_to_models_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        let entry =
            |table: &str, model: &str| format!("[{table}.\"{model}\"]\ninput = 0\noutput = 0\n");
        let file = entry("models", "openai/gpt-5")
            + &entry("prices", "openai/gpt-5-mini")
            + &entry("models", "openai/own")
            + &entry("prices", "openai/other");
        std::fs::write(&path, file).unwrap();
        let environment = Environment::of(&[]);
        let settings = Settings::load(&environment, &path, &Flags::default()).unwrap();
        let known = KnownModels::of(&settings, &ProviderCredentials::of(&settings, &environment));
        let found = ["openai/gpt-5", "openai/gpt-5-mini", "openai/own", "openai/other"]
            .map(|model| price(&known, model));
        assert_eq!(found, [Some(1.25), Some(0.25), Some(0.0), Some(0.0)]);
    }
}
