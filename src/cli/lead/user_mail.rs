//! The person's own mail: an interactive lead shows it and takes it in.

use super::super::build_agent::{
    LETTING_GO, fresh_word, last_mail, let_go, open_mailbox, take_name,
};
use super::super::context::Context;
use crate::agent::event::{Event, MachineEvent};
use crate::agent::mail_watcher;
use crate::settings::Flags;
use crate::store::{LifeLock, Mailbox, TeamDir};
use crate::wire::AgentName;
use crate::wire::message::Message;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The mailbox of `user`, if nobody else reads it.
pub(super) struct UserMail {
    open: Option<Open>,
}

struct Open {
    mailbox: Arc<Mutex<Mailbox>>,
    messages: UnboundedReceiver<Message>,
    tasks: [JoinHandle<()>; 2],
    _life: LifeLock,
}

impl UserMail {
    /// Takes the mailbox; without it (somebody else reads it, the disk is full) there is no mail.
    pub(super) fn open(context: &Context, team: &TeamDir) -> Self {
        let open = try_open(context, team);
        if open.is_none() {
            tracing::warn!("the user's mail is not shown here: somebody else reads it");
        }
        Self { open }
    }

    /// The next message; waits for it.
    pub(super) async fn next(&mut self) -> Option<Message> {
        match self.open.as_mut() {
            Some(open) => open.messages.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Gives the mailbox back; what came last is returned.
    pub(super) async fn close(self) -> Vec<Message> {
        let Some(mut open) = self.open else { return Vec::new() };
        for task in &open.tasks {
            task.abort();
        }
        let mut last = Vec::new();
        while let Ok(message) = open.messages.try_recv() {
            last.push(message);
        }
        last.extend(last_mail(&open.mailbox).mail.into_iter().map(|mail| *mail.message));
        let_go(open.mailbox, LETTING_GO).await;
        last
    }
}

fn try_open(context: &Context, team: &TeamDir) -> Option<Open> {
    let name = AgentName::user();
    let life = take_name(team, &name, &fresh_word(), &fresh_word(), "lead").ok()?;
    let rules = context.settings(&Flags::default()).ok()?.rules();
    let mailbox = Arc::new(Mutex::new(open_mailbox(team, &name, &life, rules).ok()?));
    let (events, bell) = unbounded_channel();
    // Mail that waits already is noticed without an event.
    events.send(MachineEvent::Mail.into()).ok()?;
    let (shown, messages) = unbounded_channel();
    let tasks = [
        tokio::task::spawn_local(mail_watcher::watch(Arc::clone(&mailbox), events)),
        tokio::task::spawn_local(take_in(Arc::clone(&mailbox), bell, shown)),
    ];
    Some(Open { mailbox, messages, tasks, _life: life })
}

async fn take_in(
    mailbox: Arc<Mutex<Mailbox>>,
    mut bell: UnboundedReceiver<Event>,
    shown: UnboundedSender<Message>,
) {
    while bell.recv().await.is_some() {
        let mailbox = Arc::clone(&mailbox);
        let drained = tokio::task::spawn_blocking(move || {
            let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            let drained = mailbox.drain();
            mailbox.mark_taken().and(drained)
        });
        match drained.await {
            Ok(Ok(drained)) => {
                for mail in drained.mail {
                    if shown.send(*mail.message).is_err() {
                        return;
                    }
                }
            }
            Ok(Err(why)) => tracing::warn!(%why, "the user's mail cannot be taken in"),
            Err(why) => tracing::warn!(%why, "the user's mail cannot be taken in"),
        }
    }
}
