//! The calls of the protocol: the start of an agent's session, its prompts, its end.

use super::connection::{CallError, Connection, RequestId};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The version of the protocol that is spoken here.
const PROTOCOL_VERSION: u64 = 1;

/// The time for the answer to `initialize`. On a busy machine, some agents need more than 15 s until then.
const INITIALIZE_WITHIN: Duration = Duration::from_secs(30);

/// The time for the start of a session, which may start servers of tools.
const SESSION_WITHIN: Duration = Duration::from_secs(60);

/// The time for a change of the mode.
const MODE_WITHIN: Duration = Duration::from_secs(10);

/// The time for the orderly end of a session.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The error code of an agent to which nobody has logged in.
const AUTHENTICATION_REQUIRED: i64 = -32_000;

/// An agent as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentInfo {
    /// The version of the program.
    pub(crate) version: String,
    capabilities: Vec<Capability>,
}

/// An optional part of the protocol that an agent offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    Load,
    Resume,
    Close,
    /// Takes instructions for its system prompt.
    SystemPrompt,
    /// Reaches servers of tools over HTTP.
    HttpTools,
    /// Takes a text into the prompt that it works on.
    Steering,
}

/// The reason for which an agent has no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(
        "it speaks version {0} of the Agent Client Protocol, this program version {PROTOCOL_VERSION}"
    )]
    Version(String),
    #[error("nobody is logged in to it ({0})")]
    LoggedOut(String),
    #[error("it does not offer the mode {mode:?}; its modes are: {}", offered.join(", "))]
    NoMode { mode: String, offered: Vec<String> },
    #[error("{0}")]
    Call(CallError),
}

impl From<CallError> for SessionError {
    fn from(why: CallError) -> Self {
        match why {
            CallError::Answered(why) if why.code == AUTHENTICATION_REQUIRED => {
                Self::LoggedOut(why.message)
            }
            why @ (CallError::Answered(_) | CallError::Closed(_) | CallError::Late { .. }) => {
                Self::Call(why)
            }
        }
    }
}

/// The parameters of a session.
#[derive(Debug)]
pub(crate) struct SessionRequest<'a> {
    pub(crate) folder: &'a Path,
    /// Instructions for the system prompt of an agent that takes them.
    pub(crate) instructions: &'a str,
    /// Extensions of this agent.
    pub(crate) meta: Option<Value>,
    /// The server of the team tools.
    pub(crate) tools: Option<&'a ToolServerAccess>,
}

/// The access to a server of tools over HTTP. `Debug` does not show the token.
#[derive(Clone)]
pub(crate) struct ToolServerAccess {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The value of the header `Authorization`.
    pub(crate) authorization: String,
}

impl fmt::Debug for ToolServerAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ToolServerAccess").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A session of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// Whether the agent has the history of an earlier process.
    pub(crate) has_history: bool,
    modes: Vec<String>,
    mode_option: Option<(String, Vec<String>)>,
}

/// The end of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptEnd {
    /// The agent's word for the reason, such as `end_turn`.
    pub(crate) stop_reason: String,
    /// The answer, in which agents report usage in different ways.
    pub(crate) answer: Value,
}

/// The answer to a question about a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionAnswer {
    /// Takes the option of this id.
    Option(String),
    /// The prompt was cancelled.
    Cancelled,
}

impl AgentInfo {
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    fn read(answer: &Value) -> Self {
        let version = answer.pointer("/agentInfo/version").and_then(Value::as_str);
        let version = version.unwrap_or_default().chars().take(64).collect();
        let is_on = |path: &str| {
            let found = answer.pointer(path);
            found.is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
        };
        let known = [
            (Capability::Load, "/agentCapabilities/loadSession"),
            (Capability::Resume, "/agentCapabilities/sessionCapabilities/resume"),
            (Capability::Close, "/agentCapabilities/sessionCapabilities/close"),
            (Capability::SystemPrompt, "/agentCapabilities/sessionCapabilities/systemPrompt"),
            (Capability::HttpTools, "/agentCapabilities/mcpCapabilities/http"),
            (Capability::Steering, "/_meta/steering/supported"),
        ];
        let offered = known.into_iter().filter(|(_, path)| is_on(path));
        Self { version, capabilities: offered.map(|(capability, _)| capability).collect() }
    }
}

