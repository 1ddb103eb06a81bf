//! Noticing mail: file events, with a slow poll as the safety net, and the after-care of claims.

use super::Events;
use super::event::Event;
use crate::os::aligned_interval::AlignedInterval;
use crate::os::async_fd::ReadableFd;
use crate::store::{Mailbox, SettleResult};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What mail is noticed by.
struct MailSource {
    wakes: Option<ReadableFd>,
    poll: Duration,
    ticks: Option<AlignedInterval>,
}

impl MailSource {
    fn of(mailbox: &Mailbox) -> Self {
        let wakes = mailbox
            .watch_fd()
            .try_clone_to_owned()
            .and_then(|descriptor| ReadableFd::to_read(&descriptor))
            .inspect_err(|why| tracing::warn!(%why, "no file events; mail is polled for"))
            .ok();
        let poll = mailbox.poll();
        Self { wakes, poll, ticks: AlignedInterval::every(poll).ok() }
    }

    /// Without ticks, a timer of the event loop does; each of its wakes costs more.
    fn at_the_latest(&self) -> Option<Duration> {
        self.ticks.is_none().then_some(self.poll)
    }
}

/// Sends [`Event::Mail`] whenever there may be mail; never ends by itself.
pub(crate) async fn watch(mailbox: Arc<Mutex<Mailbox>>, events: Events) {
    let mut ears = MailSource::of(&mailbox.lock().unwrap_or_else(PoisonError::into_inner));
    let mut pause = ears.at_the_latest();
    loop {
        let woken = tokio::select! {
            () = readable(ears.wakes.as_ref()) => true,
            () = tick(ears.ticks.as_ref()) => false,
            () = after(pause) => false,
        };
        // While a drain holds the mailbox, the machine looks again afterwards by itself.
        let unread = match mailbox.try_lock() {
            Err(_) => true,
            Ok(mut mailbox) => {
                if woken && let Err(why) = mailbox.acknowledge_events() {
                    tracing::warn!(%why, "file events were lost; the poll goes on");
                }
                let settled = mailbox.settle();
                if mailbox.poll() != ears.poll {
                    ears = MailSource::of(&mailbox);
                }
                pause = match &settled {
                    Ok(SettleResult::Again { after }) => Some((*after).min(ears.poll)),
                    Ok(SettleResult::Done | SettleResult::Grown) => ears.at_the_latest(),
                    Err(why) => {
                        tracing::warn!(%why, "a claim could not be let go of");
                        ears.at_the_latest()
                    }
                };
                matches!(settled, Ok(SettleResult::Grown)) || mailbox.has_unread()
            }
        };
        if unread && events.send(Event::Mail).is_err() {
            return;
        }
    }
}

async fn after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

async fn tick(ticks: Option<&AlignedInterval>) {
    match ticks {
        Some(ticks) if ticks.next().await.is_ok() => {}
        Some(_) | None => std::future::pending().await,
    }
}

async fn readable(descriptor: Option<&ReadableFd>) {
    match descriptor {
        Some(descriptor) if descriptor.woken().await.is_ok() => {}
        Some(_) | None => std::future::pending().await,
    }
}
