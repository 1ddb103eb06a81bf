//! The messages that a member's program sends to the lead: reports, notices and idle notifications.

use super::member_host::MemberHost;
use crate::bus::{Bus, BusError, Outgoing, new_id};
use crate::os::failpoint::hit;
use crate::os::memory as machine_memory;
use crate::os::spawn::spawn_blocking;
use crate::wire::AgentName;
use crate::wire::message::{Body, IdleReason, Outcome};
use crate::wire::transcript::TurnReport;
use std::sync::Arc;

impl MemberHost {
    /// Makes a report of a turn's last text. The caller records its id before it sends the report, so that a
    /// second attempt after a crash is the same message.
    pub(super) fn prepare_report(&self, text: &str) -> TurnReport {
        TurnReport { id: new_id(&self.context.me.name), text: self.context.bus.cut(text) }
    }

    pub(super) async fn send_report(&mut self, outcome: Outcome, report: TurnReport) {
        let TurnReport { id, text } = report;
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(Body::Result { outcome }, text) };
        self.send_to_lead(outgoing).await;
    }

    /// Sends a message from the program to the lead's model.
    pub(super) async fn tell_lead(&mut self, text: String) {
        let id = new_id(&AgentName::system());
        let send = move |bus: &Bus| bus.notify_lead(Body::text(), text.clone(), id.clone());
        self.send_with_retry(send).await;
    }

    /// Notifies the lead's program that this member is idle. A lead sends nothing.
    pub(super) async fn notify_idle(&mut self, reason: IdleReason) {
        if self.context.me.name.is_lead() {
            return;
        }
        self.send_to_lead(Outgoing::of(Body::IdleNotification { reason }, "")).await;
        machine_memory::give_back();
        hit("turn.idle");
    }

    async fn send_to_lead(&mut self, outgoing: Outgoing) {
        let me = self.context.me.name.clone();
        self.send_with_retry(move |bus: &Bus| bus.send(&me, "lead", outgoing.clone())).await;
    }

    /// Sends a message. While the disk is full, it tries again until the member is to end.
    async fn send_with_retry<T: Send + 'static>(
        &mut self,
        send: impl Fn(&Bus) -> Result<T, BusError> + Clone + Send + 'static,
    ) {
        loop {
            let (bus, send) = (Arc::clone(&self.context.bus), send.clone());
            let why = match spawn_blocking(move || send(&bus)).await {
                Ok(Ok(_)) => return,
                Ok(Err(why)) if why.is_full() && !self.wait_for_room().await => continue,
                Ok(Err(why)) => why.to_string(),
                Err(why) => why.to_string(),
            };
            return self.show_error(&format!("a report to the lead could not be sent: {why}"));
        }
    }
}
