//! The user's own mail: an interactive lead drains and shows it.

use crate::agent::event::{Event, MachineEvent};
use crate::agent::mail_watcher;
use crate::app::context::Context;
use crate::app::own_mailbox::{close_mailbox, drain_last_mail, take_mailbox};
use crate::os::spawn::spawn_local;
use crate::store::asynchronous::{SharedMailbox, with_mailbox};
use crate::store::{Drained, LifeLock, Mailbox, TeamDir};
use crate::wire::{AgentName, message::Message};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

pub(super) struct UserMail {
    mailbox: SharedMailbox,
    pub(super) messages: UnboundedReceiver<Message>,
    tasks: [JoinHandle<()>; 2],
    _life: LifeLock,
}

impl UserMail {
    /// Opens the mailbox; `None` if that fails, for example because another process reads it or the disk is full.
    pub(super) async fn open(context: &Context, team: &TeamDir) -> Option<Self> {
        let taken = take_mailbox(context, team, &AgentName::user(), "lead").await;
        let Ok((life, mailbox)) = taken else {
            tracing::warn!("the user's mail is not shown here: another process reads it");
            return None;
        };
        let (events, notifications) = unbounded_channel();
        // Mail that is already there causes no file event.
        events.send(MachineEvent::Mail.into()).ok()?;
        let (shown, messages) = unbounded_channel();
        let drain = drain_when_notified(Arc::clone(&mailbox), notifications, shown);
        let watch = mail_watcher::watch(Arc::clone(&mailbox), events, Rc::default());
        let tasks = [spawn_local(watch), spawn_local(drain)];
        Some(Self { mailbox, messages, tasks, _life: life })
    }

    pub(super) async fn close(mut self) -> Vec<Message> {
        self.tasks.iter().for_each(JoinHandle::abort);
        let mut last: Vec<Message> = std::iter::from_fn(|| self.messages.try_recv().ok()).collect();
        last.extend(drain_last_mail(&self.mailbox).await);
        close_mailbox(self.mailbox).await;
        last
    }
}

async fn drain_when_notified(
    mailbox: SharedMailbox,
    mut notifications: UnboundedReceiver<Event>,
    shown: UnboundedSender<Message>,
) {
    while notifications.recv().await.is_some() {
        let drain = |mailbox: &mut Mailbox| {
            let drained = mailbox.drain();
            // Mail without the mark is shown all the same, and still counts as unread.
            if let Err(why) = mailbox.mark_taken() {
                tracing::warn!(%why, "the user's mail could not be marked as shown");
            }
            drained
        };
        let drained = with_mailbox(&mailbox, drain).await.unwrap_or_else(|why| {
            tracing::warn!(%why, "the user's mail cannot be drained");
            Drained::default()
        });
        if drained.mail.into_iter().any(|mail| shown.send(*mail.message).is_err()) {
            return;
        }
    }
}
