//! The page of `team web`: a small server on loopback that shows the team as its files tell it, and, if it
//! may, passes on what a person orders.
//!
//! *Invariants:* it listens on loopback only; nothing is answered without the token, to a foreign `Host` or
//! for a foreign `Origin`; no part of a request becomes a path. It does not know how an order is carried out:
//! it asks [`Control`].

mod broadcaster;
mod control;
mod page;
mod reply;
mod request_auth;

pub(crate) use broadcaster::Broadcaster;
pub(crate) use control::{Control, Order, Outcome};

use crate::store::tail::Tail;
use crate::view::Stage;
use crate::view::trace::{self, Proof};
use crate::wire::AgentName;
use crate::wire::transcript::Line;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use reply::{ResponseBody, event};
use request_auth::{Access, Refusal, RequestAuth, Route};
use serde_json::{Value, json};
use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// How much of a conversation is shown when one begins to look.
const LOOK_BACK: u64 = 512 * 1024;

/// Longest order in bytes.
const ORDER_BYTES: usize = 512 * 1024;

/// Connections at a time: a person has a few windows, not hundreds.
const CONNECTIONS: usize = 64;

/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// A page that is served.
pub(crate) struct Site {
    listener: TcpListener,
    door: RequestAuth,
    hub: Rc<Broadcaster>,
    control: Option<Rc<dyn Control>>,
    connections: Cell<usize>,
}

impl Site {
    /// Takes a port on loopback (0: any that is free).
    ///
    /// # Errors
    /// The port is not to be had.
    pub(crate) async fn open(
        port: u16,
        token: String,
        hub: Rc<Broadcaster>,
        control: Option<Rc<dyn Control>>,
    ) -> io::Result<Rc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        let access = if control.is_some() { Access::Control } else { Access::Look };
        let door = RequestAuth { port, token, access };
        Ok(Rc::new(Self { listener, door, hub, control, connections: Cell::new(0) }))
    }

    /// Where it is found, token included.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.door.port, self.door.token)
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self: Rc<Self>) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // No descriptor is left; a connection that ends gives one back.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if self.connections.get() >= CONNECTIONS {
                continue;
            }
            let site = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                site.connections.set(site.connections.get() + 1);
                let service = service_fn(|request| site.answer(request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(why) = connection {
                    tracing::debug!(%why, "a connection broke");
                }
                site.connections.set(site.connections.get().saturating_sub(1));
            });
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let (head, body) = request.into_parts();
        let route = self.door.admit(&head);
        let reply = match route {
            Err(refusal) => reply::refused(&refusal),
            Ok(Route::Page) => page::page(self.door.access),
            Ok(Route::Events) => self.watch(),
            Ok(Route::Conversation(name)) => self.follow(&name),
            Ok(Route::Trace(id)) => self.trace(id).await,
            Ok(Route::Order) => self.order(body).await,
        };
        Ok(reply)
    }

    /// The lines that show a message's steps, in the order of these.
    async fn trace(&self, id: String) -> Response<ResponseBody> {
        let dir = self.hub.dir().clone();
        // Conversations may be long.
        let found = tokio::task::spawn_blocking(move || trace::of(&dir, &id).map(|it| (id, it)));
        let (id, found) = match found.await {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return failed(&why.to_string()),
            Err(why) => return failed(&why.to_string()),
        };
        let shown = found.steps.into_iter().filter_map(|it| Some((it.what.stage()?, it.proof?)));
        let mut shown: Vec<(Stage, Proof)> = shown.collect();
        shown.sort_by_key(|(stage, _)| *stage);
        let steps = shown.iter().map(|(stage, proof)| json!({ "stage": stage, "proof": proof }));
        reply::json(StatusCode::OK, &json!({ "id": id, "steps": steps.collect::<Vec<_>>() }))
    }

    /// The team as it is, then every change.
    fn watch(&self) -> Response<ResponseBody> {
        reply::stream(self.hub.subscribe())
    }

    /// Somebody's conversation as it grows.
    fn follow(&self, name: &AgentName) -> Response<ResponseBody> {
        let (tell, told) = mpsc::channel(64);
        let mut tail = Tail::of_last(self.hub.dir().transcript(name), LOOK_BACK);
        let mut looks = self.hub.looks();
        tokio::task::spawn_local(async move {
            loop {
                let lines = tail.read_new().unwrap_or_default();
                let lines: Vec<Value> = lines
                    .iter()
                    .filter(|line| Line::read(line).is_some())
                    .filter_map(|line| serde_json::from_slice(line).ok())
                    .collect();
                if !lines.is_empty() && tell.send(event(&json!({ "lines": lines }))).await.is_err()
                {
                    return;
                }
                tokio::select! {
                    changed = looks.changed() => if changed.is_err() { return },
                    () = tell.closed() => return,
                }
            }
        });
        reply::stream(told)
    }

    async fn order(&self, body: Incoming) -> Response<ResponseBody> {
        let Some(control) = self.control.clone() else {
            return reply::refused(&Refusal::ReadOnly);
        };
        let whole = Limited::new(body, ORDER_BYTES).collect();
        let text = match tokio::time::timeout(PATIENCE, whole).await {
            Ok(Ok(text)) => text.to_bytes(),
            Ok(Err(_)) => return reply::refused(&Refusal::BadOrder("it is too long".into())),
            Err(_) => return reply::refused(&Refusal::BadOrder("it never ended".into())),
        };
        let order: Order = match serde_json::from_slice(&text) {
            Ok(order) => order,
            Err(why) => return reply::refused(&Refusal::BadOrder(why.to_string())),
        };
        match control.carry_out(order).await {
            Outcome::Done { said } => reply::json(StatusCode::OK, &json!({ "said": said })),
            Outcome::Failed { what, why, hint } => {
                let told = json!({ "error": what, "why": why, "hint": hint });
                reply::json(StatusCode::CONFLICT, &told)
            }
        }
    }
}

fn failed(why: &str) -> Response<ResponseBody> {
    reply::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": why }))
}
