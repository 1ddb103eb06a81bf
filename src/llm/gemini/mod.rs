//! The provider `gemini`: Google's Gemini API.

pub(super) mod model;
mod opaque;
pub(super) mod refusals;
pub(super) mod reply;
pub(super) mod request;

use super::client::{connect, list_models};
use super::config::Api;
use super::registry::{ModelName, ProviderSpec, Variables};

/// The environment variables with its credentials.
pub const VARIABLES: Variables = Variables {
    prefix: "GEMINI",
    has_auth_token: false,
    further: &["GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"],
};

/// `gemini/NAME`: a model behind the Gemini API.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Required,
    default_model: Some("gemini-flash-latest"),
    variables: Some(VARIABLES),
    context_tokens: Some(1_048_576),
    base_url: Some("https://generativelanguage.googleapis.com"),
    connect: |connection| connect(&SPEC, Api::Gemini, &connection),
    list_models: Some(|access, limit| list_models(&SPEC, Api::Gemini, access, limit)),
    ..ProviderSpec::new("gemini", "GEMINI_API_KEY (or GOOGLE_API_KEY), GEMINI_BASE_URL")
};
