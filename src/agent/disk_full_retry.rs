//! A full disk is waited out: what must stand in the transcript before the agent goes on is written
//! again and again until there is room. Nothing is lost, and nobody has to start anything anew.

use super::event::{Ending, Event, StopCause};
use super::progress::Progress;
use super::{Events, Running, note_error};
use crate::bus::{Bus, BusError};
use crate::store::{Drained, Mailbox, StoreError, Transcript};
use crate::wire::activity::Activity;
use crate::wire::roster::Status;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long to wait before a full disk is tried again.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);

impl Running {
    /// Writes to the transcript. While the disk is full the agent does nothing else but listen for
    /// whoever wants it to end, and then uses the reserve.
    pub(super) async fn append_with_retry(
        &mut self,
        write: impl Fn(&mut Transcript) -> Result<(), StoreError>,
    ) -> Result<(), Ending> {
        let mut waited = false;
        loop {
            let written = write(self.mailbox().transcript());
            match written {
                Ok(()) if waited => {
                    self.tell(ROOM_AGAIN);
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(why) if !why.is_full() => return Err(Ending::Broken(why.to_string())),
                Err(why) => {
                    if !std::mem::replace(&mut waited, true) {
                        self.tell(&disk_full(&why));
                        let activity = Some(Activity::DiskFull);
                        let said = self.agent.reporter.publish(Status::Waiting, activity).await;
                        note_error(said);
                    }
                }
            }
            if let Some(stop) = self.wait_for_room().await {
                note_error(self.agent.bus.dir().give_up_reserve());
                let written = write(self.mailbox().transcript());
                return written.map_err(|_| Ending::Stopped(stop));
            }
        }
    }

    /// Sends what the lead waits for.
    pub(super) async fn send_with_retry<T: Send + 'static>(
        &mut self,
        send: impl Fn(&Bus) -> Result<T, BusError> + Clone + Send + 'static,
    ) {
        loop {
            let (bus, send) = (Arc::clone(&self.agent.bus), send.clone());
            let why = match tokio::task::spawn_blocking(move || send(&bus)).await {
                Ok(Ok(_)) => return,
                Ok(Err(why)) if why.is_full() && self.wait_for_room().await.is_none() => continue,
                Ok(Err(why)) => why.to_string(),
                Err(why) => why.to_string(),
            };
            return self.tell(&format!("a report to the lead could not be sent: {why}"));
        }
    }

    /// Lets time pass. Events are put off, but for the wish that this agent ends.
    async fn wait_for_room(&mut self) -> Option<StopCause> {
        let wish = |event: &Event| {
            if let Event::Stop(stop) = event { Some(stop.clone()) } else { None }
        };
        let over = tokio::time::Instant::now() + TRY_AGAIN;
        // Whoever waits is not hung.
        self.beat();
        loop {
            if let Some(stop) = self.put_off.iter().find_map(wish) {
                return Some(stop);
            }
            tokio::select! {
                () = tokio::time::sleep_until(over) => return None,
                Some(event) = self.inbound.recv() => self.put_off.push_back(event),
            }
        }
    }

    fn tell(&self, text: &str) {
        tracing::error!("{text}");
        (self.agent.show)(&Progress::Note(text.into()));
    }
}

/// Takes mail in, however long the disk is full.
pub(super) async fn drain(
    mailbox: Arc<Mutex<Mailbox>>,
    show: Rc<dyn Fn(&Progress)>,
    events: &Events,
) -> Result<Drained, Event> {
    let mut waited = false;
    loop {
        match crate::store::asynchronous::drain(&mailbox).await {
            Err(why) if why.is_full() => {
                if !std::mem::replace(&mut waited, true) {
                    tracing::error!(%why, "the disk is full");
                    show(&Progress::Note(disk_full(&why)));
                    let _gone = events.send(Event::DiskFull);
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
            Err(why @ StoreError::Gone { .. }) => {
                return Err(Event::TeamGone(why.to_string()));
            }
            Err(why) => return Err(Event::DrainFailed(why.to_string())),
            Ok(drained) => {
                if waited {
                    show(&Progress::Note(ROOM_AGAIN.into()));
                }
                return Ok(drained);
            }
        }
    }
}

fn disk_full(why: &StoreError) -> String {
    format!("{}: {why}; waiting for room, nothing is lost", Activity::DiskFull)
}

const ROOM_AGAIN: &str = "there is room on the disk again: going on";
