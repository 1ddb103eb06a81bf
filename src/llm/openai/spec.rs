//! The provider `openai`.

use super::{OpenAi, OpenAiConfig};
use crate::llm::anthropic::parse_headers;
use crate::llm::http::ConfigError;
use crate::llm::registry::{
    Access, Connected, Connection, Discovery, ModelName, ProviderSpec, Variables,
};
use std::rc::Rc;

/// The URL of the API.
const BASE_URL: &str = "https://api.openai.com/v1";

/// `openai/NAME`: a model behind OpenAI-compatible chat completions.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Optional,
    variables: Some(Variables { prefix: "OPENAI", has_auth_token: false }),
    discovery: Discovery::FirstListed,
    base_url: Some(BASE_URL),
    connect: |connection| {
        let Connection { model, access, jitter_seed, backoff, .. } = connection;
        let config = OpenAiConfig { model: model.into(), jitter_seed, ..config(&access)? };
        let backoff = backoff(&config.base_url);
        let client = OpenAi::new(config)?.with_backoff(backoff);
        let warnings = client.warnings().to_vec();
        Ok(Connected { provider: Rc::new(client), warnings })
    },
    list_models: Some(|access, limit| {
        let config = config(access);
        Box::pin(async move { config.map_err(|why| why.to_string())?.listing(limit).await })
    }),
    ..ProviderSpec::new("openai", "OPENAI_API_KEY, OPENAI_BASE_URL")
};

fn config(access: &Access) -> Result<OpenAiConfig, ConfigError> {
    let key = Access::secret("OPENAI_API_KEY", access.api_key.as_ref())?;
    let base_url = access.base_url.as_deref().unwrap_or(BASE_URL);
    let mut config = OpenAiConfig::new(base_url, key, "");
    if let Some(headers) = &access.custom_headers {
        config.extra_headers = parse_headers(headers)?;
    }
    Ok(config)
}
