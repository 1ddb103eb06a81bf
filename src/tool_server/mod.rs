//! Serves the team tools of a member to a model that another program runs, over MCP.
//!
//! [`ToolServer::answer`] answers one message; [`lines`] and [`http`] carry messages. The tools are those of
//! `crate::tools`: their specs become the definitions, and a call runs as every call of that member.
//!
//! *Invariant:* mail that a result carries counts as handed out only after the answer was written. The result of a
//! call that was cancelled, or whose answer was not written, returns its mail: the next result carries it.

pub(crate) mod http;
pub(crate) mod lines;
mod request_auth;
#[cfg(test)]
mod tests;

use crate::tools::{Call, ToolError};
use crate::wire::tool::{AfterCrash, Effect, Served, ToolSpec};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, ErrorData, Implementation, InitializeRequestParams, InitializeResult,
    JsonRpcMessage, JsonRpcRequest, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProtocolVersion, RequestId, RequestMetaObject, ServerCapabilities, ServerConfig,
    ServerJsonRpcMessage, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, serve_directly};
use rmcp::transport::OneshotTransport;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// The longest message of a client, in bytes: one line, or the body of one request.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The longest id of a call that becomes part of the ids of its messages, in bytes.
const MAX_CALL_ID: usize = 128;

/// The fields of a request's metadata by which clients name the call of their model: Claude Code, then Codex.
const CALL_IDS: [&str; 2] = ["claudecode/toolUseId", "callId"];

/// The methods that are supported.
const METHODS: [&str; 5] = ["initialize", "ping", "server/discover", "tools/list", "tools/call"];

/// The mark of a tool whose definition Claude Code shows its model at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

pub(crate) type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A member whose tools are served.
pub(crate) trait ServedMember {
    /// Introduces the client by the name and the version of its program, before it is served; later calls change
    /// nothing. Returns the instructions for the model. Fails with a sentence if the member cannot join its team.
    fn welcome<'a>(
        &'a self,
        client: &'a str,
        version: &'a str,
    ) -> LocalFuture<'a, Result<String, String>>;

    /// Returns the specs of its tools, in an order that does not change.
    fn tools(&self) -> Vec<&'static ToolSpec>;

    /// Runs a call. Dropping the future cancels it.
    fn call<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Result<String, ToolError>>;

    /// Takes the unread mail for the end of the result of a call, as text for the model; `None` if there is none.
    fn unread<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Option<String>>;

    /// Notes that the answer to a call was written, with the mail that was taken for it. Without it the mail is unread
    /// again.
    fn answered(&self, call_id: &str, was_written: bool);
}

/// The server of one member.
pub(crate) struct ToolServer {
    member: Rc<dyn ServedMember>,
    /// The parameters of the handshake, with the version that was agreed on.
    handshake: RefCell<Option<InitializeRequestParams>>,
}

/// An answer to be written.
pub(crate) struct Answer {
    pub(crate) message: ServerJsonRpcMessage,
    receipt: Option<Receipt>,
}

impl Answer {
    /// Notes that the answer was written.
    pub(crate) fn confirm(mut self) {
        if let Some(receipt) = &mut self.receipt {
            receipt.was_written = true;
        }
    }

    fn error(id: Option<RequestId>, error: ErrorData) -> Self {
        Self { message: ServerJsonRpcMessage::error(error, id), receipt: None }
    }
}

/// The state of the answer to a call, which is reported to the member when it is dropped.
struct Receipt {
    member: Rc<dyn ServedMember>,
    call_id: String,
    was_written: bool,
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.member.answered(&self.call_id, self.was_written);
    }
}

/// A message of a client, or the reason for which a text is none.
pub(crate) enum Incoming {
    Request(Box<JsonRpcRequest<ClientRequest>>),
    /// The client cancels this request.
    Cancel(RequestId),
    /// A message that needs no answer.
    Ignored,
    Invalid(Box<Answer>),
}

