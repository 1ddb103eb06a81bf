//! The models that are configured, and those that the endpoints list: context, price and abilities of each, with their
//! origins. Asking changes nothing and shows no credential.

use super::context::Context;
use super::event_loop::block_on;
use super::model::{base_url, list_models};
use crate::error::{Exit, Failure};
use crate::llm::local::{self, LocalServer};
use crate::llm::registry::{ProviderSpec, Variables};
use crate::llm::{ListedModel, ModelListAnswer, PROVIDERS, model_table};
use crate::os::deadline::deadline;
use crate::settings::Settings;
use crate::settings::model::{self, ModelChoice, ProviderCredentials, credential_variables};
use crate::settings::models::{KnownModel, KnownModels};
use crate::store::RoleFiles;
use crate::tools::find_by_alias;
use crate::ui::{sanitize::one_line, style::Palette};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The time that the endpoints have to list their models. All are asked at the same time.
const LIST_LIMIT: Duration = Duration::from_secs(5);

/// The widest text of an endpoint that a row shows, in columns.
const MAX_COLUMNS: usize = 200;

/// The models that settings and roles name, each with the places.
type NamedModels = BTreeMap<String, Vec<String>>;

/// The answer of an endpoint.
#[derive(Debug)]
enum EndpointState {
    /// It was not asked, as the person wishes.
    NotAsked,
    Listed(usize),
    Refused,
    /// It answers, and lists no models.
    Unlisted,
    Unreachable(String),
}

impl EndpointState {
    fn word(&self) -> &'static str {
        match self {
            Self::NotAsked => "not_asked",
            Self::Listed(_) => "answers",
            Self::Refused => "refused",
            Self::Unlisted => "no_list",
            Self::Unreachable(_) => "unreachable",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::NotAsked => "not asked (--offline)".into(),
            Self::Listed(1) => "answers; it lists 1 model".into(),
            Self::Listed(count) => format!("answers; it lists {count} models"),
            Self::Refused => "refuses the credentials".into(),
            Self::Unlisted => "answers; it lists no models".into(),
            Self::Unreachable(why) => format!("cannot be asked: {}", one_line(why, MAX_COLUMNS)),
        }
    }
}

/// A provider with credentials or an address, and its endpoint.
struct ConfiguredProvider {
    spec: &'static ProviderSpec,
    /// The address without a part that may be a password.
    address: String,
    /// The variables and settings by which it is configured.
    from: String,
    state: EndpointState,
    models: Vec<ListedModel>,
}

/// A model with the places that name it.
#[derive(Debug)]
struct ModelRow {
    /// `provider/name`.
    model: String,
    /// The places that name it: the setting `model`, the fallbacks, roles.
    named_by: Vec<String>,
    /// Whether the endpoint lists it; `None` if it has not said so.
    is_listed: Option<bool>,
    known: KnownModel,
}

/// All models, and the endpoints that were asked for them.
pub(crate) struct ModelsReport {
    providers: Vec<ConfiguredProvider>,
    models: Vec<ModelRow>,
    /// The agents of other vendors that are installed, with their commands.
    agents: Vec<(String, String)>,
    /// The provider of the model that a lead would use.
    chosen: Option<&'static str>,
}

/// Collects what is configured, and asks the endpoints unless `is_offline`.
pub(crate) fn collect(context: &Context, is_offline: bool) -> Result<ModelsReport, Failure> {
    let settings = context.settings()?;
    let mut credentials = ProviderCredentials::of(&settings, &context.environment);
    let (named, chosen) = named_models(context, &settings)?;
    let providers = if is_offline {
        configured(context, &credentials)
    } else {
        block_on(asked(configured(context, &credentials), &settings, &credentials))?
    };
    for provider in &providers {
        for listed in &provider.models {
            if let Some(tokens) = listed.context_tokens {
                credentials.note_context(provider.spec, &listed.name, tokens);
            }
        }
    }
    let known = KnownModels::of(&settings, &credentials);
    let programs = settings.agent_programs(&context.environment);
    let installed = programs.names().into_iter().filter_map(|name| {
        let program = programs.program(name).ok()?;
        Some((format!("acp/{name}"), program.command.join(" ")))
    });
    Ok(ModelsReport {
        models: rows(&providers, named, &known),
        agents: installed.collect(),
        providers,
        chosen,
    })
}

