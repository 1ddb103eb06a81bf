//! Finds model servers on this machine and their models.
//!
//! llama-server, Ollama and LM Studio all list their models at `/v1/models` and speak the Messages API, so the
//! Anthropic client serves them without a key.

use super::anthropic::spec::connect_with;
use super::anthropic::{AnthropicConfig, Credentials};
use super::http::get_on_loopback;
use super::model_list::models;
use super::registry::{Access, Discovery, ModelName, ProviderSpec};
use std::time::Duration;
use tokio::task::JoinSet;

/// `local`: a server on this machine that speaks the Messages API and needs no key.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Optional,
    discovery: Discovery::LocalServers,
    has_small_models: true,
    connect: |connection| {
        let config = AnthropicConfig { provider: "local".into(), ..config(&connection.access) };
        connect_with(config, &connection)
    },
    list_models: Some(|access, limit| {
        let config = config(access);
        Box::pin(async move { config.listing(limit).await })
    }),
    ..ProviderSpec::new("local", "the local server")
};

fn config(access: &Access) -> AnthropicConfig {
    let base_url = access.base_url.as_deref().unwrap_or_default();
    AnthropicConfig::new(base_url, Credentials::Nobody, "")
}

/// The longest time that a server may take to list its models.
pub const PROBE_LIMIT: Duration = Duration::from_millis(300);

/// A server that responded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The base URL for a client.
    pub base_url: String,
    /// The chat models, in the server's order.
    pub models: Vec<String>,
}

/// Returns the servers that respond on these loopback ports, in the order of the ports. Never uses a proxy.
pub async fn find(ports: &[u16]) -> Vec<LocalServer> {
    let mut probes = JoinSet::new();
    for (at, port) in ports.iter().copied().enumerate() {
        probes.spawn_local(async move { Some((at, probe(port).await?)) });
    }
    let mut found: Vec<(usize, LocalServer)> =
        probes.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, server)| server).collect()
}

async fn probe(port: u16) -> Option<LocalServer> {
    let base_url = format!("http://127.0.0.1:{port}");
    let body = get_on_loopback(port, "/v1/models", PROBE_LIMIT).await?;
    let models = models(&serde_json::from_slice(&body).ok()?);
    (!models.is_empty()).then_some(LocalServer { base_url, models })
}
