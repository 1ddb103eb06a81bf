//! The connection with one client: it takes a place in the team at the handshake, calls tools, and leaves at the end of
//! the input.

use super::place::{Place, PlacedMember, TakenPlace};
use super::program::shown_program;
use crate::app::event_loop::{SignalStream, exit_of};
use crate::app::stdio::{Input, write_line};
use crate::error::{Exit, Failure, OrFail};
use crate::os::signals::SignalEvent;
use crate::os::spawn::spawn_local;
use crate::tool_server::http::HttpServer;
use crate::tool_server::{LocalFuture, ServedMember, ToolServer, lines};
use crate::tools::{Call, ToolError};
use crate::wire::tool::ToolSpec;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use tokio::sync::Notify;

/// The connection with one client.
pub(in crate::app) struct Session {
    place: Box<dyn Place>,
    /// One attempt to join at a time.
    attempt: tokio::sync::Mutex<()>,
    member: RefCell<Option<Rc<dyn PlacedMember>>>,
    signalled: Rc<Cell<Option<SignalEvent>>>,
    stopped: Rc<Notify>,
    /// The reason for which the member could not join.
    failure: RefCell<Option<Failure>>,
}

impl Session {
    pub(in crate::app) fn new(place: Box<dyn Place>) -> Rc<Self> {
        Rc::new(Self {
            place,
            attempt: tokio::sync::Mutex::default(),
            member: RefCell::default(),
            signalled: Rc::default(),
            stopped: Rc::default(),
            failure: RefCell::default(),
        })
    }

    /// Serves until the end of the input or a signal, then leaves the team.
    pub(in crate::app) async fn run(self: Rc<Self>, is_http: bool) -> Result<Exit, Failure> {
        let tools = ToolServer::new(Rc::clone(&self) as Rc<dyn ServedMember>);
        let served = tokio::select! {
            served = serve_http(&tools), if is_http => served,
            served = lines::serve(Rc::clone(&tools), Input::start()?, write_line) => served,
            () = self.stopped.notified() => Ok(()),
        };
        let exit = self.signalled.get().map_or(Exit::Ok, exit_of);
        let member = self.member.borrow().clone();
        if let Some(member) = member {
            let mut leaving = member.leave(exit);
            loop {
                tokio::select! {
                    () = &mut leaving => break,
                    () = self.stopped.notified() => member.hurry(),
                }
            }
        }
        if let Some(failure) = self.failure.borrow_mut().take() {
            return Err(failure);
        }
        served.or_fail("the client cannot be read", "restart this MCP server")?;
        Ok(exit)
    }

    /// Joins the team once, for a client of this name. Fails with a sentence.
    async fn join(&self, program: &str, version: &str) -> Result<Rc<dyn PlacedMember>, String> {
        let _one_at_a_time = self.attempt.lock().await;
        if let Some(member) = &*self.member.borrow() {
            return Ok(Rc::clone(member));
        }
        match self.place.take(&shown_program(program)).await {
            Ok(TakenPlace { member, signals }) => {
                tracing::info!(program, version, "a client is served");
                self.failure.borrow_mut().take();
                *self.member.borrow_mut() = Some(Rc::clone(&member));
                let (signalled, stopped) = (Rc::clone(&self.signalled), Rc::clone(&self.stopped));
                spawn_local(forward_signals(signals, signalled, stopped));
                let leaving = Rc::clone(&member);
                spawn_local(async move {
                    leaving.membership().asked_to_leave().await;
                    leaving.leave(Exit::Ok).await;
                });
                Ok(member)
            }
            Err(failure) => {
                let sentence = format!("{}: {}; {}", failure.what, failure.why, failure.hint);
                *self.failure.borrow_mut() = Some(failure);
                Err(sentence)
            }
        }
    }

    fn member(&self) -> Option<Rc<dyn PlacedMember>> {
        self.member.borrow().clone()
    }
}

/// Serves HTTP; prints the address and the header that a client must send.
async fn serve_http(tools: &Rc<ToolServer>) -> io::Result<()> {
    let server = HttpServer::open(Rc::clone(tools)).await?;
    let place = json!({ "url": server.url(), "authorization": server.authorization() });
    write_line(format!("{place}\n").into_bytes()).await?;
    server.serve().await;
    Ok(())
}

async fn forward_signals(
    mut signals: SignalStream,
    signalled: Rc<Cell<Option<SignalEvent>>>,
    stopped: Rc<Notify>,
) {
    loop {
        let signal = signals.next().await;
        tracing::info!(signal = signal.word(), "stopped by a signal");
        signalled.set(Some(signal));
        stopped.notify_one();
    }
}

impl ServedMember for Session {
    fn welcome<'a>(
        &'a self,
        client: &'a str,
        version: &'a str,
    ) -> LocalFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let member = self.join(client, version).await?;
            Ok(member.instructions())
        })
    }

    fn tools(&self) -> Vec<&'static ToolSpec> {
        self.member().map(|member| member.membership().tools()).unwrap_or_default()
    }

    fn call<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let member = self.member();
            let member = member.ok_or_else(|| ToolError::reply("you are no member yet"))?;
            member.membership().call(call).await
        })
    }

    fn unread<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Option<String>> {
        Box::pin(async move { self.member()?.membership().mail.take_now(&call.id).await })
    }

    fn answered(&self, call_id: &str, was_written: bool) {
        if let Some(member) = self.member() {
            member.membership().mail.answered(call_id, was_written);
        }
    }
}