/// Returns the models that settings and roles name, with the places, and the provider of the lead's model.
fn named_models(
    context: &Context,
    settings: &Settings,
) -> Result<(NamedModels, Option<&'static str>), Failure> {
    let mut named = NamedModels::new();
    let mut name = |model: String, place: String| named.entry(model).or_default().push(place);
    let lead = model::resolve(settings, &context.environment)?;
    let chosen = lead.as_ref().map(|lead| lead.value.spec().name);
    if let Some(lead) = lead {
        name(lead.value.to_string(), format!("model ({})", lead.source));
    }
    let fallbacks = &settings.fallback_models;
    for fallback in &fallbacks.value.0 {
        name(fallback.to_string(), format!("fallback_models ({})", fallbacks.source));
    }
    if let Ok(team) = context.team() {
        let RoleFiles { files, .. } = team.role_files(find_by_alias);
        for role in files.into_iter().map(|file| file.role) {
            let aliases = settings.model_aliases();
            let meant = |word: String| aliases.get(word.as_str()).cloned().unwrap_or(word);
            if let Some(model) = role.model {
                name(meant(model), format!("role {}", role.name));
            }
            for fallback in role.fallback_models.into_iter().flatten() {
                name(meant(fallback), format!("role {} (fallbackModels)", role.name));
            }
        }
    }
    Ok((named, chosen))
}

/// Returns the providers that have credentials or an address, before they are asked.
fn configured(context: &Context, credentials: &ProviderCredentials) -> Vec<ConfiguredProvider> {
    let of = |spec: &'static ProviderSpec| {
        let variables = spec.variables?;
        let model = ModelChoice::of_provider(spec);
        if !credentials.suffice_for(&model) {
            return None;
        }
        let keys = Variables::credentials(variables);
        let mut from: Vec<String> =
            keys.filter(|key| context.environment.get(key).is_some()).take(1).collect();
        let access = credentials.access(&model);
        from.extend(access.base_url.and(access.base_url_source));
        let address = base_url(&model, credentials).unwrap_or_default();
        Some(ConfiguredProvider {
            spec,
            address: address.rsplit('@').next().unwrap_or_default().to_owned(),
            from: from.join(", "),
            state: EndpointState::NotAsked,
            models: Vec::new(),
        })
    };
    PROVIDERS.into_iter().filter_map(of).collect()
}

/// Asks all providers, and looks for servers on this machine, at the same time.
async fn asked(
    providers: Vec<ConfiguredProvider>,
    settings: &Settings,
    credentials: &ProviderCredentials,
) -> Vec<ConfiguredProvider> {
    let ask = async |provider: ConfiguredProvider| {
        let (model, limit) = (ModelChoice::of_provider(provider.spec), deadline(LIST_LIMIT));
        let answer = list_models(&model, credentials, limit).await;
        let (state, models) = match answer {
            None | Some(Ok(ModelListAnswer::Unlisted)) => (EndpointState::Unlisted, Vec::new()),
            Some(Ok(ModelListAnswer::Models(models))) => {
                (EndpointState::Listed(models.len()), models)
            }
            Some(Ok(ModelListAnswer::Refused)) => (EndpointState::Refused, Vec::new()),
            Some(Ok(ModelListAnswer::Failed { why, .. }) | Err(why)) => {
                (EndpointState::Unreachable(why), Vec::new())
            }
        };
        ConfiguredProvider { state, models, ..provider }
    };
    let ports = &settings.local_ports.value;
    let (mut all, found) =
        tokio::join!(join_all(providers.into_iter().map(ask)), local::find(ports));
    all.extend(found.into_iter().map(|LocalServer { base_url, models }| ConfiguredProvider {
        spec: &local::SPEC,
        address: base_url,
        from: "local_ports".into(),
        state: EndpointState::Listed(models.len()),
        models,
    }));
    all
}

