//! The headers that repeat parts of a message, by which the newest version of the protocol lets a proxy judge a request
//! without its body. Pure.

use super::version::{UNKNOWN_VERSION, unknown_version};
use crate::loopback::access::only;
use crate::mcp::protocol::{Era, META_VERSION, Version};
use crate::rpc::message::{INVALID_PARAMS, METHOD_NOT_FOUND, MethodCall, RpcError};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName};
use serde_json::Value;

/// The header in which a client names the version that was agreed on, or that of the request.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The error code for a header that does not fit its request, as of 2026-07-28.
const HEADER_MISMATCH: i64 = -32_020;

/// The headers of a request; a header that occurs twice, or is no text, is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestHeaders {
    version: Option<String>,
    method: Option<String>,
    name: Option<String>,
}

impl RequestHeaders {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let get = |name: &HeaderName| {
            let value = || only(headers, name).unwrap_or_default().trim().to_owned();
            headers.contains_key(name).then(value)
        };
        Self { version: get(&VERSION), method: get(&METHOD), name: get(&NAME) }
    }

    /// Whether the request is of a version without a handshake, whose errors have a status of their own.
    pub(super) fn is_stateless(&self, call: &MethodCall) -> bool {
        let is_handshake =
            |name: &str| Version::named(name).is_some_and(|it| it.era() == Era::Handshake);
        match meta_version(call) {
            Some(named) => !is_handshake(named),
            // A handshake may come from a client that knows the newest version, too.
            None if call.method == "initialize" => false,
            None => {
                let is_newest =
                    |name: &str| Version::named(name).is_some_and(|it| it.era() == Era::Discover);
                call.method == "server/discover" || self.version.as_deref().is_some_and(is_newest)
            }
        }
    }

    /// Checks that the headers fit the request. Returns the version that they name.
    ///
    /// # Errors
    /// The version is not known, or a header does not say the same as the request.
    pub(super) fn check(&self, call: &MethodCall) -> Result<Option<Version>, RpcError> {
        let version = self.version.as_deref();
        if let (Some(header), Some(named)) = (version, meta_version(call))
            && header != named
        {
            return Err(mismatch(&VERSION));
        }
        let known = version.map(|name| Version::named(name).ok_or_else(|| unknown_version(name)));
        let known = known.transpose()?;
        if !self.is_stateless(call) || meta_version(call).is_none() {
            return Ok(known);
        }
        if version.is_none() {
            return Err(mismatch(&VERSION));
        }
        if self.method.as_ref() != Some(&call.method) {
            return Err(mismatch(&METHOD));
        }
        let name = call.params.get("name").filter(|_| call.method == "tools/call");
        if name.is_some_and(|name| self.name.as_deref().and_then(decode).as_ref() != Some(name)) {
            return Err(mismatch(&NAME));
        }
        Ok(known)
    }
}

fn meta_version(call: &MethodCall) -> Option<&str> {
    call.params.get("_meta")?.get(META_VERSION)?.as_str()
}

fn mismatch(header: &HeaderName) -> RpcError {
    let why = format!("the header {header} does not say the same as the request");
    RpcError::new(HEADER_MISMATCH, why)
}

/// Returns the text of a header, which is in base64 if it would be lost on the way.
fn decode(header: &str) -> Option<Value> {
    let encoded = header.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = encoded else { return Some(header.into()) };
    let decoded = BASE64_STANDARD.decode(encoded).ok()?;
    String::from_utf8(decoded).ok().map(Value::from)
}

/// Returns the status of an answer. The versions with a handshake have errors with the status of a success.
pub(super) fn status_of(answer: &Value, is_stateless: bool) -> StatusCode {
    let error = answer.get("error");
    match error.and_then(|error| error.get("code")?.as_i64()) {
        Some(UNKNOWN_VERSION | HEADER_MISMATCH) => StatusCode::BAD_REQUEST,
        Some(INVALID_PARAMS) if is_stateless => StatusCode::BAD_REQUEST,
        Some(METHOD_NOT_FOUND) if is_stateless => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NEWEST: &str = "2026-07-28";

    fn headers(version: &str, method: &str, name: &str) -> RequestHeaders {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        RequestHeaders { version: some(version), method: some(method), name: some(name) }
    }

    fn call(method: &str, version: &str) -> MethodCall {
        let meta = (!version.is_empty()).then(|| json!({ META_VERSION: version }));
        let params = json!({ "name": "echo", "_meta": meta.unwrap_or_default() });
        MethodCall { id: None, method: method.into(), params }
    }

    #[test]
    fn headers_of_the_newest_version_say_the_same_as_the_request() {
        let code = |headers: RequestHeaders, call: &MethodCall| {
            headers.check(call).map_err(|why| why.code)
        };
        let list = call("tools/list", NEWEST);
        let newest = Ok(Some(Version::V2026_07_28));
        assert_eq!(code(headers(NEWEST, "tools/list", ""), &list), newest);
        for (version, method) in [
            ("", "tools/list"),
            ("2025-11-25", "tools/list"),
            (NEWEST, ""),
            (NEWEST, "prompts/list"),
            (NEWEST, "TOOLS/LIST"),
        ] {
            let checked = code(headers(version, method, ""), &list);
            assert_eq!(checked, Err(HEADER_MISMATCH), "{version} {method}");
        }
        let echo = call("tools/call", NEWEST);
        for (name, expected) in [
            ("echo", newest),
            ("=?base64?ZWNobw==?=", newest),
            ("", Err(HEADER_MISMATCH)),
            ("other", Err(HEADER_MISMATCH)),
            ("=?base64?!?=", Err(HEADER_MISMATCH)),
        ] {
            assert_eq!(code(headers(NEWEST, "tools/call", name), &echo), expected, "{name}");
        }
        assert_eq!(code(headers("v9", "", ""), &call("ping", "v9")), Err(UNKNOWN_VERSION));
    }

    #[test]
    fn clients_with_a_handshake_need_no_headers() {
        for method in ["initialize", "ping", "tools/call"] {
            let older = headers("2025-06-18", "", "").check(&call(method, ""));
            assert_eq!(older, Ok(Some(Version::V2025_06_18)));
            assert_eq!(headers("", "", "").check(&call(method, "")), Ok(None));
        }
        let newest = headers(NEWEST, "", "");
        assert!(!newest.is_stateless(&call("initialize", "")));
        assert!(newest.is_stateless(&call("initialize", NEWEST)));
        assert!(newest.is_stateless(&call("ping", "")));
        assert!(!headers("2025-06-18", "", "").is_stateless(&call("ping", "")));
        let unknown = headers("1999-01-01", "", "").check(&call("ping", ""));
        assert_eq!(unknown.unwrap_err().code, UNKNOWN_VERSION);
    }
}
