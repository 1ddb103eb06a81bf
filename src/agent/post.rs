//! Noticing mail: file events, with a slow poll as the safety net, and the after-care of claims.

use super::Events;
use super::event::Event;
use crate::os::ready::Ready;
use crate::store::{Mailbox, Settled};
use std::sync::{Arc, Mutex, PoisonError};

/// Sends [`Event::Mail`] whenever there may be mail; never ends by itself.
pub(crate) async fn watch(mailbox: Arc<Mutex<Mailbox>>, events: Events) {
    let (poll, descriptor) = {
        let mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        (mailbox.wake_mode().poll(), mailbox.watch_fd().try_clone_to_owned())
    };
    let wakes = descriptor
        .and_then(|descriptor| Ready::to_read(&descriptor))
        .inspect_err(|why| tracing::warn!(%why, "no file events; mail is polled for"))
        .ok();
    let mut next_settle = poll;
    loop {
        let woken = tokio::select! {
            () = readable(wakes.as_ref()) => true,
            () = tokio::time::sleep(next_settle.min(poll)) => false,
        };
        // While a drain holds the mailbox, the machine looks again afterwards by itself.
        let unread = match mailbox.try_lock() {
            Err(_) => true,
            Ok(mut mailbox) => {
                if woken && let Err(why) = mailbox.acknowledge_events() {
                    tracing::warn!(%why, "file events were lost; the poll goes on");
                }
                let settled = mailbox.settle();
                next_settle = match &settled {
                    Ok(Settled::Again { after }) => *after,
                    Ok(Settled::Done | Settled::Grown) => poll,
                    Err(why) => {
                        tracing::warn!(%why, "a claim could not be let go of");
                        poll
                    }
                };
                matches!(settled, Ok(Settled::Grown)) || mailbox.has_unread()
            }
        };
        if unread && events.send(Event::Mail).is_err() {
            return;
        }
    }
}

async fn readable(descriptor: Option<&Ready>) {
    match descriptor {
        Some(descriptor) if descriptor.woken().await.is_ok() => {}
        Some(_) | None => std::future::pending().await,
    }
}