/// Returns the named models, then those that the endpoints list besides.
fn rows(
    providers: &[ConfiguredProvider],
    named: NamedModels,
    known: &KnownModels,
) -> Vec<ModelRow> {
    let written = |provider: &ConfiguredProvider, listed: &ListedModel| {
        provider.spec.write(Some(&listed.name))
    };
    let is_listed = |model: &str| {
        let (provider, _) = model.split_once('/')?;
        let mut of = providers
            .iter()
            .filter(|it| it.spec.name == provider && !it.models.is_empty())
            .peekable();
        of.peek()?;
        Some(of.any(|it| it.models.iter().any(|listed| written(it, listed) == model)))
    };
    let row = |model: String, named_by| ModelRow {
        is_listed: is_listed(&model),
        known: known.find(&model),
        model,
        named_by,
    };
    let others = providers
        .iter()
        .flat_map(|provider| provider.models.iter().map(move |listed| written(provider, listed)));
    let mut others: Vec<String> = others.filter(|model| !named.contains_key(model)).collect();
    others.sort();
    others.dedup();
    let others = others.into_iter().map(|model| (model, Vec::new()));
    named.into_iter().chain(others).map(|(model, named_by)| row(model, named_by)).collect()
}

impl ModelsReport {
    /// Returns the exit code: 4 if nothing is configured or the credentials of the lead's model are refused, 6 if its
    /// endpoint cannot be reached.
    pub(crate) fn exit(&self) -> Exit {
        let of_lead =
            self.providers.iter().find(|provider| Some(provider.spec.name) == self.chosen);
        match of_lead.map(|provider| &provider.state) {
            Some(EndpointState::Refused) => Exit::NoModel,
            Some(EndpointState::Unreachable(_)) => Exit::ModelUnavailable,
            None if self.chosen.is_none() && self.models.is_empty() => Exit::NoModel,
            Some(EndpointState::NotAsked | EndpointState::Listed(_) | EndpointState::Unlisted)
            | None => Exit::Ok,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let providers = self.providers.iter().map(|provider| {
            json!({
                "name": provider.spec.name,
                "address": provider.address,
                "from": provider.from,
                "state": provider.state.word(),
                "why": match &provider.state {
                    EndpointState::Unreachable(why) => Some(why),
                    EndpointState::NotAsked | EndpointState::Listed(_) | EndpointState::Refused
                    | EndpointState::Unlisted => None,
                },
            })
        });
        let models = self.models.iter().map(ModelRow::json);
        let agents =
            self.agents.iter().map(|(name, command)| json!({ "name": name, "command": command }));
        json!({
            "schema": 1,
            "table": { "made": model_table::made(), "source": model_table::source() },
            "providers": providers.collect::<Vec<_>>(),
            "models": models.collect::<Vec<_>>(),
            "agents": agents.collect::<Vec<_>>(),
        })
    }

    /// Returns the report for people. Of the models that only an endpoint names, those of an unknown price and context are
    /// counted, unless `shows_all`.
    pub(crate) fn text(&self, palette: Palette, shows_all: bool) -> String {
        let mut text = String::new();
        let mut line = |words: &str| {
            let _infallible = writeln!(text, "{words}");
        };
        if self.providers.is_empty() {
            line(&format!("no provider is configured: set {}", credential_variables()));
        }
        for ConfiguredProvider { spec, address, from, state, .. } in &self.providers {
            let name = spec.name;
            let from = if from.is_empty() { String::new() } else { format!(" ({from})") };
            let words =
                format!("{name}: {}{from} {}", one_line(address, MAX_COLUMNS), state.words());
            let is_bad = matches!(state, EndpointState::Refused | EndpointState::Unreachable(_));
            line(&if is_bad { palette.bad(&words) } else { words });
        }
        for (name, command) in &self.agents {
            line(&format!(
                "{name}: {} is installed (for teammates)",
                one_line(command, MAX_COLUMNS)
            ));
        }
        let (shown, hidden): (Vec<_>, Vec<_>) =
            self.models.iter().partition(|row| shows_all || row.is_worth_showing());
        if !shown.is_empty() {
            line("");
        }
        for row in shown {
            line(&row.text(palette));
        }
        if !hidden.is_empty() {
            let count = hidden.len();
            line(
                &palette
                    .dim(&format!("… and {count} listed models of which nothing is known (--all)")),
            );
        }
        let (made, source) = (model_table::made(), model_table::source());
        let note = format!(
            "the table is of {made}, from {source}; prices are in dollars for a million tokens"
        );
        line(&palette.dim(&note));
        text.trim_end().to_owned()
    }
}

impl ModelRow {
    fn is_worth_showing(&self) -> bool {
        let facts = &self.known.facts;
        !self.named_by.is_empty() || facts.price.is_some() || facts.answer_tokens.is_some()
    }

