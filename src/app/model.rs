//! The model of an agent: selects one if none is named, lists the models of an endpoint, opens the provider.

use super::{event_loop::block_on, output};
use crate::error::{Exit, Failure};
use crate::llm::local::{self, LocalServer};
use crate::llm::registry::{ConnectError, Connected, Connection, Discovery};
use crate::llm::{ConfigError, Delta, ModelError, ModelListAnswer, Provider, retry::Backoff};
use crate::os::{Clock, SystemClock};
use crate::settings::Settings;
use crate::settings::model::{ModelChoice, ProviderCredentials, credential_variables};
use crate::store::{TeamDir, shared_backoff::SharedBackoff};
use crate::wire::AgentName;
use crate::wire::chat::{Block, ChatMessage, Reply, Request, Role, Thinking};
use crate::wire::limits::LOCAL_PROBE;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

const LIST_LIMIT: Duration = Duration::from_secs(10);

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
    let has_url = || credentials.access(&model).base_url.is_some();
    match model.spec().discovery {
        Discovery::FirstListed if model.name().is_none() => {
            let name = first_listed(&model, &credentials)?;
            Ok((model.named(name), credentials))
        }
        Discovery::LocalServers if model.name().is_none() || !has_url() => {
            let servers = probe(settings)?;
            let (name, base_url) = pick(&servers, model.name())
                .ok_or_else(|| not_found(&servers, model.name(), settings))?;
            let credentials = credentials.with_base_url(&model, base_url);
            Ok((model.named(name), credentials))
        }
        Discovery::None | Discovery::FirstListed | Discovery::LocalServers => {
            Ok((model, credentials))
        }
    }
}

/// Returns the first model that a configured endpoint lists. Fails for the provider's own endpoint, whose list has
/// no meaningful order.
fn first_listed(model: &ModelChoice, credentials: &ProviderCredentials) -> Result<String, Failure> {
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
    let servers = probe(settings)?;
    let Some((name, base_url)) = pick(&servers, None) else { return Ok(None) };
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

fn probe(settings: &Settings) -> Result<Vec<LocalServer>, Failure> {
    block_on(async { local::find(&settings.local_ports.value).await })
}

fn pick(servers: &[LocalServer], wanted: Option<&str>) -> Option<(String, String)> {
    servers.iter().find_map(|server| {
        let fits = |name: &&String| wanted.is_none_or(|wanted| wanted == name.as_str());
        let name = server.models.iter().find(fits)?;
        Some((name.clone(), server.base_url.clone()))
    })
}

fn not_found(servers: &[LocalServer], wanted: Option<&str>, settings: &Settings) -> Failure {
    let models: Vec<String> = servers.iter().flat_map(|server| server.models.clone()).collect();
    if let Some(wanted) = wanted.filter(|_| !models.is_empty()) {
        let what = format!("no local server has the model {wanted}");
        let why = format!("there is: {}", models.join(", "));
        let hint = "name one of these, or --model local for the first";
        return Failure::new(Exit::NoModel, what, why, hint);
    }
    let ports: Vec<String> = settings.local_ports.value.iter().map(u16::to_string).collect();
    let (ports, limit) = (ports.join(", "), LOCAL_PROBE.as_millis());
    let why = format!("no server lists models at 127.0.0.1 on the ports {ports} within {limit} ms");
    let hint = "start llama-server, Ollama or LM Studio, or set local_ports to where yours listens";
    Failure::new(Exit::NoModel, "there is no local model server", why, hint)
}

/// Opens a model for one incarnation of an agent. `conversation` is the incarnation in which a resumed conversation
/// began. Fails if credentials are missing or unusable, or a script cannot be read.
pub(super) fn open_provider(
    model: &ModelChoice,
    credentials: &ProviderCredentials,
    agent: &AgentName,
    incarnation: &str,
    conversation: Option<&str>,
    team: &TeamDir,
) -> Result<Rc<dyn Provider>, Failure> {
    // Members that wait for the same endpoint must not retry at the same moment.
    let jitter_seed = agent.as_str().bytes().fold(u64::from(std::process::id()), |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    });
    connect(
        model,
        Connection {
            model: model.name().unwrap_or_default(),
            access: credentials.access(model),
            agent: agent.as_str(),
            incarnation,
            conversation: conversation.unwrap_or(incarnation),
            jitter_seed,
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
        let server = |port: u16, models: &[&str]| LocalServer {
            base_url: format!("http://127.0.0.1:{port}"),
            models: models.iter().map(ToString::to_string).collect(),
        };
        let servers = [server(1, &["a", "b"]), server(2, &["c"])];
        let at = |name: &str, port: u16| Some((name.into(), format!("http://127.0.0.1:{port}")));
        assert_eq!(pick(&servers, None), at("a", 1));
        assert_eq!(pick(&servers, Some("c")), at("c", 2));
        assert_eq!(pick(&servers, Some("d")), None);
        assert_eq!(pick(&[], None), None);
    }
}