impl Incoming {
    /// Parses the text of one message.
    pub(crate) fn read(text: &[u8]) -> Self {
        let message = match serde_json::from_slice(text) {
            Ok(message) => message,
            Err(why) => return Self::Invalid(Box::new(not_a_message(text, &why.to_string()))),
        };
        match message {
            ClientJsonRpcMessage::Request(request) => Self::Request(Box::new(request)),
            ClientJsonRpcMessage::Notification(message) => {
                let ClientNotification::CancelledNotification(it) = message.notification else {
                    return Self::Ignored;
                };
                it.params.request_id.map_or(Self::Ignored, Self::Cancel)
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Self::Ignored,
        }
    }

    /// Returns the answer to a message that is longer than [`MAX_MESSAGE_BYTES`].
    pub(crate) fn too_long() -> Self {
        let why = format!(
            "the message is longer than {MAX_MESSAGE_BYTES} bytes and was not read; write the text to a file, and send \
             its path"
        );
        Self::Invalid(Box::new(Answer::error(None, ErrorData::invalid_request(why, None))))
    }
}

/// Returns the answer to a text that is no message, with the id of the request if it has one.
fn not_a_message(text: &[u8], why: &str) -> Answer {
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        let error = ErrorData::parse_error(format!("this is not JSON: {why}"), None);
        return Answer::error(None, error);
    };
    let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let hint = if value.is_array() {
        "batches are not supported: send each message by itself"
    } else {
        "this is not a message of JSON-RPC 2.0"
    };
    Answer::error(id, ErrorData::invalid_request(hint, None))
}

impl ToolServer {
    pub(crate) fn new(member: Rc<dyn ServedMember>) -> Rc<Self> {
        Rc::new(Self { member, handshake: RefCell::default() })
    }

    /// Answers a request. `version` is that of the transport, if it names one; else the version of the handshake holds.
    /// Dropping the future cancels the call.
    pub(crate) async fn answer(
        &self,
        request: JsonRpcRequest<ClientRequest>,
        version: Option<ProtocolVersion>,
    ) -> Answer {
        let id = request.id.clone();
        let peer = self.peer(&request.request, version);
        let needs_member = !matches!(
            request.request,
            ClientRequest::PingRequest(_) | ClientRequest::CustomRequest(_)
        );
        let welcome =
            if needs_member { self.welcome(&request, &peer).await } else { Ok(String::new()) };
        let instructions = match welcome {
            Ok(instructions) => instructions,
            Err(why) => return Answer::error(Some(id), ErrorData::internal_error(why, None)),
        };
        if let ClientRequest::InitializeRequest(_) = &request.request {
            *self.handshake.borrow_mut() = Some(peer.clone());
        }
        let receipt = Rc::default();
        let handler =
            Handler { member: Rc::clone(&self.member), instructions, receipt: Rc::clone(&receipt) };
        let message = ClientJsonRpcMessage::Request(request);
        let (transport, mut replies) = OneshotTransport::<RoleServer>::new(message);
        // Dropping it cancels the call.
        let running = serve_directly(handler, transport, Some(peer));
        let message = loop {
            match replies.recv().await {
                Some(reply @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))) => {
                    break reply;
                }
                Some(JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) => {}
                None => {
                    let why = "the request was not answered: this is a bug, please report it";
                    let error = ErrorData::internal_error(why, None);
                    break ServerJsonRpcMessage::error(error, Some(id));
                }
            }
        };
        drop(running);
        let receipt = receipt.borrow_mut().take();
        Answer { message, receipt }
    }

    /// Returns what is known of the client: from this handshake, the transport, or the handshake before.
    fn peer(
        &self,
        request: &ClientRequest,
        version: Option<ProtocolVersion>,
    ) -> InitializeRequestParams {
        if let ClientRequest::InitializeRequest(request) = request {
            let mut peer = request.params.clone();
            peer.protocol_version = agreed(&peer.protocol_version);
            return peer;
        }
        let mut peer = self.handshake.borrow().clone().unwrap_or_else(|| {
            let nobody = Implementation::new("", "");
            InitializeRequestParams::new(ClientCapabilities::default(), nobody)
                .with_protocol_version(ProtocolVersion::V_2025_03_26)
        });
        peer.protocol_version = version.unwrap_or(peer.protocol_version);
        peer
    }

    async fn welcome(
        &self,
        request: &JsonRpcRequest<ClientRequest>,
        peer: &InitializeRequestParams,
    ) -> Result<String, String> {
        use rmcp::model::GetMeta as _;
        let named = request.request.get_meta().client_info();
        let client = named.unwrap_or_else(|| peer.client_info.clone());
        self.member.welcome(&client.name, &client.version).await
    }
}

