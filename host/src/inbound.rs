//! The task for mail that comes: appends it, and acknowledges it to its source and to the carrier, in this order.

use crate::carrier::{Carrier, Frame, Reply};
use crate::copies::Transfers;
use crate::offload::offload;
use agent_team::bus::Bus;
use agent_team::relay::{
    Arrived, AttachmentOutcome, Inbound, InboundFrame, KnownPlacements, RelayError,
};
use agent_team::store::TeamDir;
use agent_team::store::relay::HostIdentity;
use agent_team::wire::attachment::Attachment;
use agent_team::wire::carried::{Acknowledgement, HostName, ProgressQuestion, RELAY_PROTOCOL};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The most frames that are appended under one intent.
const MOST_FRAMES: usize = 64;

/// The number of deliveries after which a frame that cannot be appended is left to its source.
const MOST_DELIVERIES: i64 = 6;

/// The most frames of a host at a time that stay because their lines wait for attachments.
const MOST_KEPT: usize = 16;

/// The pause after a failure of the disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An event for the task.
pub(crate) enum InboundEvent {
    /// The values of the carrier are known: mail may be accepted.
    Named,
    /// Frames of other hosts.
    Frames(Vec<Frame>),
    /// A frame of this host: mail for an agent that was on another one when it was sent.
    Own {
        /// The frame.
        body: Vec<u8>,
        /// The way for the acknowledgement.
        reply: oneshot::Sender<Bytes>,
    },
    /// Another host asks for the progress of its links.
    Question {
        /// The host.
        from: HostName,
        /// The question.
        body: Bytes,
        /// The way back.
        reply: Reply,
    },
    /// Lines have waited for an attachment.
    Attachment {
        /// The host that was to give it.
        host: HostName,
        attachment: Attachment,
        /// The outcome of the transfer.
        outcome: AttachmentOutcome,
    },
}

/// The parts of the task.
pub(crate) struct InboundTask {
    pub(crate) carrier: Carrier,
    pub(crate) dir: TeamDir,
    pub(crate) identity: HostIdentity,
    pub(crate) bus: Arc<Bus>,
    pub(crate) placements: KnownPlacements,
    pub(crate) transfers: Transfers,
    /// The way for what it begins itself.
    pub(crate) events: mpsc::WeakUnboundedSender<InboundEvent>,
}

impl InboundTask {
    /// Runs until the channel is closed.
    pub(crate) async fn run(self, mut events: mpsc::UnboundedReceiver<InboundEvent>) {
        let mut inbound = self.open().await;
        let mut early = Vec::new();
        let mut is_named = false;
        while let Some(event) = events.recv().await {
            match event {
                InboundEvent::Named => {
                    is_named = true;
                    inbound = self.deliver(inbound, std::mem::take(&mut early)).await;
                }
                // It is not known yet which host has which name.
                InboundEvent::Frames(frames) if !is_named => early.extend(frames),
                InboundEvent::Own { .. }
                | InboundEvent::Question { .. }
                | InboundEvent::Attachment { .. }
                    if !is_named => {}
                InboundEvent::Frames(mut frames) => {
                    let mut others = Vec::new();
                    while frames.len() < MOST_FRAMES
                        && let Ok(next) = events.try_recv()
                    {
                        match next {
                            InboundEvent::Frames(mut more) => frames.append(&mut more),
                            InboundEvent::Named => {}
                            other @ (InboundEvent::Own { .. }
                            | InboundEvent::Question { .. }
                            | InboundEvent::Attachment { .. }) => others.push(other),
                        }
                    }
                    inbound = self.deliver(inbound, frames).await;
                    for other in others {
                        inbound = self.answer(inbound, other).await;
                    }
                }
                other @ (InboundEvent::Own { .. }
                | InboundEvent::Question { .. }
                | InboundEvent::Attachment { .. }) => inbound = self.answer(inbound, other).await,
            }
        }
    }

