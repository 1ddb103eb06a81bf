//! The events of a member, in order; while a full disk is waited out they are put off.

use super::event::{Event, MachineEvent, StopCause};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// The receiving end of a member's events.
pub(super) struct Inbound {
    receiver: UnboundedReceiver<Event>,
    /// Events that came while a full disk was waited out, oldest first.
    put_off: VecDeque<Event>,
}

impl Inbound {
    /// Wraps the receiver.
    pub(super) fn new(receiver: UnboundedReceiver<Event>) -> Self {
        Self { receiver, put_off: VecDeque::new() }
    }

    /// Waits for the next event; events that were put off come first. `None` when no sender is left.
    /// Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Option<Event> {
        match self.put_off.pop_front() {
            Some(event) => Some(event),
            None => self.receiver.recv().await,
        }
    }

    /// Puts events off until the wish to end comes, or for `pause` at most. The wish stays in the queue.
    pub(super) async fn wait_for_stop(&mut self, pause: Duration) -> Option<StopCause> {
        let over = tokio::time::Instant::now() + pause;
        loop {
            if let Some(cause) = self.stop_wish() {
                return Some(cause);
            }
            tokio::select! {
                () = tokio::time::sleep_until(over) => return None,
                Some(event) = self.receiver.recv() => self.put_off.push_back(event),
            }
        }
    }

    /// The wish to end, if one was put off.
    pub(super) fn stop_wish(&self) -> Option<StopCause> {
        self.put_off.iter().find_map(|event| match event {
            Event::Machine(MachineEvent::Stop(cause)) => Some(cause.clone()),
            Event::Machine(_)
            | Event::Approval(_)
            | Event::Drained(_)
            | Event::WorkEnded(..)
            | Event::IdleHookEnded(..) => None,
        })
    }
}