/// Returns the version that a handshake agrees on: the client's, if it has a handshake and is known.
fn agreed(wanted: &ProtocolVersion) -> ProtocolVersion {
    let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(wanted) && wanted.has_initialize();
    if is_known { wanted.clone() } else { ProtocolVersion::LATEST_WITH_INITIALIZE }
}

/// The handler of one request.
struct Handler {
    member: Rc<dyn ServedMember>,
    instructions: String,
    receipt: Rc<RefCell<Option<Receipt>>>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        InitializeResult::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(Implementation::new("team", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.instructions.clone())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.member.tools().into_iter().map(definition).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    /// Answers a request that is none of the protocol: its method is unknown, or its parameters are invalid.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if METHODS.contains(&method.as_str()) {
            let why = format!("the parameters of {method} are invalid");
            return Err(ErrorData::invalid_params(why, None));
        }
        let method: String = method.chars().take(64).collect();
        let why = format!("the method {method:?} is not supported");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        let input = Value::Object(request.arguments.unwrap_or_default());
        let call = Call { id: call_id(&context.meta, &name, &input), name, input };
        // Dropped with this future, it returns the mail.
        let (member, call_id) = (Rc::clone(&self.member), call.id.clone());
        let receipt = Receipt { member, call_id, was_written: false };
        let work = async {
            let result = self.member.call(&call).await;
            (result, self.member.unread(&call).await)
        };
        let (result, mail) = tokio::select! {
            done = work => done,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
        };
        *self.receipt.borrow_mut() = Some(receipt);
        let (mut text, is_error) = match result {
            Ok(text) => (text, false),
            Err(ToolError::Reply(why) | ToolError::Fatal(why)) => (why, true),
        };
        if let Some(mail) = mail {
            text = format!("{text}\n\nYour unread mail:\n{mail}");
        }
        let content = vec![ContentBlock::text(text)];
        let result = if is_error {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        };
        Ok(result.into())
    }
}

/// Returns a tool as it is announced to a client.
fn definition(spec: &'static ToolSpec) -> Tool {
    let definition = spec.definition();
    let schema = if let Value::Object(schema) = definition.input_schema {
        schema
    } else {
        serde_json::Map::default()
    };
    let hints = ToolAnnotations::new().open_world(false);
    let hints = if spec.effect == Effect::Reads {
        hints.read_only(true)
    } else {
        // A repeated call with the same id sends nothing again.
        let is_repeatable = spec.after_crash == AfterCrash::Repeat;
        let hints = hints.read_only(false).destructive(false);
        if is_repeatable { hints.idempotent(true) } else { hints }
    };
    let tool = Tool::new(definition.name, definition.description, Arc::new(schema))
        .with_annotations(hints);
    if spec.served != Served::Loaded {
        return tool;
    }
    let mut meta = MetaObject::new();
    meta.insert(ALWAYS_LOAD.into(), true.into());
    tool.with_meta(meta)
}

/// Returns the id of a call. The id of the client's model is part of it, so that a repeated call has the same one. The
/// arguments are part of it, too: some clients use the same ids in each session.
fn call_id(meta: &RequestMetaObject, name: &str, input: &Value) -> String {
    let is_id = |id: &&str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        !id.is_empty() && id.len() <= MAX_CALL_ID && id.chars().all(is_plain)
    };
    let given = CALL_IDS.iter().find_map(|field| meta.get(*field)?.as_str().filter(is_id));
    let Some(given) = given else { return uuid::Uuid::now_v7().simple().to_string() };
    let words = format!("{name} {input}");
    let digest = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    let short = digest.as_ref().iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    format!("{given}.{short:08x}")
}
