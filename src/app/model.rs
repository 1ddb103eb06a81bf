//! The model of an agent: selects one if none is named, lists the models of an endpoint, opens the provider.

use super::{event_loop::block_on, output};
use crate::agent::conversation::UsableModel;
use crate::agent::model_chain::AgentModels;
use crate::agent::replay::{Player, model::RecordedModel};
use crate::error::{Exit, Failure};
use crate::llm::local::{self, LocalServer};
use crate::llm::registry::{ConnectError, Connected, Connection, Discovery};
use crate::llm::{
    ConfigError, Delta, ListedModel, ModelError, ModelListAnswer, Provider, retry::Backoff,
};
use crate::os::deadline::deadline;
use crate::os::{Clock, SystemClock};
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, credential_variables};
use crate::settings::models::KnownModels;
use crate::store::{TeamDir, shared_backoff::SharedBackoff};
use crate::wire::AgentName;
use crate::wire::chat::{Block, ChatMessage, Reply, Request, Role, Thinking};
use crate::wire::limits::{LOCAL_ANSWER, LOCAL_PROBE};
use crate::wire::model_facts::ModelFacts;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

const LIST_LIMIT: Duration = Duration::from_secs(10);

/// The time that an endpoint has to say the size of a model's context at a start, which it may delay.
const CONTEXT_LIMIT: Duration = Duration::from_secs(2);

/// The maximum number of tokens of the answer to a test call.
const CALL_TOKENS: u32 = 16;

/// Returns the named model. Without one, returns the fallback if a person can read its notice, and fails otherwise.
pub(super) fn select(named: Option<ModelChoice>, has_person: bool) -> Result<ModelChoice, Failure> {
    if named.is_some() || has_person {
        return Ok(named.unwrap_or_else(ModelChoice::fallback));
    }
    let (keys, fallback) = (credential_variables(), ModelChoice::fallback());
    let why = format!("none of these is set: --model, TEAM_MODEL, `model` in the settings, {keys}");
    let hint = format!(
        "set one of the keys, or add --model {fallback} to try the program without a model"
    );
    Err(Failure::new(Exit::NoModel, "no model is configured", why, hint))
}

/// Completes the name of a model and the URL of a local server. Keeps complete values, so that teammates do not
/// search again.
pub(super) fn complete(
    model: ModelChoice,
    credentials: ProviderCredentials,
    settings: &Settings,
) -> Result<(ModelChoice, ProviderCredentials), Failure> {
    let is_complete = is_complete(&model, &credentials);
    match model.spec().discovery {
        Discovery::FirstListed if !is_complete => {
            let listed = first_listed(&model, &credentials)?;
            Ok(named(&model, listed, credentials))
        }
        Discovery::LocalServers if !is_complete => {
            let ports = &settings.local_ports.value;
            let servers = block_on(async { local::find_patiently(ports).await })?;
            let (listed, base_url) = pick(&servers, model.name())
                .ok_or_else(|| not_found(&servers, model.name(), settings))?;
            let credentials = credentials.with_base_url(&model, base_url);
            Ok(named(&model, listed, credentials))
        }
        Discovery::None | Discovery::FirstListed | Discovery::LocalServers => {
            let credentials = with_context(&model, credentials, settings)?;
            Ok((model, credentials))
        }
    }
}

/// Whether a model has its name, and the address of its local server.
pub(super) fn is_complete(model: &ModelChoice, credentials: &ProviderCredentials) -> bool {
    let has_url = || credentials.access(model).base_url.is_some();
    match model.spec().discovery {
        Discovery::None => true,
        Discovery::FirstListed => model.name().is_some(),
        Discovery::LocalServers => model.name().is_some() && has_url(),
    }
}

/// Asks a configured endpoint for the size of a model's context that nothing else says. An endpoint that does not say it
/// changes nothing.
fn with_context(
    model: &ModelChoice,
    mut credentials: ProviderCredentials,
    settings: &Settings,
) -> Result<ProviderCredentials, Failure> {
    let (spec, Some(name)) = (model.spec(), model.name()) else { return Ok(credentials) };
    let is_configured = !spec.is_own_address(credentials.base_url(spec));
    let known = KnownModels::of(settings, &credentials).facts(&model.to_string());
    if known.context_tokens.is_some() || !is_configured || !model.is_paid() {
        return Ok(credentials);
    }
    let listing = block_on(list_models(model, &credentials, deadline(CONTEXT_LIMIT)))?;
    if let Some(Ok(ModelListAnswer::Models(models))) = listing {
        let tokens = models.into_iter().find(|listed| listed.name == name);
        if let Some(tokens) = tokens.and_then(|listed| listed.context_tokens) {
            credentials.note_context(spec, name, tokens);
        }
    }
    Ok(credentials)
}

