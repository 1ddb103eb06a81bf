//! The provider `openai`: chat completions of `OpenAI` and of compatible servers.

pub(super) mod reply;
pub(super) mod request;

use super::client::{connect, list_models};
use super::config::Api;
use super::registry::{Discovery, ModelName, ProviderSpec, Variables};

/// `openai/NAME`: a model behind OpenAI-compatible chat completions.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Optional,
    variables: Some(Variables { prefix: "OPENAI", has_auth_token: false }),
    discovery: Discovery::FirstListed,
    base_url: Some("https://api.openai.com/v1"),
    connect: |connection| connect(&SPEC, Api::ChatCompletions, &connection),
    list_models: Some(|access, limit| list_models(&SPEC, Api::ChatCompletions, access, limit)),
    ..ProviderSpec::new("openai", "OPENAI_API_KEY, OPENAI_BASE_URL")
};
