//! A connection to one server.

use super::content::CallContent;
use super::line_watch::{LineRecord, MAX_LINE_BYTES, WatchedReader};
use crate::os::http_client;
use crate::wire::file_view::ContentHash;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
    JsonObject, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// The longest time of a call whose server reports progress.
pub(crate) const MAX_PROGRESS: Duration = Duration::from_secs(600);

/// The time in which a connection closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of pages, and of tools, of a server's list. A list without end is cut.
const MAX_PAGES: usize = 50;
const MAX_TOOLS: usize = 1000;

/// The way in which a connection begins. A server that was addressed in one way may refuse the other one for as long as
/// its process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// By the handshake of the versions up to 2025-11-25, which the servers of today know.
    Handshake,
    /// By `server/discover`, as of 2026-07-28.
    Discover,
}

impl Era {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteTool {
    /// The server's own name of it.
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON schema of its arguments, an object.
    pub(crate) input_schema: Value,
    /// Whether the server says that it changes nothing.
    pub(crate) is_read_only: bool,
}

impl RemoteTool {
    /// Returns the digest of everything that a model sees of the tool.
    pub(crate) fn digest(&self) -> String {
        let Self { name, description, input_schema, is_read_only } = self;
        let seen = json!([name, description, input_schema, is_read_only]);
        ContentHash::of(seen.to_string().as_bytes()).as_str().to_owned()
    }

    fn of(tool: Tool) -> Self {
        let hints = tool.annotations.as_ref();
        Self {
            name: tool.name.into_owned(),
            description: tool
                .description
                .or(tool.title.map(Into::into))
                .unwrap_or_default()
                .into_owned(),
            input_schema: Value::Object(JsonObject::clone(&tool.input_schema)),
            is_read_only: hints.and_then(|hints| hints.read_only_hint).unwrap_or_default(),
        }
    }
}

/// The failure of a connection or a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The server has closed the connection.
    #[error("the connection ended{0}")]
    Ended(String),
    /// The server has not answered in time.
    #[error("it did not answer within {} s{}", .0.as_secs(), .1)]
    TimedOut(Duration, String),
    /// The server has answered with an error of the protocol.
    #[error("{0}")]
    Refused(String),
    /// The server has answered something that this version does not understand.
    #[error("its answer is not understood: {0}")]
    NotUnderstood(String),
}

/// The program's part in the protocol: it offers nothing to servers.
struct Handler {
    progress: Rc<Notify>,
    has_new_tools: Rc<Cell<bool>>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let this_program = Implementation::new("agent-team", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), this_program)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.notify_waiters();
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_new_tools.set(true);
    }
}

/// A connection to a server that has answered. Dropping it closes it.
pub(crate) struct Connection {
    service: RunningService<RoleClient, Handler>,
    progress: Rc<Notify>,
    has_new_tools: Rc<Cell<bool>>,
    lines: LineRecord,
}

