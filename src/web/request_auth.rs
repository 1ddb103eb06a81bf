//! The check that admits or refuses a request by its head. Pure: it reads neither the body nor any state.
//!
//! A foreign page in the same browser can send requests to this server. Three checks refuse them: the page does
//! not know the token; a host name of its own that resolves to loopback appears in `Host`; its requests carry its
//! `Origin`.

use crate::wire::AgentName;
use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use subtle::ConstantTimeEq;

/// The longest message id that is searched for, in bytes.
const LONGEST_ID: usize = 512;

#[derive(Debug)]
pub(super) struct RequestAuth {
    pub(super) port: u16,
    pub(super) token: String,
    /// Whether the page may also send messages, stop members and answer requests.
    pub(super) has_control: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    Page,
    /// The changes of the team.
    Events,
    Conversation(AgentName),
    /// The path of the message of this id through the files.
    Trace(String),
    Order,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this address is not served here; open the one that `team web` printed")]
    ForeignHost,
    #[error("the request comes from another page; open the address that `team web` printed")]
    ForeignOrigin,
    #[error("the token is missing or wrong; open the address that `team web` printed")]
    WrongToken,
    #[error("not found")]
    Unknown,
    #[error("this method is not allowed here")]
    WrongMethod,
    #[error("this page is read-only; start `team web --control` to steer the team")]
    ReadOnly,
    #[error("the request is invalid: {0}")]
    BadOrder(String),
}

impl RequestAuth {
    /// Admits a request, or refuses it with a reason.
    pub(super) fn admit(&self, head: &Parts) -> Result<Route, Refusal> {
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
        let query = head.uri.query().unwrap_or_default();
        // The comparison takes constant time, so that the token cannot be guessed byte by byte.
        let token = parameter(query, "token").unwrap_or_default();
        if !bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            return Err(Refusal::WrongToken);
        }
        let is_read = head.method == Method::GET;
        match head.uri.path() {
            "/orders" if head.method != Method::POST => Err(Refusal::WrongMethod),
            "/orders" if !self.has_control => Err(Refusal::ReadOnly),
            // A form of a foreign page cannot send JSON without a preflight request.
            "/orders" if only(&head.headers, &header::CONTENT_TYPE) != Some("application/json") => {
                Err(Refusal::BadOrder("it is not application/json".into()))
            }
            "/orders" => Ok(Route::Order),
            "/" if is_read => Ok(Route::Page),
            "/events" if is_read => Ok(Route::Events),
            "/conversation" if is_read => {
                let name = parameter(query, "name").and_then(|name| AgentName::mailbox(&name).ok());
                name.map(Route::Conversation).ok_or(Refusal::Unknown)
            }
            "/trace" if is_read => {
                let id = parameter(query, "id").filter(|id| (1..=LONGEST_ID).contains(&id.len()));
                id.map(Route::Trace).ok_or(Refusal::Unknown)
            }
            "/" | "/events" | "/conversation" | "/trace" => Err(Refusal::WrongMethod),
            _ => Err(Refusal::Unknown),
        }
    }
}

/// Returns the value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut decoded = Vec::new();
    let mut rest = found.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    type Headers<'a> = &'a [(&'a str, &'a str)];

    const HOST: (&str, &str) = ("host", "127.0.0.1:80");
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn ask(has_control: bool, request: &str, headers: Headers<'_>) -> Result<Route, Refusal> {
        let (method, uri) = request.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestAuth { port: 80, token: "secret".into(), has_control }.admit(&head)
    }

    fn refuses(why: Refusal, request: &str, headers: Headers<'_>) {
        assert_eq!(ask(true, request, headers), Err(why), "{request} {headers:?}");
    }

    #[test]
    fn a_foreign_host_or_origin_is_refused() {
        let page = "GET /?token=secret";
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", ""] {
            refuses(Refusal::ForeignHost, page, &[("host", host)]);
        }
        refuses(Refusal::ForeignHost, page, &[]);
        refuses(Refusal::ForeignHost, page, &[HOST, ("host", "evil.example")]);
        for host in ["127.0.0.1:80", "localhost:80"] {
            assert_eq!(ask(true, page, &[("host", host)]), Ok(Route::Page));
        }
        for origin in ["evil.example", "null", "https://127.0.0.1:80", "http://localhost:80"] {
            refuses(Refusal::ForeignOrigin, page, &[HOST, ("origin", origin)]);
        }
        refuses(Refusal::ForeignOrigin, page, &[HOST, ("origin", "http://evil.example")]);
        let own = [HOST, ("origin", "http://127.0.0.1:80"), JSON];
        assert_eq!(ask(true, "POST /orders?token=secret", &own), Ok(Route::Order));
    }

    #[test]
    fn a_request_without_the_token_or_for_a_path_is_refused() {
        for query in ["", "token=", "token=secre", "token=secrets", "token=Secret", "x=secret"] {
            refuses(Refusal::WrongToken, &format!("GET /?{query}"), &[HOST]);
        }
        refuses(Refusal::WrongToken, "GET /", &[HOST]);
        refuses(Refusal::WrongToken, "GET /etc/passwd", &[HOST]);
        for path in ["/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/page.js"] {
            refuses(Refusal::Unknown, &format!("GET {path}?token=secret"), &[HOST]);
        }
        for name in ["..%2flead", "../lead", "%00", "a/b", ".lock", "%zz", "Alice"] {
            let request = format!("GET /conversation?token=secret&name={name}");
            refuses(Refusal::Unknown, &request, &[HOST]);
        }
        let trace = ask(true, "GET /trace?id=a%3A1+b&token=secret", &[HOST]);
        assert_eq!(trace, Ok(Route::Trace("a:1 b".into())));
    }

    #[test]
    fn an_order_needs_control_access_and_json() {
        let order = "POST /orders?token=secret";
        assert_eq!(ask(false, order, &[HOST, JSON]), Err(Refusal::ReadOnly));
        let form = [HOST, ("content-type", "text/plain")];
        assert!(matches!(ask(true, order, &form), Err(Refusal::BadOrder(_))));
        assert_eq!(ask(true, order, &[HOST, JSON]), Ok(Route::Order));
        for request in ["POST /", "GET /orders", "DELETE /events"] {
            refuses(Refusal::WrongMethod, &format!("{request}?token=secret"), &[HOST]);
        }
    }
}
