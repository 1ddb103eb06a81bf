//! Serves the team tools of a member to a model that another program runs, over MCP.
//!
//! [`ToolServer::answer`] answers one message; [`lines`] and [`http`] carry messages. The tools are those of
//! `crate::tools`: their specs become its definitions, and a call runs as every call of that member.
//!
//! *Invariant:* mail that a result carries counts as handed out only after the answer was written. The result of a
//! call that was cancelled, or whose answer was not written, returns its mail: the next result carries it.

mod definition;
pub(crate) mod http;
pub(crate) mod lines;
mod request_auth;
mod request_headers;
#[cfg(test)]
mod tests;
mod version;

use crate::mcp::protocol::{COMPLETE, Era, META_CLIENT, META_SERVER, Version, implementation};
use crate::rpc::lines::MAX_MESSAGE_BYTES;
use crate::rpc::message::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Message, MethodCall, RpcError,
};
use crate::tools::{Call, ToolError};
use crate::wire::tool::ToolSpec;
use definition::{add, call_id, definition};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use version::version_of;

/// The name by which this program introduces itself to clients.
const SERVER: &str = "team";

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
    client: RefCell<Client>,
}

/// The client, as its handshake has introduced it.
#[derive(Debug, Clone)]
struct Client {
    info: ClientInfo,
    /// The version that was agreed on.
    version: Version,
}

/// The name and version of a program.
#[derive(Debug, Clone, Default, Deserialize)]
struct ClientInfo {
    name: String,
    #[serde(default)]
    version: String,
}

/// The parameters of a handshake.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandshakeParams {
    protocol_version: String,
    client_info: ClientInfo,
}

/// The parameters of a call.
#[derive(Deserialize)]
struct CallParams {
    name: String,
    arguments: Option<Map<String, Value>>,
}

/// The method that calls a tool.
const CALL: &str = "tools/call";

/// A request of the protocol.
enum Request {
    Ping,
    Handshake(HandshakeParams),
    Discover,
    ListTools,
    Call(CallParams),
}

/// An answer to be written.
pub(crate) struct Answer {
    pub(crate) message: Value,
    receipt: Option<Receipt>,
}

impl Answer {
    /// Notes that the answer was written.
    pub(crate) fn confirm(mut self) {
        if let Some(receipt) = &mut self.receipt {
            receipt.was_written = true;
        }
    }

    fn error(id: Value, error: RpcError) -> Self {
        let message = Message::Response { id, result: Err(error) }.into_json();
        Self { message, receipt: None }
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
    /// A request with its id.
    Request(Value, MethodCall),
    /// The client cancels the request of this id.
    Cancel(Value),
    /// A message that needs no answer.
    Ignored,
    Invalid(Answer),
}

impl Incoming {
    /// Parses the text of one message.
    pub(crate) fn read(text: &[u8]) -> Self {
        match Message::read(text) {
            Ok(Message::Call(MethodCall { id: Some(id), method, params })) => {
                Self::Request(id, MethodCall { id: None, method, params })
            }
            Ok(Message::Call(MethodCall { id: None, method, params })) => {
                let cancelled = params.get("requestId").cloned();
                let cancelled = cancelled.filter(|_| method == "notifications/cancelled");
                cancelled.map_or(Self::Ignored, Self::Cancel)
            }
            Ok(Message::Response { .. }) => Self::Ignored,
            Err(invalid) => Self::Invalid(Answer::error(invalid.id, invalid.error)),
        }
    }

    /// Returns the answer to a message that is longer than [`MAX_MESSAGE_BYTES`].
    pub(crate) fn too_long() -> Self {
        let why = format!(
            "the message is longer than {MAX_MESSAGE_BYTES} bytes and was not read; write the text to a file, and send \
             its path"
        );
        Self::Invalid(Answer::error(Value::Null, RpcError::new(INVALID_REQUEST, why)))
    }
}

impl Request {
    fn read(method: &str, params: &Value) -> Result<Self, RpcError> {
        let invalid = |why: serde_json::Error| {
            let why = format!("the parameters of {method} are invalid: {why}");
            RpcError::new(INVALID_PARAMS, why)
        };
        Ok(match method {
            "ping" => Self::Ping,
            "initialize" => Self::Handshake(Deserialize::deserialize(params).map_err(invalid)?),
            "server/discover" => Self::Discover,
            "tools/list" => Self::ListTools,
            CALL => Self::Call(Deserialize::deserialize(params).map_err(invalid)?),
            _ => return Err(RpcError::not_offered(method)),
        })
    }
}

impl ToolServer {
    pub(crate) fn new(member: Rc<dyn ServedMember>) -> Rc<Self> {
        // A client without a handshake that names no version has the oldest one over HTTP.
        let client = Client { info: ClientInfo::default(), version: Version::V2025_03_26 };
        Rc::new(Self { member, client: RefCell::new(client) })
    }

