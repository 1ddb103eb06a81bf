//! The page of `team web`: a small server on loopback that shows the team from its files and, with
//! `--control`, passes on the person's commands.
//!
//! *Invariants:* a request without the token, with a foreign `Host` or with a foreign `Origin` is refused
//! (`crate::loopback`); no part of a request becomes a path. [`Control`] carries out the commands.

mod broadcaster;
mod reply;
mod request_auth;

pub(crate) use broadcaster::Broadcaster;

use crate::loopback::access::Access;
use crate::loopback::server::{BodyError, LoopbackServer, read_body};
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::store::mail_search::line_number;
use crate::store::relay::copies;
use crate::store::tail::Tail;
use crate::store::{StoreError, TeamDir, roster};
use crate::view::Stage;
use crate::view::trace::{self, Proof};
use crate::wire::transcript::Line;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use reply::{ResponseBody, event};
use request_auth::{Refusal, RequestAuth, Route};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::mpsc;

/// The part of a conversation that is shown first, in bytes from its end.
const LOOK_BACK: u64 = 512 * 1024;

const ORDER_BYTES: usize = 512 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Send a message from `user`, to one agent or to `all`.
    Send {
        to: String,
        text: String,
    },
    /// Start a teammate, through the running lead.
    Spawn {
        name: String,
        role: String,
        prompt: String,
        model: Option<String>,
        mode: Option<String>,
        isolation: Option<String>,
    },
    /// Stop a member by the shutdown ladder.
    Stop {
        name: String,
    },
    /// Approve the request of this id, once.
    Approve {
        id: String,
    },
    Deny {
        id: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command was carried out; `said` is a sentence for the person.
    Done {
        said: String,
    },
    Failed {
        what: String,
        why: String,
        hint: String,
    },
}

/// The function that carries out a command; its future waits for the result.
pub(crate) type Control = dyn Fn(Order) -> Pin<Box<dyn Future<Output = Outcome>>>;

pub(crate) struct Site {
    server: LoopbackServer,
    auth: RequestAuth,
    broadcaster: Rc<Broadcaster>,
    control: Option<Rc<Control>>,
}

impl Site {
    /// Binds a port on loopback (0: any free one).
    ///
    /// # Errors
    /// The port cannot be bound.
    pub(crate) async fn open(
        port: u16,
        token: String,
        broadcaster: Rc<Broadcaster>,
        control: Option<Rc<Control>>,
    ) -> io::Result<Rc<Self>> {
        let server = LoopbackServer::bind(port).await?;
        let access = Access { port: server.port(), token };
        let auth = RequestAuth { access, has_control: control.is_some() };
        Ok(Rc::new(Self { server, auth, broadcaster, control }))
    }

    pub(crate) fn url(&self) -> String {
        let Access { port, token } = &self.auth.access;
        format!("http://127.0.0.1:{port}/?token={token}")
    }

    /// Serves until the future is dropped.
    pub(crate) async fn serve(self: Rc<Self>) {
        let site = Rc::clone(&self);
        let respond = move |request, _| {
            let site = Rc::clone(&site);
            async move { site.answer(request).await }
        };
        self.server.serve(respond).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        match self.auth.admit(&head) {
            Err(refusal) => reply::refused(&refusal),
            Ok(Route::Page) => reply::page(self.auth.has_control),
            Ok(Route::Events) => reply::stream(self.broadcaster.subscribe()),
            Ok(Route::Conversation(name)) => self.follow(&name),
            Ok(Route::Trace(id)) => self.trace(id).await,
            Ok(Route::Order) => self.order(body).await,
        }
    }

    /// Returns the lines that prove a message's stages, in the order of the stages.
    async fn trace(&self, id: String) -> Response<ResponseBody> {
        let dir = self.broadcaster.dir.clone();
        // A search through long conversations must not block this thread.
        let found = spawn_blocking(move || stages(&dir, &id).map(|it| (id, it)));
        let found = found.await.map_err(|why| why.to_string());
        let (id, steps) = match found.and_then(|found| found.map_err(|why| why.to_string())) {
            Ok(found) => found,
            Err(why) => {
                return reply::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": why }));
            }
        };
        reply::json(StatusCode::OK, &json!({ "id": id, "steps": steps }))
    }

    /// Streams the conversation of an agent or a subagent, then every new line.
    fn follow(&self, name: &str) -> Response<ResponseBody> {
        let dir = &self.broadcaster.dir;
        let roster = roster::read(dir).unwrap_or_default();
        let Some(path) = copies::conversation(dir, &roster, name) else {
            return reply::refused(&Refusal::Unknown);
        };
        let (sender, events) = mpsc::channel(64);
        let mut tail = Tail::of_last(path, LOOK_BACK);
        let mut looks = self.broadcaster.looks.subscribe();
        spawn_local(async move {
            loop {
                let lines = tail.read_new().unwrap_or_default();
                let lines = lines.iter().filter(|line| Line::read(line).is_some());
                let lines: Vec<Value> =
                    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
                let event = event(&json!({ "lines": lines }));
                if !lines.is_empty() && sender.send(event).await.is_err() {
                    return;
                }
                tokio::select! {
                    changed = looks.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        reply::stream(events)
    }

    async fn order(&self, body: Incoming) -> Response<ResponseBody> {
        let Some(control) = self.control.clone() else {
            return reply::refused(&Refusal::ReadOnly);
        };
        let order: Result<Order, String> = match read_body(body, ORDER_BYTES).await {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| why.to_string()),
            Err(BodyError::TooLong) => Err("it is too long".into()),
            Err(BodyError::Late) => Err("it never ended".into()),
        };
        let order = match order {
            Ok(order) => order,
            Err(why) => return reply::refused(&Refusal::BadOrder(why)),
        };
        match control(order).await {
            Outcome::Done { said } => reply::json(StatusCode::OK, &json!({ "said": said })),
            Outcome::Failed { what, why, hint } => {
                let error = json!({ "error": what, "why": why, "hint": hint });
                reply::json(StatusCode::CONFLICT, &error)
            }
        }
    }
}

/// A line that proves a step, with its number from 1.
#[derive(Serialize)]
struct NumberedProof {
    #[serde(flatten)]
    proof: Proof,
    line: usize,
}

/// Returns the lines that prove the stages of a message, in the order of the stages.
fn stages(team: &TeamDir, id: &str) -> Result<Vec<Value>, StoreError> {
    let steps = trace::of(team, id)?.steps.into_iter();
    let mut shown: Vec<(Stage, Proof)> =
        steps.filter_map(|step| Some((step.what.stage()?, step.proof?))).collect();
    shown.sort_by_key(|(stage, _)| *stage);
    let as_json = |(stage, proof): (Stage, Proof)| {
        let line = line_number(team, Path::new(&proof.file), proof.offset)?;
        Ok(json!({ "stage": stage, "proof": NumberedProof { proof, line } }))
    };
    shown.into_iter().map(as_json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_order_is_refused() {
        let read = |text: &str| serde_json::from_str::<Order>(text).ok();
        let stop = Order::Stop { name: "alice".into() };
        assert_eq!(read(r#"{"do":"stop","name":"alice"}"#), Some(stop));
        assert_eq!(read(r#"{"do":"stop","name":"alice","now":true}"#), None);
        assert_eq!(read(r#"{"do":"purge"}"#), None);
    }
}