/// Returns the model that an endpoint has listed, and the credentials with the size of its context.
fn named(
    model: &ModelChoice,
    ListedModel { name, context_tokens }: ListedModel,
    mut credentials: ProviderCredentials,
) -> (ModelChoice, ProviderCredentials) {
    if let Some(tokens) = context_tokens {
        credentials.note_context(model.spec(), &name, tokens);
    }
    (model.named(name), credentials)
}

/// Returns the first model that a configured endpoint lists. Fails for the provider's own endpoint, whose list has
/// no meaningful order.
fn first_listed(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
) -> Result<ListedModel, Failure> {
    use ModelListAnswer::{Failed, Models, Refused, Unlisted};
    let provider = model.spec().name;
    let variable = |word| model.spec().variables.map(|it| it.name(word)).unwrap_or_default();
    let failed = |why: String| {
        let hint = format!("give --model {provider}/NAME, or set {}", variable("MODEL"));
        Failure::new(Exit::NoModel, format!("no model of {provider} is named"), why, hint)
    };
    if credentials.access(model).base_url.is_none() {
        let key = variable("API_KEY");
        return Err(failed(format!("{key} alone does not say which model of {provider} is meant")));
    }
    let listing = block_on(async { list_models(model, credentials, LIST_LIMIT).await })?;
    let asked = |what: &str| failed(format!("the endpoint was asked for one: {what}"));
    match listing.unwrap_or(Ok(Unlisted)).map_err(|why| asked(&why))? {
        Models(models) => models.into_iter().next().ok_or_else(|| asked("it lists none")),
        Refused => Err(asked("it refused the credentials")),
        Unlisted => Err(asked("it has no list of models")),
        Failed { why, .. } => Err(asked(&format!("it answered {why}"))),
    }
}

/// Asks the person whether this run shall use a local model server. Returns `None` without a terminal, without a
/// server, or if the answer is no.
pub(super) fn offer_local(settings: &Settings) -> Result<Option<ModelChoice>, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    let servers = block_on(async { local::find(&settings.local_ports.value).await })?;
    let Some((ListedModel { name, .. }, base_url)) = pick(&servers, None) else { return Ok(None) };
    output::warn(&format!(
        "A local model server answers at {base_url}; its first model is {name}.\n\
         Use it in this run? [y/N]  (model = \"local\" in the settings: not asked again)"
    ));
    let mut answer = String::new();
    // Input that cannot be read counts as no.
    let _length = std::io::stdin().read_line(&mut answer).unwrap_or_default();
    let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    is_yes.then(|| ModelChoice::parse(&local::SPEC.write(Some(&name)))).transpose()
}

fn pick(servers: &[LocalServer], wanted: Option<&str>) -> Option<(ListedModel, String)> {
    servers.iter().find_map(|server| {
        let fits = |listed: &&ListedModel| wanted.is_none_or(|wanted| wanted == listed.name);
        let listed = server.models.iter().find(fits)?;
        Some((listed.clone(), server.base_url.clone()))
    })
}

fn not_found(servers: &[LocalServer], wanted: Option<&str>, settings: &Settings) -> Failure {
    let listed = servers.iter().flat_map(|server| &server.models);
    let models: Vec<&str> = listed.map(|listed| listed.name.as_str()).collect();
    if let Some(wanted) = wanted.filter(|_| !models.is_empty()) {
        let what = format!("no local server has the model {wanted}");
        let why = format!("there is: {}", models.join(", "));
        let hint = "name one of these, or --model local for the first";
        return Failure::new(Exit::NoModel, what, why, hint);
    }
    let ports: Vec<String> = settings.local_ports.value.iter().map(u16::to_string).collect();
    let (ports, limit, longer) =
        (ports.join(", "), LOCAL_PROBE.as_millis(), LOCAL_ANSWER.as_secs());
    let why = format!(
        "no server lists models at 127.0.0.1 on the ports {ports} within {limit} ms, or within \
         {longer} s where one accepts connections"
    );
    let hint = "start llama-server, Ollama or LM Studio, or set local_ports to where yours listens";
    Failure::new(Exit::NoModel, "there is no local model server", why, hint)
}

