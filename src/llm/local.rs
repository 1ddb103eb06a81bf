//! Finds model servers on this machine, and their models.
//!
//! llama-server, Ollama and LM Studio all list their models at `/v1/models` and speak the Messages API, so the
//! client of that API serves them without a key.

use super::client::{connect, list_models};
use super::config::Api;
use super::http::{CallLimits, Endpoint, join};
use super::model_list::{ListedModel, ModelListAnswer, ask};
use super::registry::{Connected, Discovery, ModelName, ProviderSpec};
use super::secret::Redactor;
use super::written_calls::WrittenCalls;
use crate::os::deadline::deadline;
use crate::os::spawn::erased;
use crate::wire::limits::{LOCAL_ANSWER, LOCAL_PROBE};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// `local`: a server on this machine that speaks the Messages API and needs no key.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::Optional,
    discovery: Discovery::LocalServers,
    has_small_models: true,
    connect: |connection| {
        let connected = connect(&SPEC, Api::Messages, &connection)?;
        Ok(Connected { provider: Rc::new(WrittenCalls(connected.provider)), ..connected })
    },
    list_models: Some(|access, limit| list_models(&SPEC, Api::Messages, access, limit)),
    ..ProviderSpec::new("local", "the local server")
};

/// A server that responded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The base URL for a client.
    pub base_url: String,
    /// The chat models, in the server's order.
    pub models: Vec<ListedModel>,
}

/// Returns the servers that respond on these loopback ports, in the order of the ports. Never uses a proxy.
pub async fn find(ports: &[u16]) -> Vec<LocalServer> {
    find_within(ports, LOCAL_PROBE).await
}

/// Like [`find`]. If none responds, the ports that accept a connection get longer: a server may be busy with a prompt.
pub async fn find_patiently(ports: &[u16]) -> Vec<LocalServer> {
    let found = find(ports).await;
    if !found.is_empty() {
        return found;
    }
    let mut open = Vec::new();
    for port in ports {
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        if matches!(timeout(LOCAL_PROBE, connected).await, Ok(Ok(_))) {
            open.push(*port);
        }
    }
    find_within(&open, LOCAL_ANSWER).await
}

async fn find_within(ports: &[u16], limit: Duration) -> Vec<LocalServer> {
    let mut probes = JoinSet::new();
    for (at, port) in ports.iter().copied().enumerate() {
        probes.spawn_local(erased(async move { Some((at, probe(port, limit).await?)) }));
    }
    let mut found: Vec<(usize, LocalServer)> =
        probes.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, server)| server).collect()
}

async fn probe(port: u16, limit: Duration) -> Option<LocalServer> {
    let base_url = format!("http://127.0.0.1:{port}");
    let url = join(&base_url, "/v1/models").ok()?;
    let endpoint = Endpoint::new(url, &[], CallLimits::default(), Redactor::default()).ok()?;
    let Ok(ModelListAnswer::Models(models)) = ask(&endpoint, deadline(limit)).await else {
        return None;
    };
    Some(LocalServer { base_url, models })
}
