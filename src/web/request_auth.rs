//! Admits or refuses a request by its head. Pure: it reads neither the body nor any state.
//!
//! A foreign page, open in the same browser, can send requests here. Three checks keep it out: it does not
//! know the token; a name of its own that resolves to loopback shows in `Host`; and its requests carry its
//! `Origin`.

use crate::wire::AgentName;
use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use subtle::ConstantTimeEq;

/// The longest message id that is searched for, in bytes.
const LONGEST_ID: usize = 512;

/// The rights of a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Look only.
    Look,
    /// Also send messages, stop members and answer requests.
    Control,
}

/// The checks of a request.
#[derive(Debug)]
pub(super) struct RequestAuth {
    pub(super) port: u16,
    pub(super) token: String,
    pub(super) access: Access,
}

/// The resource that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The page.
    Page,
    /// The changes of the team.
    Events,
    /// The conversation of an agent.
    Conversation(AgentName),
    /// The path of a message through the files.
    Trace(String),
    /// A command.
    Order,
}

/// The reason of a refusal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this address is not served here; open the one that `team web` printed")]
    ForeignHost,
    #[error("the request comes from another page; open the address that `team web` printed")]
    ForeignOrigin,
    #[error("the token is missing or wrong; open the address that `team web` printed")]
    WrongToken,
    #[error("nothing has that name")]
    Unknown,
    #[error("this method is not allowed here")]
    WrongMethod,
    #[error("this page only shows; start `team web --control` to steer the team")]
    ReadOnly,
    #[error("the order cannot be understood: {0}")]
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
        // In constant time: the token cannot be guessed byte by byte.
        let token = parameter(query, "token").unwrap_or_default();
        if !bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            return Err(Refusal::WrongToken);
        }
        let is_read = head.method == Method::GET;
        match head.uri.path() {
            "/orders" if head.method == Method::POST => self.admit_order(&head.headers),
            "/" if is_read => Ok(Route::Page),
            "/events" if is_read => Ok(Route::Events),
            "/conversation" if is_read => {
                let name = parameter(query, "name").and_then(|name| AgentName::mailbox(&name).ok());
                name.map(Route::Conversation).ok_or(Refusal::Unknown)
            }
            "/trace" if is_read => {
                let id = parameter(query, "id").filter(|id| !id.is_empty());
                let id = id.filter(|id| id.len() <= LONGEST_ID);
                id.map(Route::Trace).ok_or(Refusal::Unknown)
            }
            "/" | "/events" | "/conversation" | "/trace" | "/orders" => Err(Refusal::WrongMethod),
            _ => Err(Refusal::Unknown),
        }
    }

    fn admit_order(&self, headers: &HeaderMap) -> Result<Route, Refusal> {
        // A form of a foreign page cannot send JSON without a preflight request.
        let kind = only(headers, &header::CONTENT_TYPE);
        match self.access {
            Access::Look => Err(Refusal::ReadOnly),
            Access::Control if kind != Some("application/json") => {
                Err(Refusal::BadOrder("it is not application/json".into()))
            }
            Access::Control => Ok(Route::Order),
        }
    }
}

/// The value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The decoded value of a query parameter.
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

    fn ask(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Route, Refusal> {
        ask_at(Access::Control, method, uri, headers)
    }

    fn ask_at(
        access: Access,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<Route, Refusal> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestAuth { port: 80, token: "secret".into(), access }.admit(&head)
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:80");
    const JSON: (&str, &str) = ("content-type", "application/json");

    #[test]
    fn a_foreign_host_is_refused() {
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", ""] {
            let refused = ask("GET", "/?token=secret", &[("host", host)]);
            assert_eq!(refused, Err(Refusal::ForeignHost), "{host}");
        }
        assert_eq!(ask("GET", "/?token=secret", &[]), Err(Refusal::ForeignHost));
        let twice = ask("GET", "/?token=secret", &[HOST, ("host", "evil.example")]);
        assert_eq!(twice, Err(Refusal::ForeignHost));
        for host in ["127.0.0.1:80", "localhost:80"] {
            assert_eq!(ask("GET", "/?token=secret", &[("host", host)]), Ok(Route::Page));
        }
    }

    #[test]
    fn a_foreign_origin_is_refused() {
        for origin in ["http://evil.example", "null", "https://127.0.0.1:80", "http://localhost:80"]
        {
            let refused = ask("GET", "/?token=secret", &[HOST, ("origin", origin)]);
            assert_eq!(refused, Err(Refusal::ForeignOrigin), "{origin}");
        }
        let own = ("origin", "http://127.0.0.1:80");
        assert_eq!(ask("POST", "/orders?token=secret", &[HOST, own, JSON]), Ok(Route::Order));
    }

    #[test]
    fn a_request_without_the_token_is_refused() {
        for query in ["", "?token=", "?token=secre", "?token=secrets", "?token=Secret", "?x=secret"]
        {
            let refused = ask("GET", &format!("/{query}"), &[HOST]);
            assert_eq!(refused, Err(Refusal::WrongToken), "{query}");
        }
        assert_eq!(ask("GET", "/etc/passwd", &[HOST]), Err(Refusal::WrongToken));
    }

    #[test]
    fn a_path_in_a_request_is_refused() {
        for path in ["/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/page.js"] {
            let refused = ask("GET", &format!("{path}?token=secret"), &[HOST]);
            assert_eq!(refused, Err(Refusal::Unknown), "{path}");
        }
        for name in ["..%2flead", "../lead", "%00", "a/b", ".lock", "%zz", "Alice"] {
            let refused = ask("GET", &format!("/conversation?token=secret&name={name}"), &[HOST]);
            assert_eq!(refused, Err(Refusal::Unknown), "{name}");
        }
        let trace = ask("GET", "/trace?id=a%3A1+b&token=secret", &[HOST]);
        assert_eq!(trace, Ok(Route::Trace("a:1 b".into())));
    }

    #[test]
    fn an_order_needs_control_access_and_json() {
        let order = |access, headers: &[_]| ask_at(access, "POST", "/orders?token=secret", headers);
        assert_eq!(order(Access::Look, &[HOST, JSON]), Err(Refusal::ReadOnly));
        let form = ("content-type", "text/plain");
        assert!(matches!(order(Access::Control, &[HOST, form]), Err(Refusal::BadOrder(_))));
        assert_eq!(order(Access::Control, &[HOST, JSON]), Ok(Route::Order));
        for (method, path) in [("POST", "/"), ("GET", "/orders"), ("DELETE", "/events")] {
            let refused = ask(method, &format!("{path}?token=secret"), &[HOST]);
            assert_eq!(refused, Err(Refusal::WrongMethod), "{method} {path}");
        }
    }
}