/// A model that an agent may call, with what is known of it.
#[derive(Debug, Clone)]
pub(super) struct KnownChoice {
    pub(super) model: ModelChoice,
    pub(super) facts: ModelFacts,
}

/// The agent for which models are opened.
pub(super) struct ModelUser<'a> {
    /// Its name, or the id of a subagent.
    pub(super) agent: &'a str,
    pub(super) incarnation: &'a str,
    /// The incarnation in which a resumed conversation began.
    pub(super) conversation: Option<&'a str>,
    pub(super) team: &'a TeamDir,
    /// The part of a record that the agent plays.
    pub(super) player: Option<&'a Rc<Player>>,
}

/// Opens the models of one incarnation of an agent: its own, then those that go on if it fails. Fails if credentials are
/// missing or unusable, or a script cannot be read.
pub(super) fn open_models(
    (own, fallbacks): &(KnownChoice, Vec<KnownChoice>),
    credentials: &ProviderCredentials,
    user: &ModelUser<'_>,
) -> Result<AgentModels, Failure> {
    let open = |KnownChoice { model, facts }: &KnownChoice, has_fallback| {
        let provider = open_provider(model, credentials, user, has_fallback)?;
        Ok::<_, Failure>(UsableModel { provider, facts: *facts })
    };
    let count = fallbacks.len();
    let others = (1..).zip(fallbacks).map(|(at, model)| open(model, at < count));
    let fallbacks = others.collect::<Result<_, _>>()?;
    Ok(AgentModels { own: open(own, count > 0)?, fallbacks })
}

fn open_provider(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
    user: &ModelUser<'_>,
    has_fallback: bool,
) -> Result<Rc<dyn Provider>, Failure> {
    let ModelUser { agent, incarnation, conversation, team, player } = *user;
    if let Some(player) = player.filter(|_| model.is_replay()) {
        return Ok(Rc::new(RecordedModel(Rc::clone(player))));
    }
    // Members that wait for the same endpoint must not retry at the same moment.
    let jitter_seed = agent.bytes().fold(u64::from(std::process::id()), |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    });
    connect(
        model,
        Connection {
            model: model.name().unwrap_or_default(),
            access: credentials.access(model),
            agent,
            incarnation,
            conversation: conversation.unwrap_or(incarnation),
            jitter_seed,
            has_fallback,
            backoff: &|base_url| {
                // All endpoints of one host and port share a pause.
                let host = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
                Box::new(SharedBackoff::of(team, host.split('/').next().unwrap_or(host)))
            },
        },
    )
}

/// Opens a model for one call outside a team. Fails as [`open_provider`] does, so it also checks a model before the
/// team folder is changed.
pub(super) fn open_alone(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
) -> Result<Rc<dyn Provider>, Failure> {
    if !credentials.suffice_for(model) {
        return Err(no_credentials(model));
    }
    connect(
        model,
        Connection {
            model: model.name().unwrap_or_default(),
            access: credentials.access(model),
            agent: AgentName::lead().as_str(),
            incarnation: "",
            conversation: "",
            jitter_seed: 0,
            has_fallback: false,
            backoff: &|_| Box::new(NoSharedBackoff),
        },
    )
}

/// Returns the failure for a model whose provider wants credentials and has none.
fn no_credentials(model: &ModelChoice) -> Failure {
    let variables = model.spec().variables.map(|it| {
        let keys = it.credentials().collect::<Vec<_>>().join(" or ");
        (keys, it.name("BASE_URL"))
    });
    let (keys, base_url) = variables.unwrap_or_default();
    let why = format!("neither a key ({keys}) nor a base URL is set");
    let hint = format!("set {keys}, or {base_url} for a server that needs no key");
    Failure::new(Exit::NoModel, format!("there are no credentials for {model}"), why, hint)
}

