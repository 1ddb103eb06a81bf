//! The version of the protocol that a request has. Pure.

use crate::mcp::protocol::{Era, META_CAPABILITIES, META_VERSION, Version};
use crate::rpc::message::{INVALID_PARAMS, RpcError};
use serde_json::{Value, json};

/// The error code for a version that is not known, as of 2026-07-28.
pub(super) const UNKNOWN_VERSION: i64 = -32_022;

/// The methods that the versions without a handshake do not have.
const HANDSHAKE_METHODS: [&str; 2] = ["initialize", "ping"];

/// Returns the version of a request: the one that its metadata names, or else that of the transport.
///
/// # Errors
/// The version is not known or does not have this method, or there is less metadata than it needs.
pub(super) fn version_of(
    method: &str,
    meta: &Value,
    transport: Option<Version>,
) -> Result<Option<Version>, RpcError> {
    let named = meta.get(META_VERSION).and_then(Value::as_str);
    let known = named.and_then(Version::named);
    if let (Some(named), None) = (named, known) {
        return Err(unknown_version(named));
    }
    let is_newest = |version: Version| version.era() == Era::Discover;
    // The handshake of a client that knows the newest version, too, is one of an older version.
    let transport = transport.filter(|version| method != "initialize" || !is_newest(*version));
    let version = known.or(transport);
    if method != "server/discover" && !version.is_some_and(is_newest) {
        return Ok(version);
    }
    if HANDSHAKE_METHODS.contains(&method) {
        return Err(RpcError::not_offered(method));
    }
    if known.is_none() || !meta.get(META_CAPABILITIES).is_some_and(Value::is_object) {
        let why = format!("_meta needs {META_VERSION} and {META_CAPABILITIES}");
        return Err(RpcError::new(INVALID_PARAMS, why));
    }
    Ok(version)
}

/// Returns the error for a version that is not known.
pub(super) fn unknown_version(named: &str) -> RpcError {
    let supported = Version::ALL.map(Version::as_str);
    let data = json!({ "requested": named, "supported": supported });
    let error = RpcError::new(UNKNOWN_VERSION, "this version of MCP is not known here");
    RpcError { data: Some(data), ..error }
}
