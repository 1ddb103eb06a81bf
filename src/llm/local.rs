//! Finds model servers on this machine and their models.
//!
//! llama-server, Ollama and LM Studio all list their models at `/v1/models` and speak the Messages API, so the
//! Anthropic client serves them without a key.

use super::http::get_on_loopback;
use super::model_list::models;
use std::time::Duration;
use tokio::task::JoinSet;

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
