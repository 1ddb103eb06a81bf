//! A connection to one server: the calls of the protocol.

use super::content::CallContent;
use super::error::ConnectionError;
use super::from_server::FromServer;
use super::http::Http;
use super::pipes::Pipes;
use super::protocol::{Era, Version, implementation, request_meta};
use super::remote_tool::RemoteTool;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};

/// The longest time of a call whose server reports progress.
pub(crate) const MAX_PROGRESS: Duration = Duration::from_secs(600);

/// The time in which a connection closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of pages, and of tools, of a server's list. A list without end is cut.
const MAX_PAGES: usize = 50;
const MAX_TOOLS: usize = 1000;

/// The name by which this program introduces itself to servers.
const CLIENT: &str = "agent-team";

/// A connection to a server that has answered. Dropping it closes it.
pub(crate) struct Connection {
    transport: Transport,
    era: Era,
    from_server: Rc<FromServer>,
}

enum Transport {
    Pipes(Pipes),
    Http(Http),
}

impl Connection {
    /// Connects to a server over its standard output and input.
    ///
    /// # Errors
    /// It ended, did not answer within `limit`, or does not speak a known version of the protocol.
    pub(crate) async fn over_pipes(
        output: impl AsyncRead + Unpin + 'static,
        input: impl AsyncWrite + Unpin + 'static,
        era: Era,
        limit: Duration,
    ) -> Result<Self, ConnectionError> {
        let from_server = Rc::new(FromServer::default());
        let transport = Transport::Pipes(Pipes::open(output, input, Rc::clone(&from_server)));
        Self { transport, era, from_server }.opened(limit).await
    }

    /// Connects to an endpoint.
    ///
    /// # Errors
    /// The address or a header is invalid, or as for pipes.
    pub(crate) async fn over_http(
        url: &str,
        headers: &BTreeMap<String, String>,
        era: Era,
        limit: Duration,
    ) -> Result<Self, ConnectionError> {
        let from_server = Rc::new(FromServer::default());
        let http = Http::open(url, headers, era, limit, Rc::clone(&from_server))?;
        Self { transport: Transport::Http(http), era, from_server }.opened(limit).await
    }

    async fn opened(self, limit: Duration) -> Result<Self, ConnectionError> {
        match timeout(limit, self.begin()).await {
            Ok(begun) => begun.map(|()| self),
            Err(_) => Err(ConnectionError::TimedOut(limit, self.stray())),
        }
    }

    /// Agrees on the version of the protocol. Nothing is offered to the server.
    async fn begin(&self) -> Result<(), ConnectionError> {
        let speaks = |versions: &Value| {
            let why = format!(
                "it speaks version {versions} of the protocol, which this program does not"
            );
            ConnectionError::Refused(why)
        };
        if self.era == Era::Discover {
            let found = self.request_once("server/discover", Map::new()).await?;
            let versions = found.get("supportedVersions").cloned().unwrap_or_default();
            let ours = Value::from(Version::V2026_07_28.as_str());
            let is_ours = versions.as_array().is_some_and(|versions| versions.contains(&ours));
            return if is_ours { Ok(()) } else { Err(speaks(&versions)) };
        }
        let mut params = Map::new();
        params.insert("protocolVersion".into(), Version::NEWEST_HANDSHAKE.as_str().into());
        params.insert("capabilities".into(), json!({}));
        params.insert("clientInfo".into(), implementation(CLIENT));
        let answer = self.request_once("initialize", params).await?;
        let version = answer.get("protocolVersion").cloned().unwrap_or_default();
        let agreed = version.as_str().and_then(Version::named);
        let agreed = agreed.filter(|version| version.era() == Era::Handshake);
        let agreed = agreed.ok_or_else(|| speaks(&version))?;
        match &self.transport {
            Transport::Pipes(pipes) => pipes.notify("notifications/initialized", Value::Null),
            Transport::Http(http) => {
                http.begin(agreed);
                http.notify("notifications/initialized", Value::Null).await;
            }
        }
        Ok(())
    }