fn connect(model: &ModelChoice, connection: Connection<'_>) -> Result<Rc<dyn Provider>, Failure> {
    let source = connection.access.base_url_source.clone();
    let Connected { provider, warning } = (model.spec().connect)(connection).map_err(|why| {
        let check = model.spec().check;
        let (exit, hint) = match &why {
            ConnectError::Setup(_) => (Exit::Usage, check.to_owned()),
            ConnectError::Config(why) => (Exit::NoModel, config_hint(why, source, check)),
        };
        Failure::new(exit, format!("{model} cannot be used"), why.to_string(), hint)
    })?;
    if let Some(warning) = warning {
        tracing::warn!(warning, "the endpoint");
    }
    Ok(provider)
}

/// Returns the remedy for a configuration that cannot be used, with the variable or file to correct.
fn config_hint(why: &ConfigError, source: Option<String>, check: &str) -> String {
    match (why, source) {
        (ConfigError::BadBase { .. }, Some(source)) => {
            format!("correct the base URL, which comes from {source}")
        }
        (ConfigError::BadModel { .. }, _) => {
            "name a model that the endpoint lists: `team doctor` shows them".into()
        }
        _ => format!("check {check}, as the lead's environment and settings have them"),
    }
}

/// Returns the URL of a model's endpoint; `None` for a provider without an endpoint.
pub(super) fn base_url(model: &ModelChoice, credentials: &ProviderCredentials) -> Option<String> {
    let named = credentials.access(model).base_url;
    named.or_else(|| model.spec().base_url.map(ToOwned::to_owned))
}

/// Calls the model once, for a few tokens. Returns the first error, even if a run would try the call again.
pub(super) async fn call_once(
    provider: &dyn Provider,
    limit: Duration,
) -> Result<Reply, ModelError> {
    let request = Request {
        system: "Answer in one word.".into(),
        messages: vec![ChatMessage {
            role: Role::User,
            blocks: vec![Block::Text { text: "Say ok.".into() }],
        }],
        tools: Vec::new(),
        max_tokens: CALL_TOKENS,
        thinking: Thinking::default(),
    };
    let (first_error, failed) = tokio::sync::mpsc::unbounded_channel();
    let mut failed = failed;
    let mut sink = |delta| {
        if let Delta::Retry { why, .. } = delta {
            // The call is cancelled when the error is received.
            let _received = first_error.send(why);
        }
    };
    let call = tokio::time::timeout(limit, provider.turn(&request, &mut sink));
    tokio::select! {
        biased;
        reply = call => {
            let late = || ModelError::Unavailable(format!("no reply within {} s", limit.as_secs()));
            reply.unwrap_or_else(|_| Err(late()))
        }
        Some(why) = failed.recv() => Err(ModelError::Unavailable(why)),
    }
}

/// Asks an endpoint for its models; `None` for a provider without an endpoint. The error is text for people.
pub(super) async fn list_models(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
    limit: Duration,
) -> Option<Result<ModelListAnswer, String>> {
    let list = model.spec().list_models?;
    Some(list(&credentials.access(model), limit).await)
}

/// The pause that all members of a team share, through a file, when an endpoint asks for one.
impl Backoff for SharedBackoff {
    fn pending(&self) -> Duration {
        Self::pending(self, SystemClock.now())
    }

    fn hold(&self, wait: Duration) {
        if let Err(why) = Self::hold(self, SystemClock.now(), wait) {
            tracing::warn!(%why, "the other members cannot be told to pause");
        }
    }
}

/// The back-off of a call outside a team.
#[derive(Debug)]
struct NoSharedBackoff;

impl Backoff for NoSharedBackoff {
    fn pending(&self) -> Duration {
        Duration::ZERO
    }

    fn hold(&self, _wait: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_model_is_picked_and_the_first_one_otherwise() {
        let listed = |name: &str| ListedModel { name: name.into(), context_tokens: None };
        let server = |port: u16, models: &[&str]| LocalServer {
            base_url: format!("http://127.0.0.1:{port}"),
            models: models.iter().map(|name| listed(name)).collect(),
        };
        let servers = [server(1, &["a", "b"]), server(2, &["c"])];
        let at = |name: &str, port: u16| Some((listed(name), format!("http://127.0.0.1:{port}")));
        assert_eq!(pick(&servers, None), at("a", 1));
        assert_eq!(pick(&servers, Some("c")), at("c", 2));
        assert_eq!(pick(&servers, Some("d")), None);
        assert_eq!(pick(&[], None), None);
    }
}
