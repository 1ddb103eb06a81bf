//! The check that admits or refuses a request by its head. Pure: it reads neither the body nor any state.
//!
//! Every process of this computer can connect to loopback, and so can the pages in a browser. The client has a token; a
//! host name that resolves to loopback appears in `Host`; a page's requests carry its `Origin`.

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use rmcp::model::ProtocolVersion;
use subtle::ConstantTimeEq;

/// The header in which a client names the version that was agreed on.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

#[derive(Debug)]
pub(super) struct RequestAuth {
    pub(super) port: u16,
    pub(super) token: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this host is not served here")]
    ForeignHost,
    #[error("the request comes from a web page")]
    ForeignOrigin,
    #[error("the bearer token is missing or wrong")]
    WrongToken,
    #[error("only /mcp is served here")]
    WrongPath,
    #[error("only POST is supported: there is no stream and no session")]
    WrongMethod,
    #[error("send application/json")]
    WrongType,
    #[error("this version of the protocol is not known here")]
    UnknownVersion,
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::ForeignHost | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::WrongPath => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::UnknownVersion => StatusCode::BAD_REQUEST,
        }
    }
}

impl RequestAuth {
    /// Admits a request and returns the version of the protocol that it names, or refuses it with a reason.
    pub(super) fn admit(&self, head: &Parts) -> Result<Option<ProtocolVersion>, Refusal> {
        let hosts = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let host = only(&head.headers, &header::HOST);
        if !host.is_some_and(|host| hosts.iter().any(|ours| ours == host)) {
            return Err(Refusal::ForeignHost);
        }
        if head.headers.contains_key(header::ORIGIN) {
            let origin = only(&head.headers, &header::ORIGIN);
            let origin = origin.and_then(|origin| origin.strip_prefix("http://"));
            if origin.is_none_or(|origin| Some(origin) != host) {
                return Err(Refusal::ForeignOrigin);
            }
        }
        let token = only(&head.headers, &header::AUTHORIZATION);
        let token = token.and_then(|it| it.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let token = token.map_or("", |(_, token)| token);
        // The comparison takes constant time, so that the token cannot be guessed byte by byte.
        if !bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            return Err(Refusal::WrongToken);
        }
        if head.uri.path() != "/mcp" {
            return Err(Refusal::WrongPath);
        }
        if head.method != Method::POST {
            return Err(Refusal::WrongMethod);
        }
        let kind = only(&head.headers, &header::CONTENT_TYPE).unwrap_or_default();
        // A form of a web page cannot send JSON without a preflight request.
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            return Err(Refusal::WrongType);
        }
        let Some(version) = head.headers.get(VERSION) else { return Ok(None) };
        let mut known = ProtocolVersion::KNOWN_VERSIONS.iter();
        let known = known.find(|known| version.as_bytes() == known.as_str().as_bytes());
        known.cloned().map(Some).ok_or(Refusal::UnknownVersion)
    }
}

/// Returns the value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const HOST: (&str, &str) = ("host", "127.0.0.1:80");
    const TOKEN: (&str, &str) = ("authorization", "Bearer secret");
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn ask(request: &str, headers: &[(&str, &str)]) -> Result<Option<ProtocolVersion>, Refusal> {
        let (method, uri) = request.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestAuth { port: 80, token: "secret".into() }.admit(&head)
    }

    #[test]
    fn a_request_needs_host_origin_token_path_method_and_type() {
        let post = "POST /mcp";
        assert_eq!(ask(post, &[HOST, TOKEN, JSON]), Ok(None));
        let lower = ("authorization", "bearer secret");
        assert_eq!(ask(post, &[("host", "localhost:80"), lower, JSON]), Ok(None));
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", ""] {
            assert_eq!(ask(post, &[("host", host), TOKEN, JSON]), Err(Refusal::ForeignHost));
        }
        assert_eq!(ask(post, &[TOKEN, JSON]), Err(Refusal::ForeignHost));
        for origin in ["evil.example", "null", "https://127.0.0.1:80", "http://localhost:80"] {
            let asked = ask(post, &[HOST, TOKEN, JSON, ("origin", origin)]);
            assert_eq!(asked, Err(Refusal::ForeignOrigin), "{origin}");
        }
        let own = ("origin", "http://127.0.0.1:80");
        assert_eq!(ask(post, &[HOST, TOKEN, JSON, own]), Ok(None));
        for token in
            ["secret", "Bearer", "Bearer secre", "Bearer secrets", "Basic secret", "Bearer Secret"]
        {
            let asked = ask(post, &[HOST, JSON, ("authorization", token)]);
            assert_eq!(asked, Err(Refusal::WrongToken), "{token}");
        }
        assert_eq!(ask(post, &[HOST, JSON, TOKEN, TOKEN]), Err(Refusal::WrongToken));
        assert_eq!(ask("POST /", &[HOST, TOKEN, JSON]), Err(Refusal::WrongPath));
        for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
            let asked = ask(&format!("{method} /mcp"), &[HOST, TOKEN, JSON]);
            assert_eq!(asked, Err(Refusal::WrongMethod), "{method}");
        }
        assert_eq!(ask(post, &[HOST, TOKEN]), Err(Refusal::WrongType));
        let utf8 = ("content-type", "application/json; charset=utf-8");
        let version = ("mcp-protocol-version", "2025-06-18");
        let known = Ok(Some(ProtocolVersion::V_2025_06_18));
        assert_eq!(ask(post, &[HOST, TOKEN, utf8, version]), known);
        let version = ("mcp-protocol-version", "1999-01-01");
        assert_eq!(ask(post, &[HOST, TOKEN, JSON, version]), Err(Refusal::UnknownVersion));
    }
}
