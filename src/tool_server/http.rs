//! The tool server over HTTP, for a client that this program starts: it listens on loopback, and each request needs the
//! token of this server. Answers are JSON; there are no streams and no sessions.

use super::request_auth::{Refusal, RequestAuth};
use super::request_headers::{RequestHeaders, status_of};
use super::{Answer, Incoming, ToolServer};
use crate::loopback::access::Access;
use crate::loopback::server::{BodyError, LoopbackServer, Written, read_body};
use crate::rpc::lines::MAX_MESSAGE_BYTES;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::io;
use std::rc::Rc;

/// A tool server on loopback.
pub(crate) struct HttpServer {
    server: LoopbackServer,
    auth: RequestAuth,
    tools: Rc<ToolServer>,
}

impl HttpServer {
    /// Binds a free port on loopback. Fails if no port or descriptor is free.
    pub(crate) async fn open(tools: Rc<ToolServer>) -> io::Result<Rc<Self>> {
        let server = LoopbackServer::bind(0).await?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let auth = RequestAuth(Access { port: server.port(), token });
        Ok(Rc::new(Self { server, auth, tools }))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.server.port())
    }

    /// Returns the value of the header `Authorization` that a client must send.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.auth.0.token)
    }

    /// Serves until the future is dropped.
    pub(crate) async fn serve(self: Rc<Self>) {
        let server = Rc::clone(&self);
        let respond = move |request, written| {
            let server = Rc::clone(&server);
            async move { server.respond(request, written).await }
        };
        self.server.serve(respond).await;
    }

    async fn respond(&self, request: Request<Body>, written: Written) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        if let Err(refusal) = self.auth.admit(&head) {
            return refused(&refusal);
        }
        let incoming = match read_body(body, MAX_MESSAGE_BYTES).await {
            Ok(text) => Incoming::read(&text),
            Err(BodyError::TooLong) => Incoming::too_long(),
            Err(BodyError::Late) => {
                let why = json!({ "error": "the request never ended" });
                return response(StatusCode::REQUEST_TIMEOUT, &why);
            }
        };
        match incoming {
            Incoming::Request(id, request) => {
                let headers = RequestHeaders::of(&head.headers);
                let is_stateless = headers.is_stateless(&request);
                let answer = match headers.check(&request) {
                    Ok(version) => self.tools.answer(id, request, version).await,
                    Err(error) => Answer::error(id, error),
                };
                let status = status_of(&answer.message, is_stateless);
                let response = response(status, &answer.message);
                written.then(|| answer.confirm());
                response
            }
            Incoming::Invalid(answer) => response(StatusCode::BAD_REQUEST, &answer.message),
            // A request is cancelled by the end of its connection.
            Incoming::Cancel(_) | Incoming::Ignored => empty(StatusCode::ACCEPTED),
        }
    }
}

fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = response(refusal.status(), &json!({ "error": refusal.to_string() }));
    let header = match refusal.status() {
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "POST")),
        _ => None,
    };
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
