//! `team acp`: a lead that an editor drives, over the Agent Client Protocol on standard input and output.
//!
//! [`run`] keeps the connection for the life of the process. [`opening`] starts a lead for the folder that the editor
//! names; [`serve()`] runs its session, with the state in [`session`] and the editor's messages in [`requests`]. One team
//! runs at a time. The end of the input is the end of the lead, as Ctrl-D is at a terminal.
//!
//! *Invariant:* standard output has nothing but messages of the protocol.

mod calls;
mod client;
mod commands;
mod mail;
mod members;
mod opening;
mod prompts;
mod questions;
mod replay;
mod requests;
mod serve;
mod session;

use crate::acp::served::incoming::ClientMessage;
use crate::app::context::Context;
use crate::app::event_loop::{SignalStream, block_on, exit_of};
use crate::error::{Exit, Failure};
use crate::os::program;
use crate::settings::Flags;
use client::Client;
use opening::{Opening, failed};
use serve::{AfterSession, Link, serve};

/// Serves an editor until the end of the input or a signal. Settings and flags that are not understood are the error of
/// the request that opens a session. `waits_for_team` says that a prompt is answered only when the whole team is at rest.
pub(crate) fn run(context: &Context, flags: &Flags, waits_for_team: bool) -> Result<Exit, Failure> {
    context.refuse_inside_agent("acp")?;
    program::name_this_process("lead");
    block_on(async {
        let signals = SignalStream::begin()?;
        let (client, messages) = Client::start()?;
        let mut link = Link { client, messages, signals, waits_for_team };
        let exit = run_sessions(context, flags, &mut link).await;
        link.client.finish().await;
        exit
    })?
}

async fn run_sessions(context: &Context, flags: &Flags, link: &mut Link) -> Result<Exit, Failure> {
    let mut next = None;
    loop {
        let opening = match next.take() {
            Some(opening) => opening,
            None => match wait(context, link).await {
                Ok(opening) => Box::new(opening),
                Err(exit) => return Ok(exit),
            },
        };
        match opening::start(context, flags, &opening).await {
            Err(why) => link.client.answer(&opening.request, Err(failed(&why))),
            Ok(opened) => match Box::pin(serve(context, link, opened, &opening)).await? {
                AfterSession::Closed => {}
                AfterSession::Next(opening) => next = Some(opening),
                AfterSession::Over(exit) => return Ok(exit),
            },
        }
    }
}

/// Waits for a request that opens a session. Returns the exit code at the end of the input and at a signal.
async fn wait(context: &Context, link: &mut Link) -> Result<Opening, Exit> {
    loop {
        let message = tokio::select! {
            message = link.messages.recv() => message.ok_or(Exit::Ok)?,
            signal = link.signals.next() => return Err(exit_of(signal)),
            () = link.client.gone() => return Err(Exit::Ok),
        };
        match message {
            ClientMessage::Request(request) => match Opening::read(&request) {
                Some(Ok(opening)) => return Ok(opening),
                Some(Err(why)) => link.client.answer(&request.id, Err(why)),
                None => {
                    let answer = opening::answer(context, &request).await;
                    link.client.answer(&request.id, answer);
                }
            },
            ClientMessage::Invalid { id, error } => link.client.answer(&id, Err(error)),
            // Without a session nothing was asked, and nothing can be cancelled.
            ClientMessage::Notification { .. }
            | ClientMessage::Answer { .. }
            | ClientMessage::ForeignAnswer => {}
        }
    }
}
