//! The provider `openai`: the Responses API of `OpenAI`, and chat completions of compatible servers.

pub(super) mod api_error;
pub(super) mod chat;
mod image_url;
pub(super) mod responses;

use super::client::{connect, list_models};
use super::config::Api;
use super::registry::{Access, Discovery, ModelName, OpenAiApi, ProviderSpec, Variables};

/// The environment variables with its credentials.
pub const VARIABLES: Variables =
    Variables { prefix: "OPENAI", has_auth_token: false, further: &[] };

/// `openai/NAME`: a model of `OpenAI`, or behind OpenAI-compatible chat completions.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Optional,
    variables: Some(VARIABLES),
    discovery: Discovery::FirstListed,
    base_url: Some("https://api.openai.com/v1"),
    connect: |connection| connect(&SPEC, api(&connection.access), &connection),
    list_models: Some(|access, limit| list_models(&SPEC, api(access), access, limit)),
    ..ProviderSpec::new("openai", "OPENAI_API_KEY, OPENAI_BASE_URL")
};

/// Returns the API that the settings name, otherwise the Responses API for `OpenAI` itself and chat completions for
/// other servers, of which only few have the Responses API.
fn api(access: &Access) -> Api {
    let is_own = SPEC.is_own_address(access.base_url.as_deref());
    let usual = if is_own { OpenAiApi::Responses } else { OpenAiApi::ChatCompletions };
    match access.openai_api.unwrap_or(usual) {
        OpenAiApi::Responses => Api::Responses,
        OpenAiApi::ChatCompletions => Api::ChatCompletions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_itself_has_the_responses_api_and_a_setting_decides_for_any_address() {
        use Api::{ChatCompletions, Responses};
        for (base_url, by_default) in [
            (None, Responses),
            (Some("https://api.openai.com/v1"), Responses),
            (Some(" https://API.openai.com/v1/ "), Responses),
            (Some("https://eu.api.openai.com/v1"), Responses),
            (Some("https://fakeapi.openai.com/v1"), ChatCompletions),
            (Some("https://api.openai.com.example/v1"), ChatCompletions),
            (Some("https://gateway.example/api.openai.com"), ChatCompletions),
            (Some("http://127.0.0.1:8000/v1"), ChatCompletions),
            (Some("not an address"), ChatCompletions),
        ] {
            let base_url = base_url.map(ToOwned::to_owned);
            let access = Access { base_url, ..Access::default() };
            assert_eq!(api(&access), by_default, "{:?}", access.base_url);
            for (named, meant) in
                [(OpenAiApi::Responses, Responses), (OpenAiApi::ChatCompletions, ChatCompletions)]
            {
                let access = Access { openai_api: Some(named), ..access.clone() };
                assert_eq!(api(&access), meant, "{:?}", access.base_url);
            }
        }
    }
}