    /// Answers a request. `version` is that of the transport, if it names one; else the version of the handshake holds.
    /// Dropping the future cancels the call.
    pub(crate) async fn answer(
        &self,
        id: Value,
        request: MethodCall,
        version: Option<Version>,
    ) -> Answer {
        let mut receipt = None;
        let result = self.result(&request, version, &mut receipt).await;
        Answer { message: Message::Response { id, result }.into_json(), receipt }
    }

    async fn result(
        &self,
        MethodCall { method, params, .. }: &MethodCall,
        version: Option<Version>,
        receipt: &mut Option<Receipt>,
    ) -> Result<Value, RpcError> {
        let meta = params.get("_meta").cloned().unwrap_or_default();
        let version = version_of(method, &meta, version)?;
        let request = Request::read(method, params)?;
        let version = version.unwrap_or_else(|| self.client.borrow().version);
        let mut result = match request {
            Request::Ping => json!({}),
            Request::Handshake(params) => {
                let instructions = self.welcome(&params.client_info).await?;
                let wanted = Version::named(&params.protocol_version);
                let wanted = wanted.filter(|version| version.era() == Era::Handshake);
                let version = wanted.unwrap_or(Version::NEWEST_HANDSHAKE);
                *self.client.borrow_mut() = Client { info: params.client_info, version };
                return Ok(json!({
                    "protocolVersion": version.as_str(),
                    "capabilities": { "tools": {} },
                    "serverInfo": implementation(SERVER),
                    "instructions": instructions,
                }));
            }
            Request::Discover => {
                let instructions = self.welcome_by(&meta).await?;
                let mut result = json!({
                    "supportedVersions": Version::ALL.map(Version::as_str),
                    "capabilities": { "tools": {} },
                    "instructions": instructions,
                    "_meta": { META_SERVER: implementation(SERVER) },
                });
                add(&mut result, cache_hints());
                result
            }
            Request::ListTools => {
                self.welcome_by(&meta).await?;
                let tools: Vec<Value> = self.member.tools().into_iter().map(definition).collect();
                let mut result = json!({ "tools": tools });
                if version.era() == Era::Discover {
                    add(&mut result, cache_hints());
                }
                result
            }
            Request::Call(params) => {
                self.welcome_by(&meta).await?;
                self.call(params, &meta, receipt).await
            }
        };
        if version.era() == Era::Discover {
            add(&mut result, json!({ "resultType": COMPLETE }));
        }
        Ok(result)
    }

    /// Introduces the client as a request names it, or else as its handshake did.
    async fn welcome_by(&self, meta: &Value) -> Result<String, RpcError> {
        let named = meta.get(META_CLIENT).and_then(|info| ClientInfo::deserialize(info).ok());
        let info = named.unwrap_or_else(|| self.client.borrow().info.clone());
        self.welcome(&info).await
    }

    async fn welcome(&self, ClientInfo { name, version }: &ClientInfo) -> Result<String, RpcError> {
        let refused = |why| RpcError::new(INTERNAL_ERROR, why);
        self.member.welcome(name, version).await.map_err(refused)
    }

    async fn call(&self, params: CallParams, meta: &Value, receipt: &mut Option<Receipt>) -> Value {
        let CallParams { name, arguments } = params;
        let input = Value::Object(arguments.unwrap_or_default());
        let call = Call { id: call_id(meta, &name, &input), name, input };
        // Dropped with this future, it returns the mail.
        let (member, call_id) = (Rc::clone(&self.member), call.id.clone());
        *receipt = Some(Receipt { member, call_id, was_written: false });
        let result = self.member.call(&call).await;
        let mail = self.member.unread(&call).await;
        let (mut text, is_error) = match result {
            Ok(text) => (text, false),
            Err(ToolError::Reply(why) | ToolError::Fatal(why)) => (why, true),
        };
        if let Some(mail) = mail {
            text = format!("{text}\n\nYour unread mail:\n{mail}");
        }
        json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
    }
}

/// Returns the fields of a result that must be asked for anew each time.
fn cache_hints() -> Value {
    json!({ "ttlMs": 0, "cacheScope": "private" })
}