/// Agrees on the version of the protocol, and returns the agent's description. Files and terminals are not offered.
pub(crate) async fn initialize(connection: &Connection) -> Result<AgentInfo, SessionError> {
    let params = json!({
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
        "clientInfo": { "name": "team", "title": "team", "version": env!("CARGO_PKG_VERSION") },
    });
    let answer = connection.call_within("initialize", params, INITIALIZE_WITHIN).await?;
    let version = answer.get("protocolVersion").cloned().unwrap_or_default();
    if version.as_u64() != Some(PROTOCOL_VERSION) {
        return Err(SessionError::Version(version.to_string()));
    }
    Ok(AgentInfo::read(&answer))
}

/// Continues the session with this id, if the agent still knows it; otherwise begins one.
pub(crate) async fn begin(
    connection: &Connection,
    info: &AgentInfo,
    request: &SessionRequest<'_>,
    known: Option<&str>,
) -> Result<Session, SessionError> {
    let mut fields = Map::new();
    fields.insert("cwd".into(), json!(request.folder));
    let tools = request.tools.filter(|_| info.has(Capability::HttpTools));
    let servers = tools.map(|ToolServerAccess { name, url, authorization }| {
        let headers = json!([{ "name": "Authorization", "value": authorization }]);
        json!({ "type": "http", "name": name, "url": url, "headers": headers })
    });
    fields.insert("mcpServers".into(), servers.into_iter().collect());
    if info.has(Capability::SystemPrompt) {
        let content = json!([{ "type": "text", "text": request.instructions }]);
        fields.insert("systemPrompt".into(), json!({ "mode": "append", "content": content }));
    }
    fields.extend(request.meta.clone().map(|meta| ("_meta".into(), meta)));
    let ways = [(Capability::Resume, "session/resume"), (Capability::Load, "session/load")];
    let ways = ways.into_iter().filter(|(capability, _)| info.has(*capability));
    for (id, (_, method)) in known.into_iter().flat_map(|id| ways.clone().map(move |way| (id, way)))
    {
        let mut fields = fields.clone();
        fields.insert("sessionId".into(), id.into());
        match connection.call_within(method, fields.into(), SESSION_WITHIN).await {
            Ok(answer) => return Ok(Session::read(id.to_owned(), &answer, true)),
            Err(why @ CallError::Closed(_)) => return Err(why.into()),
            Err(why) => tracing::warn!(method, %why, "the agent does not continue its session"),
        }
    }
    let answer = connection.call_within("session/new", fields.into(), SESSION_WITHIN).await?;
    let id = answer.get("sessionId").and_then(Value::as_str).unwrap_or_default();
    Ok(Session::read(id.to_owned(), &answer, false))
}

impl Session {
    fn read(id: String, answer: &Value, has_history: bool) -> Self {
        let list = |value: Option<&Value>, key: &str| -> Vec<String> {
            let items = value.and_then(Value::as_array).into_iter().flatten();
            items.filter_map(|item| Some(item.get(key)?.as_str()?.to_owned())).collect()
        };
        let modes = list(answer.pointer("/modes/availableModes"), "id");
        let options = answer.get("configOptions").and_then(Value::as_array).into_iter().flatten();
        let mut options = options.filter(|it| it.get("category") == Some(&json!("mode")));
        let mode_option = options.find_map(|option| {
            let id = option.get("id")?.as_str()?.to_owned();
            Some((id, list(option.get("options"), "value")))
        });
        Self { id, has_history, modes, mode_option }
    }

