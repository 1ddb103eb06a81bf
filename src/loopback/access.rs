//! The checks that admit a request by its head. Pure: they read neither the body nor any state.
//!
//! Every process of this computer can connect to loopback, and so can a foreign page in a browser. Three checks refuse them:
//! they do not know the token; a host name of a page that resolves to loopback appears in `Host`; the requests of a page
//! carry its `Origin`.

use hyper::header::{self, HeaderMap, HeaderName};
use subtle::ConstantTimeEq;

/// The access to one server.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) port: u16,
    pub(crate) token: String,
}

/// The reason for which a request is none of a program that may use the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("this host is not served here")]
    ForeignHost,
    #[error("the request comes from another page")]
    ForeignOrigin,
    #[error("the token is missing or wrong")]
    WrongToken,
}

impl Access {
    /// Checks that a request is for this host, is not from a foreign page, and has the token.
    pub(crate) fn check(&self, headers: &HeaderMap, token: &str) -> Result<(), AccessError> {
        let hosts = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let host = only(headers, &header::HOST);
        if !host.is_some_and(|host| hosts.iter().any(|ours| ours == host)) {
            return Err(AccessError::ForeignHost);
        }
        if headers.contains_key(header::ORIGIN) {
            let origin = only(headers, &header::ORIGIN);
            let origin = origin.and_then(|origin| origin.strip_prefix("http://"));
            if origin.is_none_or(|origin| Some(origin) != host) {
                return Err(AccessError::ForeignOrigin);
            }
        }
        // The comparison takes constant time, so that the token cannot be guessed byte by byte.
        if !bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            return Err(AccessError::WrongToken);
        }
        Ok(())
    }
}

/// Returns the value of a header that occurs exactly once.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether the body of a request is JSON by its only type. A form of a foreign page cannot send JSON without a preflight
/// request, which is refused.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = only(headers, &header::CONTENT_TYPE).unwrap_or_default();
    kind.split(';').next().map(str::trim) == Some("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn check(headers: &[(&str, &str)], token: &str) -> Result<(), AccessError> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        Access { port: 80, token: "secret".into() }.check(&head.headers, token)
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:80");

    #[test]
    fn a_foreign_host_or_origin_is_refused() {
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", ""] {
            assert_eq!(check(&[("host", host)], "secret"), Err(AccessError::ForeignHost), "{host}");
        }
        assert_eq!(check(&[], "secret"), Err(AccessError::ForeignHost));
        let two = [HOST, ("host", "evil.example")];
        assert_eq!(check(&two, "secret"), Err(AccessError::ForeignHost));
        for host in ["127.0.0.1:80", "localhost:80"] {
            assert_eq!(check(&[("host", host)], "secret"), Ok(()));
        }
        for origin in ["evil.example", "null", "https://127.0.0.1:80", "http://localhost:80"] {
            let asked = check(&[HOST, ("origin", origin)], "secret");
            assert_eq!(asked, Err(AccessError::ForeignOrigin), "{origin}");
        }
        assert_eq!(check(&[HOST, ("origin", "http://127.0.0.1:80")], "secret"), Ok(()));
    }

    #[test]
    fn a_request_needs_the_whole_token() {
        for token in ["", "secre", "secrets", "Secret"] {
            assert_eq!(check(&[HOST], token), Err(AccessError::WrongToken), "{token}");
        }
    }
}
