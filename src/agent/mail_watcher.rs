//! Watches for mail by file events, with a slow poll as a fallback, and settles claims.

use super::event::{Events, MachineEvent};
use super::heartbeat::until;
use crate::os::aligned_interval::AlignedInterval;
use crate::os::async_fd::ReadableFd;
use crate::os::memory::RestWatch;
use crate::store::{Mailbox, SettleResult};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The time after the start and after each event in which an agent comes to rest.
const REST_CHECK: Duration = Duration::from_secs(2);

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
            .inspect_err(|why| tracing::warn!(%why, "no file events; polling for mail"))
            .ok();
        let poll = mailbox.poll();
        Self { wakes, poll, ticks: AlignedInterval::every(poll).ok() }
    }

    /// Returns the time to the next poll if there is no interval timer. A timer of the event loop costs more.
    fn at_the_latest(&self) -> Option<Duration> {
        self.ticks.is_none().then_some(self.poll)
    }
}

/// Sends [`MachineEvent::Mail`] whenever there may be mail, until the channel is closed. `woken` is notified at each wake-up,
/// because the mailbox watches the timers of its owner as well.
pub(crate) async fn watch(mailbox: Arc<Mutex<Mailbox>>, events: Events, woken: Rc<Notify>) {
    let mut sources = MailSource::of(&mailbox.lock().unwrap_or_else(PoisonError::into_inner));
    let (mut pause, mut rest) = (Some(REST_CHECK), RestWatch::new());
    loop {
        let has_event = tokio::select! {
            () = wake_up(sources.wakes.as_ref().map(ReadableFd::woken)) => true,
            () = wake_up(sources.ticks.as_ref().map(AlignedInterval::next)) => false,
            () = until(pause.and_then(|pause| Instant::now().checked_add(pause))) => false,
        };
        woken.notify_one();
        // A mailbox that is locked is being drained; the machine drains again afterwards.
        let (unread, settled) = match mailbox.try_lock() {
            Err(_) => (true, None),
            Ok(mut mailbox) => {
                if has_event && let Err(why) = mailbox.acknowledge_events() {
                    tracing::warn!(%why, "file events were lost; polling continues");
                }
                let settled = mailbox.settle();
                if mailbox.poll() != sources.poll {
                    sources = MailSource::of(&mailbox);
                }
                let unread = matches!(settled, Ok(SettleResult::Grown)) || mailbox.has_unread();
                (unread, Some(settled))
            }
        };
        if unread && events.send(MachineEvent::Mail.into()).is_err() {
            return;
        }
        // The other tasks that were woken use memory first.
        tokio::task::yield_now().await;
        let is_rest_near = !has_event && rest.look();
        pause = match settled {
            None => pause,
            Some(Ok(SettleResult::Again { after })) => Some(after.min(sources.poll)),
            Some(Ok(SettleResult::Done | SettleResult::Grown)) if has_event || is_rest_near => {
                Some(REST_CHECK.min(sources.poll))
            }
            Some(Ok(SettleResult::Done | SettleResult::Grown)) => sources.at_the_latest(),
            Some(Err(why)) => {
                tracing::warn!(%why, "a claim could not be settled");
                sources.at_the_latest()
            }
        };
    }
}

/// Waits for a source of wake-ups, or forever if there is none or it fails.
async fn wake_up<E>(source: Option<impl Future<Output = Result<(), E>>>) {
    if let Some(source) = source
        && source.await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