    async fn request_once(
        &self,
        method: &'static str,
        mut params: Map<String, Value>,
    ) -> Result<Value, ConnectionError> {
        if self.era == Era::Discover {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.extend(request_meta(implementation(CLIENT)));
            }
        }
        match &self.transport {
            Transport::Pipes(pipes) => pipes.request(method, params.into()).await,
            Transport::Http(http) => http.request(method, params.into()).await,
        }
    }

    /// Makes a request; once more, with a new session, if the server has forgotten the one before.
    async fn request(
        &self,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Value, ConnectionError> {
        let Transport::Http(http) = &self.transport else {
            return self.request_once(method, params).await;
        };
        let answer = self.request_once(method, params.clone()).await;
        if !http.is_session_lost() {
            return answer;
        }
        http.forget_session();
        self.begin().await?;
        self.from_server.has_new_tools.set(true);
        self.request_once(method, params).await
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.transport {
            Transport::Pipes(pipes) => pipes.is_closed(),
            Transport::Http(http) => http.is_session_lost(),
        }
    }

    /// Whether the server has said since the last call that its tools have changed.
    pub(crate) fn take_new_tools(&self) -> bool {
        self.from_server.has_new_tools.take()
    }

    /// Returns the tools of the server. An entry that is no tool is left out.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub(crate) async fn tools(&self, limit: Duration) -> Result<Vec<RemoteTool>, ConnectionError> {
        let read = async {
            let mut tools = Vec::new();
            let mut params = Map::new();
            for _ in 0..MAX_PAGES {
                let page = self.request("tools/list", params.clone()).await?;
                let Some(listed) = page.get("tools").and_then(Value::as_array) else {
                    return Err(ConnectionError::NotUnderstood("it is no list of tools".into()));
                };
                let known: Vec<RemoteTool> = listed.iter().filter_map(RemoteTool::of).collect();
                if known.len() < listed.len() {
                    let count = listed.len() - known.len();
                    tracing::warn!(count, "an MCP server lists tools without a name or a schema");
                }
                tools.extend(known);
                let next = page.get("nextCursor").filter(|next| next.is_string());
                let Some(next) = next.filter(|_| tools.len() < MAX_TOOLS) else { break };
                params.insert("cursor".into(), next.clone());
            }
            tools.truncate(MAX_TOOLS);
            Ok(tools)
        };
        match timeout(limit, read).await {
            Ok(tools) => tools,
            Err(_) => Err(ConnectionError::TimedOut(limit, self.stray())),
        }
    }

    /// Calls a tool. Each report of progress extends `limit`. Dropping the future tells the server that the call is
    /// cancelled.
    ///
    /// # Errors
    /// The connection ended, the server did not answer in time, or it refused the call. Only then is it certain that
    /// nothing was done.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        limit: Duration,
    ) -> Result<CallContent, ConnectionError> {
        let mut params = Map::new();
        params.insert("name".into(), tool.into());
        if arguments.is_object() {
            params.insert("arguments".into(), arguments.clone());
        }
        let token = self.from_server.begin_call();
        params.insert("_meta".into(), json!({ "progressToken": token }));
        let start = Instant::now();
        let last = start + limit.max(MAX_PROGRESS);
        let mut until = start + limit;
        let mut calling = pin!(self.request("tools/call", params));
        loop {
            tokio::select! {
                answer = &mut calling => return CallContent::of(&answer?),
                () = self.from_server.progress.notified() => {
                    until = (Instant::now() + limit).min(last);
                }
                () = sleep_until(until) => {
                    return Err(ConnectionError::TimedOut(start.elapsed(), String::new()));
                }
            }
        }
    }

    /// Closes the connection; a program sees the end of its input.
    pub(crate) async fn close(self) {
        if let Transport::Http(http) = &self.transport
            && timeout(CLOSE_TIMEOUT, http.end_session()).await.is_err()
        {
            tracing::debug!("an MCP server did not end its session in time");
        }
    }

    fn stray(&self) -> String {
        match &self.transport {
            Transport::Pipes(pipes) => pipes.stray(),
            Transport::Http(_) => String::new(),
        }
    }
}