    fn json(&self) -> Value {
        let KnownModel { facts, context_from, price_from, abilities_from, context_at_most } =
            &self.known;
        let source = |from: &Option<_>| from.as_ref().map(ToString::to_string);
        json!({
            "model": self.model,
            "named_by": self.named_by,
            "listed": self.is_listed,
            "context_tokens": facts.context_tokens,
            "context_from": source(context_from),
            "context_at_most": context_at_most,
            "answer_tokens": facts.answer_tokens,
            "price": facts.price,
            "price_from": source(price_from),
            "price_up_to": facts.price_up_to,
            "knows_patches": facts.knows_patches,
            "sees_images": facts.sees_images,
            "abilities_from": source(abilities_from),
        })
    }

    fn text(&self, palette: Palette) -> String {
        let KnownModel { facts, context_from, price_from, context_at_most, .. } = &self.known;
        let from = |source: &Option<_>| {
            source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default()
        };
        let context = match (facts.context_tokens, context_at_most) {
            (Some(tokens), _) => format!("context {tokens}{}", from(context_from)),
            (None, Some(most)) => format!("context as the server gives it, up to {most}"),
            (None, None) => "context unknown".into(),
        };
        let price = facts.price.map_or_else(
            || "price unknown".to_owned(),
            |price| {
                let up_to = facts.price_up_to;
                let up_to = up_to.map(|tokens| format!(", more above {tokens} tokens"));
                let cached = price.cache_read.map(|read| format!(", {read} cached"));
                let (cached, up_to) = (cached.unwrap_or_default(), up_to.unwrap_or_default());
                let source = from(price_from);
                format!("${} in{cached}, ${} out{up_to}{source}", price.input, price.output)
            },
        );
        let abilities = facts.abilities();
        let able = [(abilities.sees_images, "images"), (abilities.knows_patches, "patches")];
        let able = able.into_iter().filter(|(has, _)| *has).map(|(_, word)| word);
        let able: Vec<_> = able.collect();
        let able = if able.is_empty() { String::new() } else { format!("; {}", able.join(", ")) };
        let named = self.named_by.iter().map(|place| one_line(place, MAX_COLUMNS));
        let named = named.collect::<Vec<_>>().join(", ");
        let named = if named.is_empty() { named } else { format!("; named by {named}") };
        let missing = match self.is_listed {
            Some(false) => palette.bad("; its endpoint does not list it"),
            Some(true) | None => String::new(),
        };
        let model = one_line(&self.model, MAX_COLUMNS);
        format!("{model}: {context}; {price}{able}{named}{missing}")
    }
}
