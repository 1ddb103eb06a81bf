//! Sends a member the reminders of its timers.
//!
//! It waits for the wall clock and for the wake-ups of the mail watcher, which watches the timers as well: a member without a
//! timer is woken no more often than before. At each wake-up it compares the stamp of the file, and reads it if that changed.

use crate::bus::Bus;
use crate::os::wall_timer::WallTimer;
use crate::os::{Clock, SystemClock};
use crate::store::StoreError;
use crate::store::asynchronous::offload;
use crate::store::timers::current_stamp;
use crate::timers::{TimerError, send_due};
use crate::wire::{AgentName, WallTime};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The pause after a reminder that could not be sent, for example because the inbox or the disk is full.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The longest wait for a time without a timer of the kernel.
const WITHOUT_TIMER: Duration = Duration::from_secs(1);

/// Sends the reminders of a member until the future is dropped. `woken` is notified when the timers may have changed.
pub(crate) async fn send_reminders(bus: Arc<Bus>, me: AgentName, woken: Rc<Notify>) {
    let mut known = None;
    let mut next: Option<WallTime> = None;
    loop {
        // The stamp is taken before the file is read, so that no change is missed.
        let stamp = current_stamp(bus.dir(), &me);
        let is_due = next.is_some_and(|due| due <= SystemClock.now());
        if known != Some(stamp) || is_due {
            known = Some(stamp);
            let (bus, me) = (Arc::clone(&bus), me.clone());
            next = match offload(move || send_due(&bus, &me, SystemClock.now())).await {
                Ok(due) => due,
                Err(why) => after_failure(&why),
            };
        }
        tokio::select! {
            () = woken.notified() => {}
            () = reached(next) => {}
        }
    }
}

/// Returns the time of the next attempt. A file that cannot be read is tried again when it has changed.
fn after_failure(why: &TimerError) -> Option<WallTime> {
    tracing::warn!(%why, "the reminders that are due were not sent");
    let is_of_moment = |why: &StoreError| why.is_full() || why.is_lock_timeout();
    let is_temporary =
        matches!(why, TimerError::NotSent(_)) || why.store_error().is_some_and(is_of_moment);
    is_temporary.then(|| SystemClock.now() + RETRY_AFTER)
}

/// Waits until the wall clock has reached a time, or forever without one.
async fn reached(time: Option<WallTime>) {
    let Some(time) = time else { return std::future::pending().await };
    let expired = match WallTimer::at(time) {
        Ok(timer) => timer.expired().await,
        Err(why) => Err(why),
    };
    if let Err(why) = expired {
        tracing::warn!(%why, "no timer of the kernel; the clock is read again and again");
        tokio::time::sleep(WITHOUT_TIMER).await;
    }
}
