//! The provider `anthropic`.

use super::{Anthropic, AnthropicConfig, Credentials, parse_headers};
use crate::llm::http::ConfigError;
use crate::llm::registry::{
    Access, ConnectError, Connected, Connection, ModelName, ProviderSpec, Variables,
};
use std::rc::Rc;

/// The URL of the API.
const BASE_URL: &str = "https://api.anthropic.com";

/// `anthropic/NAME`: a model behind the Messages API.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Required,
    default_model: Some("claude-sonnet-5-5"),
    variables: Some(Variables { prefix: "ANTHROPIC", has_auth_token: true }),
    context_tokens: Some(200_000),
    base_url: Some(BASE_URL),
    connect: |connection| connect_with(config(&connection.access)?, &connection),
    list_models: Some(|access, limit| {
        let config = config(access);
        Box::pin(async move { config.map_err(|why| why.to_string())?.listing(limit).await })
    }),
    ..ProviderSpec::new(
        "anthropic",
        "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), ANTHROPIC_BASE_URL",
    )
};

/// Connects a client of the Messages API.
pub(in crate::llm) fn connect_with(
    config: AnthropicConfig,
    connection: &Connection<'_>,
) -> Result<Connected, ConnectError> {
    let backoff = (connection.backoff)(&config.base_url);
    let (model, jitter_seed) = (connection.model.into(), connection.jitter_seed);
    let config = AnthropicConfig { model, jitter_seed, ..config };
    let client = Anthropic::new(config)?.with_backoff(backoff);
    let warnings = client.warnings().to_vec();
    Ok(Connected { provider: Rc::new(client), warnings })
}

fn config(access: &Access) -> Result<AnthropicConfig, ConfigError> {
    let key = Access::secret("ANTHROPIC_API_KEY", access.api_key.as_ref())?;
    let token = Access::secret("ANTHROPIC_AUTH_TOKEN", access.auth_token.as_ref())?;
    let credentials = key
        .map(Credentials::ApiKey)
        .or(token.map(Credentials::AuthToken))
        .unwrap_or(Credentials::Nobody);
    let base_url = access.base_url.as_deref().unwrap_or(BASE_URL);
    let mut config = AnthropicConfig::new(base_url, credentials, "");
    if let Some(headers) = &access.custom_headers {
        config.extra_headers = parse_headers(headers)?;
    }
    if let Some(version) = &access.api_version {
        config.version.clone_from(version);
    }
    Ok(config)
}
