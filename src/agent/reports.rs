//! What a member writes to the lead by itself: results, notices, that it is idle.

use super::member_host::MemberHost;
use crate::bus::{Bus, BusError, Outgoing, new_id};
use crate::os::failpoint::hit;
use crate::os::memory as machine_memory;
use crate::wire::AgentName;
use crate::wire::message::{Body, IdleReason, Outcome};
use crate::wire::transcript::Report;
use std::sync::Arc;

/// A member's way to write to the lead.
pub(super) struct Reports {
    pub(super) bus: Arc<Bus>,
    pub(super) me: AgentName,
}

impl Reports {
    /// Makes a report of a turn's last text. Its id is recorded before it is sent, so that a second
    /// attempt after a crash is the same message.
    pub(super) fn prepare(&self, text: &str) -> Report {
        Report { id: new_id(&self.me), text: self.bus.cut(text) }
    }

    /// Sends the report of a turn.
    pub(super) async fn send(&self, outcome: Outcome, report: Report, host: &mut MemberHost) {
        let Report { id, text } = report;
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(Body::Result { outcome }, text) };
        self.send_to_lead(outgoing, host).await;
    }

    /// Tells the lead's model something in the program's name.
    pub(super) async fn tell_lead(&self, text: String, host: &mut MemberHost) {
        let id = new_id(&AgentName::system());
        let send = move |bus: &Bus| bus.notify_lead(Body::text(), text.clone(), id.clone());
        self.send_with_retry(send, host).await;
    }

    /// Tells the lead's program that this member is idle.
    pub(super) async fn notify_idle(&self, reason: IdleReason, host: &mut MemberHost) {
        if self.me.is_lead() {
            return;
        }
        self.send_to_lead(Outgoing::of(Body::IdleNotification { reason }, ""), host).await;
        machine_memory::give_back();
        hit("turn.idle");
    }

    async fn send_to_lead(&self, outgoing: Outgoing, host: &mut MemberHost) {
        let me = self.me.clone();
        let send = move |bus: &Bus| bus.send(&me, "lead", outgoing.clone());
        self.send_with_retry(send, host).await;
    }

    /// Sends a message, however long the disk is full; only the wish to end stops the attempts.
    async fn send_with_retry<T: Send + 'static>(
        &self,
        send: impl Fn(&Bus) -> Result<T, BusError> + Clone + Send + 'static,
        host: &mut MemberHost,
    ) {
        loop {
            let (bus, send) = (Arc::clone(&self.bus), send.clone());
            let why = match tokio::task::spawn_blocking(move || send(&bus)).await {
                Ok(Ok(_)) => return,
                Ok(Err(why)) if why.is_full() && !host.wait_for_room().await => continue,
                Ok(Err(why)) => why.to_string(),
                Err(why) => why.to_string(),
            };
            return host.show_error(&format!("a report to the lead could not be sent: {why}"));
        }
    }
}
