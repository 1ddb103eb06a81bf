//! The check that admits a request of a client by its head, or refuses it. Pure: it reads neither the body nor any state.

use crate::loopback::access::{Access, AccessError, is_json, only};
use hyper::header;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

#[derive(Debug)]
pub(super) struct RequestAuth(pub(super) Access);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("only /mcp is served here")]
    WrongPath,
    #[error("only POST is supported: there is no stream and no session")]
    WrongMethod,
    #[error("send application/json")]
    WrongType,
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Access(AccessError::WrongToken) => StatusCode::UNAUTHORIZED,
            Self::Access(AccessError::ForeignHost | AccessError::ForeignOrigin) => {
                StatusCode::FORBIDDEN
            }
            Self::WrongPath => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

impl RequestAuth {
    /// Admits a request, or refuses it with a reason.
    pub(super) fn admit(&self, head: &Parts) -> Result<(), Refusal> {
        let token = only(&head.headers, &header::AUTHORIZATION);
        let token = token.and_then(|it| it.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        self.0.check(&head.headers, token.map_or("", |(_, token)| token))?;
        if head.uri.path() != "/mcp" {
            return Err(Refusal::WrongPath);
        }
        if head.method != Method::POST {
            return Err(Refusal::WrongMethod);
        }
        if !is_json(&head.headers) {
            return Err(Refusal::WrongType);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const HOST: (&str, &str) = ("host", "127.0.0.1:80");
    const TOKEN: (&str, &str) = ("authorization", "Bearer secret");
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn ask(request: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let (method, uri) = request.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestAuth(Access { port: 80, token: "secret".into() }).admit(&head)
    }

    #[test]
    fn a_request_needs_host_origin_token_path_method_and_type() {
        let post = "POST /mcp";
        assert_eq!(ask(post, &[HOST, TOKEN, JSON]), Ok(()));
        let lower = ("authorization", "bearer secret");
        assert_eq!(ask(post, &[("host", "localhost:80"), lower, JSON]), Ok(()));
        let foreign = ask(post, &[("host", "evil.example"), TOKEN, JSON]);
        assert_eq!(foreign, Err(Refusal::Access(AccessError::ForeignHost)));
        let foreign = ask(post, &[HOST, TOKEN, JSON, ("origin", "http://evil.example")]);
        assert_eq!(foreign, Err(Refusal::Access(AccessError::ForeignOrigin)));
        let own = ("origin", "http://127.0.0.1:80");
        assert_eq!(ask(post, &[HOST, TOKEN, JSON, own]), Ok(()));
        for token in
            ["secret", "Bearer", "Bearer secre", "Bearer secrets", "Basic secret", "Bearer Secret"]
        {
            let asked = ask(post, &[HOST, JSON, ("authorization", token)]);
            assert_eq!(asked, Err(Refusal::Access(AccessError::WrongToken)), "{token}");
        }
        let two = ask(post, &[HOST, JSON, TOKEN, TOKEN]);
        assert_eq!(two, Err(Refusal::Access(AccessError::WrongToken)));
        assert_eq!(ask("POST /", &[HOST, TOKEN, JSON]), Err(Refusal::WrongPath));
        for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
            let asked = ask(&format!("{method} /mcp"), &[HOST, TOKEN, JSON]);
            assert_eq!(asked, Err(Refusal::WrongMethod), "{method}");
        }
        assert_eq!(ask(post, &[HOST, TOKEN]), Err(Refusal::WrongType));
        let utf8 = ("content-type", "application/json; charset=utf-8");
        assert_eq!(ask(post, &[HOST, TOKEN, utf8]), Ok(()));
    }
}