    /// Sets the mode of the agent. Fails if it offers others only.
    pub(crate) async fn set_mode(
        &self,
        connection: &Connection,
        mode: &str,
    ) -> Result<(), SessionError> {
        let is_mode = |offered: &String| offered == mode;
        let (method, params) = match &self.mode_option {
            Some((option, offered)) if offered.iter().any(is_mode) => {
                let params = json!({ "sessionId": self.id, "configId": option, "value": mode });
                ("session/set_config_option", params)
            }
            _ if self.modes.iter().any(is_mode) => {
                ("session/set_mode", json!({ "sessionId": self.id, "modeId": mode }))
            }
            option => {
                let more = option.iter().flat_map(|(_, offered)| offered);
                let mut offered: Vec<String> = self.modes.iter().chain(more).cloned().collect();
                offered.sort_unstable();
                offered.dedup();
                return Err(SessionError::NoMode { mode: mode.to_owned(), offered });
            }
        };
        connection.call_within(method, params, MODE_WITHIN).await?;
        Ok(())
    }

    /// Whether the agent offers modes.
    pub(crate) fn has_modes(&self) -> bool {
        !self.modes.is_empty() || self.mode_option.is_some()
    }

    /// Sends a prompt; the future resolves with its end.
    pub(crate) fn prompt(
        &self,
        connection: &Connection,
        text: &str,
    ) -> impl Future<Output = Result<PromptEnd, CallError>> + use<> {
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": self.id, "prompt": prompt });
        let answer = connection.call("session/prompt", params);
        async move {
            let answer = answer.await?;
            let stop_reason = answer.get("stopReason").and_then(Value::as_str).unwrap_or_default();
            Ok(PromptEnd { stop_reason: stop_reason.chars().take(64).collect(), answer })
        }
    }

    /// Puts a text into the prompt that the agent works on. The future resolves with whether it has done so.
    pub(crate) fn steer(
        &self,
        connection: &Connection,
        text: &str,
    ) -> impl Future<Output = Result<bool, CallError>> + use<> {
        let params = json!({
            "sessionId": self.id,
            "prompt": [{ "type": "text", "text": text }],
            // Without it, an agent that is idle by now would begin a prompt of its own.
            "_meta": { "steering": { "idleBehavior": "promptRequired" } },
        });
        let answer = connection.call("_session/steering", params);
        async move { Ok(answer.await?.get("outcome") == Some(&json!("injected"))) }
    }

    /// Asks the agent to end its prompt.
    pub(crate) fn cancel(&self, connection: &Connection) {
        connection.notify("session/cancel", json!({ "sessionId": self.id }));
    }

    /// Ends the session in an orderly way, if the agent offers that.
    pub(crate) async fn close(&self, connection: &Connection, info: &AgentInfo) {
        if info.has(Capability::Close) && !connection.is_closed() {
            let params = json!({ "sessionId": self.id });
            if let Err(why) = connection.call_within("session/close", params, CLOSE_WITHIN).await {
                tracing::info!(%why, "the agent did not close its session");
            }
        }
    }
}

/// Answers an agent that asks for mail within its prompt.
pub(crate) fn answer_drain(connection: &Connection, request: &RequestId, text: Option<&str>) {
    let messages: Vec<&str> = text.into_iter().collect();
    connection.answer(request, json!({ "messages": messages }));
}

/// Answers a question of the agent.
pub(crate) fn answer(connection: &Connection, request: &RequestId, answer: &PermissionAnswer) {
    let outcome = match answer {
        PermissionAnswer::Option(id) => json!({ "outcome": "selected", "optionId": id }),
        PermissionAnswer::Cancelled => json!({ "outcome": "cancelled" }),
    };
    connection.answer(request, json!({ "outcome": outcome }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_objects_and_flags() {
        let info =
            AgentInfo::read(&json!({ "agentInfo": { "version": "1.2" }, "agentCapabilities": {
            "loadSession": true, "sessionCapabilities": { "resume": {}, "close": null } } }));
        let offered =
            [Capability::Load, Capability::Resume, Capability::Close, Capability::SystemPrompt];
        assert_eq!(offered.map(|it| info.has(it)), [true, true, false, false]);
        assert_eq!(info.version, "1.2");
        assert_eq!(AgentInfo::read(&Value::Null), AgentInfo::default());
    }
}