impl Connection {
    /// Connects to a server over its standard output and input.
    ///
    /// # Errors
    /// It ended, did not answer within `limit`, or does not speak a known version of the protocol.
    pub(crate) async fn over_pipes(
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
        era: Era,
        limit: Duration,
    ) -> Result<Self, ConnectionError> {
        let lines = LineRecord::default();
        let output = WatchedReader::new(output, lines.clone());
        Self::open((output, input), lines, era, limit).await
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
        let refused = |why: String| ConnectionError::Refused(why);
        let address =
            Url::parse(url).map_err(|why| refused(format!("its url is invalid: {why}")))?;
        if address.scheme() != "https" && !http_client::is_loopback(&address) {
            let why = "its url is plain http, which is allowed only for this machine; use https";
            return Err(refused(why.into()));
        }
        let mut all = Vec::new();
        for (name, value) in headers {
            let name: HeaderName = name
                .parse()
                .map_err(|_| refused(format!("{name:?} is not a valid header name")))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| refused(format!("the value of its header {name} is invalid")))?;
            value.set_sensitive(true);
            all.push((name, value));
        }
        let client = http_client::builder(&address)
            .connect_timeout(limit)
            .build()
            .map_err(|why| refused(why.to_string()))?;
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(all.into_iter().collect());
        let transport = StreamableHttpClientTransport::with_client(client, config);
        Self::open(transport, LineRecord::default(), era, limit).await
    }

    async fn open<T, E, A>(
        transport: T,
        lines: LineRecord,
        era: Era,
        limit: Duration,
    ) -> Result<Self, ConnectionError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (progress, has_new_tools) = (Rc::new(Notify::new()), Rc::default());
        let handler =
            Handler { progress: Rc::clone(&progress), has_new_tools: Rc::clone(&has_new_tools) };
        let serve = handler.serve_with_lifecycle(transport, era.lifecycle());
        let service = match timeout(limit, serve).await {
            Ok(Ok(service)) => service,
            Ok(Err(why)) => return Err(why_not_open(&why.to_string(), &lines)),
            Err(_) => return Err(ConnectionError::TimedOut(limit, stray(&lines))),
        };
        Ok(Self { service, progress, has_new_tools, lines })
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_transport_closed()
    }

    /// Whether the server has said since the last call that its tools have changed.
    pub(crate) fn take_new_tools(&self) -> bool {
        self.has_new_tools.take()
    }

    /// Returns the tools of the server.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub(crate) async fn tools(&self, limit: Duration) -> Result<Vec<RemoteTool>, ConnectionError> {
        let read = async {
            let (mut tools, mut cursor) = (Vec::new(), None);
            for _ in 0..MAX_PAGES {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let page = self.service.list_tools(Some(page)).await?;
                tools.extend(page.tools.into_iter().map(RemoteTool::of));
                cursor = page.next_cursor;
                if cursor.is_none() || tools.len() >= MAX_TOOLS {
                    break;
                }
            }
            tools.truncate(MAX_TOOLS);
            Ok(tools)
        };
        match timeout(limit, read).await {
            Ok(tools) => tools.map_err(|why| self.error(why)),
            Err(_) => Err(ConnectionError::TimedOut(limit, stray(&self.lines))),
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
        let mut request = CallToolRequestParams::new(tool.to_owned());
        if let Value::Object(arguments) = arguments {
            request = request.with_arguments(arguments.clone());
        }
        let start = Instant::now();
        let last = start + limit.max(MAX_PROGRESS);
        let mut until = start + limit;
        let mut calling = pin!(self.service.call_tool_once(request));
        loop {
            tokio::select! {
                answer = &mut calling => {
                    return match answer.map_err(|why| self.error(why))? {
                        CallToolResponse::Complete(result) => Ok(CallContent::of(result)),
                        CallToolResponse::InputRequired(_) | CallToolResponse::Task(_) | _ => {
                            let why = "it asks for something that this program does not offer";
                            Err(ConnectionError::NotUnderstood(why.into()))
                        }
                    };
                }
                () = self.progress.notified() => until = (Instant::now() + limit).min(last),
                () = sleep_until(until) => {
                    return Err(ConnectionError::TimedOut(start.elapsed(), String::new()));
                }
            }
        }
    }

    /// Closes the connection; a program sees the end of its input.
    pub(crate) async fn close(mut self) {
        let closed = self.service.close_with_timeout(CLOSE_TIMEOUT).await;
        if let Err(why) = closed {
            tracing::debug!(%why, "a connection to an MCP server was not closed in order");
        }
    }

    fn error(&self, why: ServiceError) -> ConnectionError {
        match why {
            ServiceError::McpError(why) => {
                let data = why.data.filter(|data| !data.is_null());
                let data = data.map(|data| format!(" ({data})")).unwrap_or_default();
                ConnectionError::Refused(format!("{}{data}", why.message))
            }
            ServiceError::TransportClosed => ConnectionError::Ended(because(&self.lines)),
            ServiceError::TransportSend(why) => ConnectionError::Ended(format!(": {why}")),
            ServiceError::UnexpectedResponse => {
                ConnectionError::NotUnderstood("it is no result of a call".into())
            }
            why @ (ServiceError::SubscriptionLagged { .. }
            | ServiceError::Cancelled { .. }
            | ServiceError::Timeout { .. }
            | ServiceError::InputRequiredRoundsExceeded { .. }
            | _) => ConnectionError::NotUnderstood(why.to_string()),
        }
    }
}

/// Returns the error of a connection that was not opened.
fn why_not_open(why: &str, lines: &LineRecord) -> ConnectionError {
    let lower = why.to_lowercase();
    if lower.contains("401") || lower.contains("auth required") || lower.contains("unauthorized") {
        let why = "it asks for a login (OAuth), which is not supported; set a header with a token";
        return ConnectionError::Refused(why.into());
    }
    if lower.contains("connection closed") {
        return ConnectionError::Ended(because(lines));
    }
    ConnectionError::Refused(format!("{why}{}", stray(lines)))
}

/// Returns the reason for the end of a connection, as the end of a sentence.
fn because(lines: &LineRecord) -> String {
    if lines.has_too_long_line() {
        return format!(": it wrote a line of more than {} MiB", MAX_LINE_BYTES >> 20);
    }
    stray(lines)
}

fn stray(lines: &LineRecord) -> String {
    let line = lines.stray_line();
    line.map(|line| format!("; it wrote {}", json!(line))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_covers_everything_that_a_model_sees() {
        let one = RemoteTool {
            name: "log".into(),
            description: "Logs.".into(),
            input_schema: json!({ "type": "object" }),
            is_read_only: true,
        };
        let others = [
            RemoteTool { name: "log2".into(), ..one.clone() },
            RemoteTool { description: "Logs!".into(), ..one.clone() },
            RemoteTool { input_schema: Value::Null, ..one.clone() },
            RemoteTool { is_read_only: false, ..one.clone() },
        ];
        assert!(others.iter().all(|other| other.digest() != one.digest()));
    }
}