    /// Opens the incoming side; tries again as long as the disk refuses.
    async fn open(&self) -> Inbound {
        loop {
            let (dir, identity) = (self.dir.clone(), self.identity.clone());
            let (bus, placements) = (Arc::clone(&self.bus), self.placements.clone());
            match offload(move || Inbound::open(dir, identity, bus, placements)).await {
                Ok(inbound) => return inbound,
                Err(why) => tracing::error!(%why, "mail of other hosts is not accepted"),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    async fn deliver(&self, mut inbound: Inbound, frames: Vec<Frame>) -> Inbound {
        if frames.is_empty() {
            return inbound;
        }
        let bodies: Vec<_> = frames
            .iter()
            .map(|frame| (HostName::parse(&frame.from).ok(), frame.body.clone()))
            .collect();
        let work = move || {
            let frame = |(from, body): &'_ (Option<HostName>, bytes::Bytes)| {
                from.as_ref().map(|from| (from.clone(), body.clone()))
            };
            let known: Vec<_> = bodies.iter().filter_map(frame).collect();
            let frames: Vec<_> =
                known.iter().map(|(from, body)| InboundFrame { from, body }).collect();
            let arrived = inbound.deliver(&frames);
            (inbound, arrived)
        };
        let (inbound, arrived) = offload(work).await;
        match arrived {
            Ok(arrived) => {
                self.confirm(frames, arrived).await;
                inbound
            }
            Err(why) => self.start_anew(inbound, frames, &why).await,
        }
    }

    async fn confirm(&self, frames: Vec<Frame>, arrived: Arrived) {
        self.send_acknowledgements(&arrived.acknowledgements).await;
        arrived.attachments.into_iter().for_each(|(host, it)| self.fetch(host, it));
        let awaits_files = arrived.awaits_files.into_iter().chain(std::iter::repeat(false));
        let later = arrived.later.into_iter().chain(std::iter::repeat(false)).zip(awaits_files);
        let mut kept: BTreeMap<String, usize> = BTreeMap::new();
        for (frame, (later, awaits_files)) in frames.into_iter().zip(later) {
            // A source that is away cannot send it again. One that waits for another reason is left to its source: the frames of
            // one host must not fill the place of all.
            let kept = kept.entry(frame.from.clone()).or_default();
            let is_kept = awaits_files && *kept < MOST_KEPT;
            if later && (is_kept || frame.deliveries() < MOST_DELIVERIES) {
                *kept += usize::from(awaits_files);
                frame.try_again_later().await;
            } else {
                frame.acknowledge().await;
            }
        }
    }

    async fn send_acknowledgements(&self, all: &[(HostName, Acknowledgement)]) {
        for (host, acknowledgement) in all {
            let Ok(body) = serde_json::to_vec(acknowledgement) else { continue };
            // A lost acknowledgement is asked for.
            if let Err(why) = self.carrier.publish_ack(host.as_str(), body.into()).await {
                tracing::info!(%host, %why, "an acknowledgement is not sent");
            }
        }
    }

    /// Begins to fetch an attachment, unless that is done. The outcome is an event.
    fn fetch(&self, host: HostName, attachment: Attachment) {
        let Some(transfer) = self.transfers.begin(&host, &attachment) else { return };
        let (carrier, dir, events) = (self.carrier.clone(), self.dir.clone(), self.events.clone());
        let placements = self.placements.clone();
        tokio::spawn(async move {
            let mut outcome = transfer.run(&carrier, &dir).await;
            if outcome == AttachmentOutcome::Later && placements.is_given_up(&host) {
                outcome = AttachmentOutcome::Missing;
            }
            drop(transfer);
            if let Some(events) = events.upgrade() {
                drop(events.send(InboundEvent::Attachment { host, attachment, outcome }));
            }
        });
    }

    /// Opens the incoming side again: which lines were appended is in doubt.
    async fn start_anew(&self, broken: Inbound, frames: Vec<Frame>, why: &RelayError) -> Inbound {
        tracing::error!(%why, "mail of other hosts could not be appended");
        drop(broken);
        for frame in frames {
            frame.try_again_later().await;
        }
        tokio::time::sleep(RETRY_AFTER).await;
        self.open().await
    }

    async fn answer(&self, mut inbound: Inbound, event: InboundEvent) -> Inbound {
        match event {
            InboundEvent::Attachment { host, attachment, outcome } => {
                let told = inbound.attachment_came((&host, &attachment), outcome);
                self.send_acknowledgements(&told).await;
                inbound
            }
            InboundEvent::Own { body, reply } => self.deliver_own(inbound, body, reply).await,
            InboundEvent::Question { from, body, reply } => {
                self.answer_question(&inbound, &from, &body, reply).await;
                inbound
            }
            InboundEvent::Named | InboundEvent::Frames(_) => inbound,
        }
    }

    /// Appends a frame of this host. Without an answer, it is given again.
    async fn deliver_own(
        &self,
        mut inbound: Inbound,
        body: Vec<u8>,
        reply: oneshot::Sender<Bytes>,
    ) -> Inbound {
        let from = self.identity.host.clone();
        let work = move || {
            let arrived = inbound.deliver(&[InboundFrame { from: &from, body: &body }]);
            (inbound, arrived)
        };
        let (inbound, arrived) = offload(work).await;
        match arrived {
            Ok(arrived) => {
                let acknowledgement = arrived.acknowledgements.first().map(|(_, it)| it);
                if let Some(Ok(body)) = acknowledgement.map(serde_json::to_vec) {
                    drop(reply.send(body.into()));
                }
                inbound
            }
            Err(why) => self.start_anew(inbound, Vec::new(), &why).await,
        }
    }

    async fn answer_question(&self, inbound: &Inbound, from: &HostName, body: &[u8], reply: Reply) {
        let Ok(question) = serde_json::from_slice::<ProgressQuestion>(body) else { return };
        if question.v != RELAY_PROTOCOL {
            tracing::warn!(%from, version = question.v, "a host speaks another version of the protocol");
            return;
        }
        let pending = self.carrier.pending().await.ok();
        let answer = inbound.answer(from, &question, pending);
        let Ok(body) = serde_json::to_vec(&answer) else { return };
        if let Err(why) = reply.answer(body.into()).await {
            tracing::info!(%from, %why, "a question is not answered");
        }
    }
}
