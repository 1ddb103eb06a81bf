//! The tool server over HTTP, for a client that this program starts: it listens on loopback, and each request needs the
//! token of this server. Answers are JSON; there are no streams and no sessions.

use super::request_auth::{Refusal, RequestAuth};
use super::{Incoming, MAX_MESSAGE_BYTES, ToolServer};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::json;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The maximum number of connections at once.
const CONNECTIONS: usize = 64;

/// The time within which a client must send a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A tool server on loopback.
pub(crate) struct HttpServer {
    listener: TcpListener,
    auth: RequestAuth,
    tools: Rc<ToolServer>,
    connections: Arc<Semaphore>,
}

impl HttpServer {
    /// Binds a free port on loopback. Fails if no port or descriptor is free.
    pub(crate) async fn open(tools: Rc<ToolServer>) -> io::Result<Rc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Ok(Rc::new(Self { listener, auth: RequestAuth { port, token }, tools, connections }))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.auth.port)
    }

    /// Returns the value of the header `Authorization` that a client must send.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.auth.token)
    }

    /// Serves until the future is dropped.
    pub(crate) async fn serve(self: Rc<Self>) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // `accept` fails if no descriptor is free; the end of a connection frees one.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else { continue };
            let server = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                let _permit = permit;
                let service = service_fn(|request| server.respond(request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(REQUEST_LIMIT)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(why) = connection {
                    tracing::debug!(%why, "a connection failed");
                }
            });
        }
    }

    async fn respond(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let version = match self.auth.admit(&head) {
            Ok(version) => version,
            Err(refusal) => return Ok(refused(&refusal)),
        };
        let whole = Limited::new(body, MAX_MESSAGE_BYTES).collect();
        let incoming = match tokio::time::timeout(REQUEST_LIMIT, whole).await {
            Ok(Ok(text)) => Incoming::read(&text.to_bytes()),
            Ok(Err(_)) => Incoming::too_long(),
            Err(_) => {
                return Ok(response(
                    StatusCode::REQUEST_TIMEOUT,
                    &json!({ "error": "the request never ended" }),
                ));
            }
        };
        Ok(match incoming {
            Incoming::Request(request) => {
                let answer = self.tools.answer(*request, version).await;
                let response = response(StatusCode::OK, &answer.message);
                answer.confirm();
                response
            }
            Incoming::Invalid(answer) => response(StatusCode::BAD_REQUEST, &answer.message),
            // A request is cancelled by the end of its connection.
            Incoming::Cancel(_) | Incoming::Ignored => empty(StatusCode::ACCEPTED),
        })
    }
}

fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = response(refusal.status(), &json!({ "error": refusal.to_string() }));
    let header = match refusal {
        Refusal::WrongToken => Some((header::WWW_AUTHENTICATE, "Bearer")),
        Refusal::WrongMethod => Some((header::ALLOW, "POST")),
        Refusal::ForeignHost
        | Refusal::ForeignOrigin
        | Refusal::WrongPath
        | Refusal::WrongType
        | Refusal::UnknownVersion => None,
    };
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn response(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // The messages of the protocol have only keys of text, so that they can be serialized.
    let mut response = Response::new(Full::from(serde_json::to_vec(value).unwrap_or_default()));
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
