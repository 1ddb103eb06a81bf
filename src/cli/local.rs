//! Models that are found by asking: `--model local`, from a name to a server that answers on this machine,
//! with the offer to use one; and `--model openai`, the first that an endpoint lists.

use super::build_agent::block_on;
use super::out;
use super::provider::openai_config;
use crate::error::{Exit, Failure};
use crate::llm::Listing;
use crate::llm::local::{self, LocalServer, PROBE_LIMIT};
use crate::settings::Settings;
use crate::settings::model::{Credentials, ModelChoice};
use std::io::IsTerminal;
use std::time::Duration;

/// How long an endpoint may take to say which models it has.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// The model with its name, and the address of its server if that is on this machine; one that has all
/// this as it is. Whoever has been told is not made to look again.
pub(super) fn find(
    model: ModelChoice,
    credentials: Credentials,
    settings: &Settings,
) -> Result<(ModelChoice, Credentials), Failure> {
    match &model {
        ModelChoice::OpenAi(None) => {
            let name = first_listed(&credentials)?;
            Ok((ModelChoice::OpenAi(Some(name)), credentials))
        }
        ModelChoice::Local(wanted) if credentials.local.is_none() || wanted.is_none() => {
            let servers = look(settings)?;
            let (name, base_url) = pick(&servers, wanted.as_deref())
                .ok_or_else(|| not_found(&servers, wanted.as_deref(), settings))?;
            let credentials = Credentials { local: Some(base_url), ..credentials };
            Ok((ModelChoice::Local(Some(name)), credentials))
        }
        ModelChoice::Local(_)
        | ModelChoice::OpenAi(Some(_))
        | ModelChoice::Anthropic(_)
        | ModelChoice::Rehearsal
        | ModelChoice::Script(_) => Ok((model, credentials)),
    }
}

/// The first model of an endpoint of one's own. The list of a whole provider is in no order that says
/// which one is meant: there it must be named.
fn first_listed(credentials: &Credentials) -> Result<String, Failure> {
    let failed = |why: String| {
        Failure::new(
            Exit::NoModel,
            "no model is named for chat completions",
            why,
            "give --model openai/NAME, or set OPENAI_MODEL",
        )
    };
    if credentials.openai.base_url.is_none() {
        return Err(failed(
            "OPENAI_API_KEY alone does not say which model of openai is meant".into(),
        ));
    }
    let config = openai_config("", &credentials.openai).map_err(|why| failed(why.to_string()))?;
    let said = block_on(async { config.listing(LIST_LIMIT).await })?;
    let asked = |what: &str| failed(format!("the endpoint was asked for one: {what}"));
    match said.map_err(|why| asked(&why))? {
        Listing::Models(models) => models.into_iter().next().ok_or_else(|| asked("it has none")),
        Listing::Refused => Err(asked("it refuses the credentials")),
        Listing::Unlisted => Err(asked("it keeps no list")),
    }
}

/// Nothing is configured and a person sits there: a local server that answers is shown, and used if
/// they say so. Asked in every run in which nothing is configured, and nothing is written down.
pub(super) fn offer(settings: &Settings) -> Result<Option<ModelChoice>, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    let servers = look(settings)?;
    let Some((name, base_url)) = pick(&servers, None) else { return Ok(None) };
    let found = format!("A local model server answers at {base_url}; its first model is {name}.");
    out::complain(&format!(
        "{found}\nUse it in this run? [y/N]  (model = \"local\" in the settings: not asked again)"
    ));
    let mut answer = String::new();
    // No answer is no.
    let _length = std::io::stdin().read_line(&mut answer).unwrap_or_default();
    let yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    Ok(yes.then_some(ModelChoice::Local(Some(name))))
}

fn look(settings: &Settings) -> Result<Vec<LocalServer>, Failure> {
    block_on(async { local::find(&settings.local_ports.value).await })
}

/// The model that is meant and the address of its server.
fn pick(servers: &[LocalServer], wanted: Option<&str>) -> Option<(String, String)> {
    servers.iter().find_map(|server| {
        let fits = |name: &&String| wanted.is_none_or(|wanted| wanted == name.as_str());
        let name = server.models.iter().find(fits)?;
        Some((name.clone(), server.base_url.clone()))
    })
}

fn not_found(servers: &[LocalServer], wanted: Option<&str>, settings: &Settings) -> Failure {
    let ports: Vec<String> = settings.local_ports.value.iter().map(u16::to_string).collect();
    let models: Vec<String> = servers.iter().flat_map(|server| server.models.clone()).collect();
    match wanted {
        Some(wanted) if !models.is_empty() => Failure::new(
            Exit::NoModel,
            format!("no local server has the model {wanted}"),
            format!("there is: {}", models.join(", ")),
            "name one of these, or --model local for the first",
        ),
        Some(_) | None => Failure::new(
            Exit::NoModel,
            "there is no local model server",
            format!(
                "nobody lists models at 127.0.0.1 on the ports {} within {} ms",
                ports.join(", "),
                PROBE_LIMIT.as_millis()
            ),
            "start llama-server, Ollama or LM Studio, or set local_ports to where yours listens",
        ),
    }
}
