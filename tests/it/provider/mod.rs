//! Providers: the clients of the model APIs, and teams that run on them.

mod chat_completions;
mod compaction;
mod endpoint_faults;
mod fallbacks;
mod gemini_api;
mod gemini_api_fake;
mod gemini_api_team;
mod images;
mod killed_model_calls;
mod llmock;
mod local_servers;
mod messages_api;
mod messages_api_team;
mod mixed_providers;
mod model_selection;
mod models;
mod proxies;
mod responses_api;
mod responses_api_team;
mod responses_refusals;
mod sdk;
mod shared_backoff;
