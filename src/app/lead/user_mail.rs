//! The user's own mail: an interactive lead drains and shows it.

use crate::agent::event::{Event, MachineEvent};
use crate::agent::mail_watcher;
use crate::app::context::Context;
use crate::app::own_mailbox::{
    CLOSE_LIMIT, SharedMailbox, close_mailbox, drain_last_mail, take_mailbox,
};
use crate::store::{LifeLock, TeamDir};
use crate::wire::{AgentName, message::Message};
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The mailbox of `user`, unless another process reads it.
pub(super) struct UserMail {
    open: Option<OpenMailbox>,
}

struct OpenMailbox {
    mailbox: SharedMailbox,
    messages: UnboundedReceiver<Message>,
    tasks: [JoinHandle<()>; 2],
    _life: LifeLock,
}

impl UserMail {
    /// Opens the mailbox. If another process reads it, or the disk is full, no mail comes from here.
    pub(super) fn open(context: &Context, team: &TeamDir) -> Self {
        let open = try_open(context, team);
        if open.is_none() {
            tracing::warn!("the user's mail is not shown here: another process reads it");
        }
        Self { open }
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self) -> Option<Message> {
        match self.open.as_mut() {
            Some(open) => open.messages.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Closes the mailbox and returns the last messages.
    pub(super) async fn close(self) -> Vec<Message> {
        let Some(mut open) = self.open else { return Vec::new() };
        for task in &open.tasks {
            task.abort();
        }
        let mut last: Vec<Message> = std::iter::from_fn(|| open.messages.try_recv().ok()).collect();
        last.extend(drain_last_mail(&open.mailbox).mail.into_iter().map(|mail| *mail.message));
        close_mailbox(open.mailbox, CLOSE_LIMIT).await;
        last
    }
}

fn try_open(context: &Context, team: &TeamDir) -> Option<OpenMailbox> {
    let (life, mailbox) = take_mailbox(context, team, &AgentName::user(), "lead").ok()?;
    let (events, notifications) = unbounded_channel();
    // Mail that waits already causes no file event.
    events.send(MachineEvent::Mail.into()).ok()?;
    let (shown, messages) = unbounded_channel();
    let tasks = [
        tokio::task::spawn_local(mail_watcher::watch(Arc::clone(&mailbox), events)),
        tokio::task::spawn_local(drain_when_notified(Arc::clone(&mailbox), notifications, shown)),
    ];
    Some(OpenMailbox { mailbox, messages, tasks, _life: life })
}

async fn drain_when_notified(
    mailbox: SharedMailbox,
    mut notifications: UnboundedReceiver<Event>,
    shown: UnboundedSender<Message>,
) {
    while notifications.recv().await.is_some() {
        let mailbox = Arc::clone(&mailbox);
        let drained = tokio::task::spawn_blocking(move || {
            let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            let drained = mailbox.drain();
            mailbox.mark_taken().and(drained).map_err(|why| why.to_string())
        });
        match drained.await.unwrap_or_else(|why| Err(why.to_string())) {
            Ok(drained) => {
                for mail in drained.mail {
                    if shown.send(*mail.message).is_err() {
                        return;
                    }
                }
            }
            Err(why) => tracing::warn!(%why, "the user's mail cannot be drained"),
        }
    }
}
