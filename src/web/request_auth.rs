//! The check that admits a request of the page by its head, or refuses it. Pure: it reads neither the body nor any state.

use crate::loopback::access::{Access, AccessError, is_json};
use crate::wire::AgentName;
use crate::wire::subagent::SubagentId;
use hyper::Method;
use hyper::http::request::Parts;

/// The longest message id that is searched for, in bytes.
const LONGEST_ID: usize = 512;

#[derive(Debug)]
pub(super) struct RequestAuth {
    pub(super) access: Access,
    /// Whether the page may also send messages, stop members and answer requests.
    pub(super) has_control: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    Page,
    /// The changes of the team.
    Events,
    /// Of this agent or subagent.
    Conversation(String),
    /// The path of the message of this id through the files.
    Trace(String),
    Order,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}; open the address that `team web` printed")]
    Access(#[from] AccessError),
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
        let query = head.uri.query().unwrap_or_default();
        let token = parameter(query, "token").unwrap_or_default();
        self.access.check(&head.headers, &token)?;
        let is_read = head.method == Method::GET;
        match head.uri.path() {
            "/orders" if head.method != Method::POST => Err(Refusal::WrongMethod),
            "/orders" if !self.has_control => Err(Refusal::ReadOnly),
            "/orders" if !is_json(&head.headers) => {
                Err(Refusal::BadOrder("it is not application/json".into()))
            }
            "/orders" => Ok(Route::Order),
            "/" if is_read => Ok(Route::Page),
            "/events" if is_read => Ok(Route::Events),
            "/conversation" if is_read => {
                let name = parameter(query, "name");
                let name = name.filter(|name| can_have_conversation(name));
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

/// Whether an agent or a subagent can have this name.
fn can_have_conversation(name: &str) -> bool {
    AgentName::mailbox(name).is_ok() || SubagentId::parse(name).is_some()
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
        let access = Access { port: 80, token: "secret".into() };
        RequestAuth { access, has_control }.admit(&head)
    }

    fn refuses(why: Refusal, request: &str, headers: Headers<'_>) {
        assert_eq!(ask(true, request, headers), Err(why), "{request} {headers:?}");
    }

    #[test]
    fn a_request_without_the_token_or_for_a_path_is_refused() {
        let wrong_token = || Refusal::Access(AccessError::WrongToken);
        for query in ["", "token=", "token=secre", "token=secrets", "token=Secret", "x=secret"] {
            refuses(wrong_token(), &format!("GET /?{query}"), &[HOST]);
        }
        refuses(wrong_token(), "GET /", &[HOST]);
        refuses(wrong_token(), "GET /etc/passwd", &[HOST]);
        let page = "GET /?token=secret";
        refuses(Refusal::Access(AccessError::ForeignHost), page, &[("host", "evil.example")]);
        let foreign = [HOST, ("origin", "http://evil.example")];
        refuses(Refusal::Access(AccessError::ForeignOrigin), page, &foreign);
        assert_eq!(ask(true, page, &[HOST]), Ok(Route::Page));
        for path in ["/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/page.js"] {
            refuses(Refusal::Unknown, &format!("GET {path}?token=secret"), &[HOST]);
        }
        for name in
            ["..%2flead", "../lead", "%00", "a/b", ".lock", "%zz", "Alice", "a/b:1", "alice:x"]
        {
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
