//! The list of models of an endpoint. The request for it also shows whether the credentials are accepted.

use super::attempt_error::{AttemptError, ErrorReport};
use super::http::Endpoint;
use serde_json::Value;
use std::time::Duration;

/// The answer of an endpoint to a request for its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelListAnswer {
    /// The chat models, in the endpoint's order.
    Models(Vec<ListedModel>),
    /// The endpoint refused the credentials.
    Refused,
    /// The endpoint answers with a list that names no chat model.
    Unlisted,
    /// The endpoint answers with something else.
    Failed {
        /// The HTTP status.
        status: u16,
        /// The answer, as a text for the user.
        why: String,
    },
}

/// A model as an endpoint lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The name.
    pub name: String,
    /// The size of its context in tokens, if the endpoint says it.
    pub context_tokens: Option<u64>,
}

/// The fields in which endpoints say the size of a context: Anthropic, Google, `OpenRouter`, vLLM, Groq, LM Studio.
const CONTEXT_FIELDS: [&str; 6] = [
    "max_input_tokens",
    "inputTokenLimit",
    "context_length",
    "max_model_len",
    "context_window",
    "loaded_context_length",
];

/// Requests the list of models. The error is a text for the user.
pub(super) async fn ask(endpoint: &Endpoint, limit: Duration) -> Result<ModelListAnswer, String> {
    match endpoint.get(limit).await {
        Ok((401 | 403, _)) => Ok(ModelListAnswer::Refused),
        Ok((status, body)) => Ok(match serde_json::from_slice(&body) {
            Ok(list) if status == 200 => {
                let models = Some(models(&list)).filter(|models| !models.is_empty());
                models.map_or(ModelListAnswer::Unlisted, ModelListAnswer::Models)
            }
            Err(_) if status == 200 => {
                let why = "200 with something that is not JSON, such as a web page".to_owned();
                ModelListAnswer::Failed { status, why }
            }
            Ok(_) | Err(_) => {
                let report = ErrorReport::from_body(status, &body);
                if report.is_bad_key() {
                    return Ok(ModelListAnswer::Refused);
                }
                ModelListAnswer::Failed { status, why: endpoint.shown(&report.to_string()) }
            }
        }),
        Err(why @ AttemptError::Setup(_)) => Err(why.to_string()),
        Err(why @ AttemptError::Refused) => Err(format!("{why} by {}", endpoint.origin())),
        Err(why) => Err(endpoint.shown(&format!("{}: {why}", endpoint.url()))),
    }
}

/// Returns the chat models of a list, without embedding models. Google's API calls the list `models` and says what
/// each of them can do.
fn models(list: &Value) -> Vec<ListedModel> {
    let of = |key: &str| list.get(key).and_then(Value::as_array).into_iter().flatten();
    let text =
        |entry: &'_ Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let ids = of("data").filter_map(|entry| Some((text(entry, "id")?, entry)));
    let is_chat = |entry: &&Value| {
        let methods = entry.get("supportedGenerationMethods").and_then(Value::as_array);
        methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
    };
    let names = of("models").filter(is_chat);
    let names = names.filter_map(|entry| {
        let name = text(entry, "name")?;
        Some((name.strip_prefix("models/").map(str::to_owned).unwrap_or(name), entry))
    });
    let all = ids.chain(names).filter(|(id, _)| !id.is_empty() && !id.contains("embed"));
    let listed = all.map(|(name, entry)| {
        let sizes = CONTEXT_FIELDS.iter().filter_map(|field| entry.get(field)?.as_u64());
        ListedModel { name, context_tokens: sizes.filter(|tokens| *tokens > 0).min() }
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn embedding_models_are_not_listed() {
        let list = json!({"data": [
            {"id": "text-embedding-nomic"}, {"id": "qwen"}, {"id": ""}, {"name": "x"}, {"id": "b:7"}]});
        assert_eq!(names(&list), ["qwen", "b:7"]);
        assert_eq!(names(&json!([1])), [""; 0]);
        let list = json!({"models": [
            {"name": "models/gemini-a", "supportedGenerationMethods": ["countTokens", "generateContent"]},
            {"name": "models/imagen", "supportedGenerationMethods": ["predict"]},
            {"name": "models/gemini-embedding", "supportedGenerationMethods": ["embedContent"]},
            {"name": "tunedModels/own"}]});
        assert_eq!(names(&list), ["gemini-a", "tunedModels/own"]);
    }

    fn names(list: &Value) -> Vec<String> {
        models(list).into_iter().map(|listed| listed.name).collect()
    }

    #[test]
    fn the_size_of_a_context_is_read_in_all_forms() {
        let list = json!({"data": [
            {"id": "a", "max_model_len": 4096}, {"id": "b", "context_length": 8192, "max_model_len": 2048},
            {"id": "c", "context_length": "many"}, {"id": "d", "max_input_tokens": 0}],
            "models": [{"name": "models/e", "inputTokenLimit": 1_048_576}]});
        let sizes: Vec<_> = models(&list).iter().map(|listed| listed.context_tokens).collect();
        assert_eq!(sizes, [Some(4096), Some(2048), None, None, Some(1_048_576)]);
    }
}
