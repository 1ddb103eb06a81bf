//! The provider `anthropic`: the Messages API.

pub(super) mod reply;
pub(super) mod request;

use super::client::{connect, list_models};
use super::config::Api;
use super::registry::{ModelName, ProviderSpec, Variables};

/// The environment variables with its credentials.
pub const VARIABLES: Variables =
    Variables { prefix: "ANTHROPIC", has_auth_token: true, further: &[] };

/// `anthropic/NAME`: a model behind the Messages API.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Required,
    default_model: Some("claude-sonnet-5-5"),
    variables: Some(VARIABLES),
    context_tokens: Some(200_000),
    base_url: Some("https://api.anthropic.com"),
    connect: |connection| connect(&SPEC, Api::Messages, &connection),
    list_models: Some(|access, limit| list_models(&SPEC, Api::Messages, access, limit)),
    ..ProviderSpec::new(
        "anthropic",
        "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), ANTHROPIC_BASE_URL",
    )
};
