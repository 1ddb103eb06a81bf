//! The calls that a server makes: this program offers nothing to servers, and notes their notifications.

use crate::rpc::message::{MethodCall, RpcError};
use serde_json::{Value, json};
use std::cell::Cell;
use tokio::sync::Notify;

/// The notifications of a server.
#[derive(Debug, Default)]
pub(super) struct FromServer {
    /// The token of the newest call.
    token: Cell<u64>,
    /// Notified when the server reports progress of that call.
    pub(super) progress: Notify,
    /// Whether the server has said that its tools have changed.
    pub(super) has_new_tools: Cell<bool>,
}

impl FromServer {
    /// Returns the token by which the server reports the progress of a new call.
    pub(super) fn begin_call(&self) -> u64 {
        self.token.update(|token| token + 1);
        self.token.get()
    }

    /// Notes a notification, or returns the answer to a request, with its id.
    pub(super) fn receive(&self, call: MethodCall) -> Option<(Value, Result<Value, RpcError>)> {
        let MethodCall { id, method, params } = call;
        match (id, method.as_str()) {
            (Some(id), "ping") => return Some((id, Ok(json!({})))),
            (Some(id), method) => return Some((id, Err(RpcError::not_offered(method)))),
            (None, "notifications/progress") => {
                if params.get("progressToken").and_then(Value::as_u64) == Some(self.token.get()) {
                    self.progress.notify_one();
                }
            }
            (None, "notifications/tools/list_changed") => self.has_new_tools.set(true),
            (None, _) => {}
        }
        None
    }
}
