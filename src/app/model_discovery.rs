//! Models that are found by asking an endpoint: the first one that a configured endpoint lists, or one of a
//! server on this machine, which a person may also be offered.

use super::event_loop::block_on;
use super::output;
use super::provider::list_models;
use crate::error::{Exit, Failure};
use crate::llm::Listing;
use crate::llm::local::{self, LocalServer, PROBE_LIMIT};
use crate::llm::registry::Discovery;
use crate::settings::Settings;
use crate::settings::model::{Credentials, ModelChoice};
use std::io::IsTerminal;
use std::time::Duration;

/// How long an endpoint may take to list its models.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Completes a model that has no name, and the URL of a server on this machine. A model and credentials that
/// are complete stay as they are, so that teammates do not search again.
pub(super) fn complete(
    model: ModelChoice,
    credentials: Credentials,
    settings: &Settings,
) -> Result<(ModelChoice, Credentials), Failure> {
    match model.spec().discovery {
        Discovery::FirstListed if model.name().is_none() => {
            let name = first_listed(&model, &credentials)?;
            Ok((model.named(name), credentials))
        }
        Discovery::LocalServers
            if model.name().is_none() || credentials.access(&model).base_url.is_none() =>
        {
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

/// The first model of a configured endpoint. The list of the provider's own endpoint is in no order that
/// says which model is meant, so there a name is required.
fn first_listed(model: &ModelChoice, credentials: &Credentials) -> Result<String, Failure> {
    let provider = model.spec().name;
    let variable = |word| model.spec().variables.map(|it| it.name(word)).unwrap_or_default();
    let failed = |why: String| {
        Failure::new(
            Exit::NoModel,
            format!("no model of {provider} is named"),
            why,
            format!("give --model {provider}/NAME, or set {}", variable("MODEL")),
        )
    };
    if credentials.access(model).base_url.is_none() {
        let key = variable("API_KEY");
        return Err(failed(format!("{key} alone does not say which model of {provider} is meant")));
    }
    let listing = block_on(async { list_models(model, credentials, LIST_LIMIT).await })?;
    let asked = |what: &str| failed(format!("the endpoint was asked for one: {what}"));
    match listing.unwrap_or(Ok(Listing::Unlisted)).map_err(|why| asked(&why))? {
        Listing::Models(models) => models.into_iter().next().ok_or_else(|| asked("it has none")),
        Listing::Refused => Err(asked("it refuses the credentials")),
        Listing::Unlisted => Err(asked("it keeps no list")),
    }
}

/// Offers the person a local server that answers, when no model is configured. The answer counts for this
/// run only.
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

/// The wanted model, or the first one, and the URL of its server.
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
                "no server lists models at 127.0.0.1 on the ports {} within {} ms",
                ports.join(", "),
                PROBE_LIMIT.as_millis()
            ),
            "start llama-server, Ollama or LM Studio, or set local_ports to where yours listens",
        ),
    }
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
