//! Notices about control messages that have no valid seal: they are not obeyed, and their senders are told why.

use super::identity::MemberContext;
use crate::bus::Outgoing;
use crate::os::spawn::spawn_local;
use crate::store::asynchronous::offload;
use crate::wire::message::Message;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

pub(super) struct UnsealedMail {
    pub(super) context: Rc<MemberContext>,
    /// The senders that were told. A forged message names one too, so each is told once.
    pub(super) told: BTreeSet<String>,
}

impl UnsealedMail {
    /// Logs the unsealed control messages in the mail, and sends a notice to each sender that they name.
    pub(super) fn note(&mut self, mail: &[Message]) {
        let unsealed = |message: &&Message| message.body.needs_seal() && !message.is_verified();
        for message in mail.iter().filter(unsealed) {
            let (from, kind) = (message.from.clone(), message.body.kind());
            tracing::warn!(from, kind, "control mail without a valid seal was not acted on");
            if !self.told.insert(from.clone()) {
                continue;
            }
            let content = format!(
                "A {kind} that names you as its sender was not acted on: it has no valid seal. Only \
                 the processes of the lead and its teammates, and commands of the user such as `team \
                 stop` and `team approve`, seal such messages (docs/format.md, \"Seals\")."
            );
            let (bus, me) = (Arc::clone(&self.context.bus), self.context.me.name.clone());
            spawn_local(async move {
                let send = move || bus.send(&me, &from, Outgoing::text(content));
                if let Err(why) = offload(send).await {
                    tracing::warn!(%why, "the sender was not told");
                }
            });
        }
    }
}
