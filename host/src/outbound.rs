//! The task for mail that leaves: takes it in, publishes it, and keeps it until the home of its recipient has it.

use crate::carrier::{Carrier, CarrierError};
use crate::inbound::InboundEvent;
use crate::offload::offload;
use agent_team::relay::{
    ChangedInboxes, Outbound, OutboundFrame, Recipient, RelayError, WaitingLines,
};
use agent_team::store::relay::HostIdentity;
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Acknowledgement, HostName, ProgressQuestion, RELAY_PROTOCOL};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::{self, Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

/// The inboxes in which there may be mail, as file events tell.
#[derive(Default)]
pub(crate) struct MailEvents {
    changed: Mutex<ChangedInboxes>,
    wake: Notify,
}

impl MailEvents {
    /// Wakes the task for mail that leaves.
    pub(crate) fn tell(&self, changed: ChangedInboxes) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).add(changed);
        self.wake.notify_one();
    }

    fn take(&self) -> ChangedInboxes {
        mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The inboxes that are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// Nothing.
    Not,
    /// Those in which something may have changed.
    Changed,
    /// All.
    All,
}

/// The most frames for one host whose publication is not confirmed.
const MOST_IN_FLIGHT: usize = 8;

/// The time without progress after which the host of the recipients is asked.
const ASK_AFTER: Duration = Duration::from_millis(1500);

/// The same for the second question, after an answer by which the carrier has nothing for the host.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The pause after a publication that failed.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The longest such pause while the server has no room. What other hosts take is no event on this one.
const LONGEST_WHEN_FULL: Duration = Duration::from_secs(5);

/// The same for a frame that is larger than the server takes, and for a host without a known key: a person has to do something.
const LONG_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The period in which mail is looked for without an event.
const POLL: Duration = Duration::from_secs(5);

/// An event for the task.
pub(crate) enum OutboundEvent {
    /// The name of this host is its own: mail may leave.
    Named,
    /// The members of other hosts.
    Recipients(BTreeMap<AgentName, Recipient>),
    /// An acknowledgement.
    Acknowledged {
        /// The host that has the mail.
        by: HostName,
        /// The acknowledgement.
        body: bytes::Bytes,
    },
    /// A host is heard again, or the carrier is connected again.
    Heard(Option<HostName>),
    /// The process ends: what was acknowledged is noted.
    End,
}

/// The state of the frames for one host.
struct Lane {
    in_flight: usize,
    /// A publication failed: all is sent again, once nothing is in flight.
    is_broken: bool,
    not_before: Option<Instant>,
    /// The last time at which an acknowledgement came, or a frame was published after a pause.
    moved: Instant,
    /// The time after `moved` at which the host is asked.
    ask_after: Duration,
    /// The number of answers in a row by which the carrier has nothing for the host, while lines wait.
    empty_answers: u32,
    is_asked: bool,
    /// The last failure of a publication, until its host is heard or has acknowledged something.
    failure: Option<PublishFailure>,
}

/// A failure that may come again and again.
struct PublishFailure {
    kind: Discriminant<CarrierError>,
    /// The pause after it.
    pause: Duration,
}

impl Lane {
    fn new() -> Self {
        Self {
            in_flight: 0,
            is_broken: false,
            not_before: None,
            moved: Instant::now(),
            ask_after: ASK_AFTER,
            empty_answers: 0,
            is_asked: false,
            failure: None,
        }
    }

    /// Notes that a publication has failed. The pause before the next one doubles while the failure lasts; returns whether it
    /// is another one than before. Those of frames that were in flight together count once.
    fn fail(&mut self, error: &CarrierError) -> bool {
        let (kind, longest) = (discriminant(error), longest_pause(error));
        let before = self.failure.take().filter(|known| known.kind == kind);
        let is_new = before.is_none();
        let pause = match before {
            None => RETRY_AFTER,
            Some(known) if self.is_broken => known.pause,
            Some(known) => (known.pause * 2).min(longest),
        };
        self.is_broken = true;
        self.not_before = self.not_before.max(Some(Instant::now() + pause));
        self.failure = Some(PublishFailure { kind, pause });
        is_new
    }

    /// Whether nothing is on its way whose end would tell of progress.
    fn may_ask(&self) -> bool {
        self.in_flight == 0 && !self.is_asked && !self.is_broken
    }
}

/// Returns the longest pause after a failure that lasts.
fn longest_pause(error: &CarrierError) -> Duration {
    match error {
        CarrierError::StreamFull(_) => LONGEST_WHEN_FULL,
        CarrierError::TooLarge { .. } | CarrierError::KeyUnknown(_) => LONG_RETRY_AFTER,
        CarrierError::Name(_)
        | CarrierError::Address(_)
        | CarrierError::Disconnected
        | CarrierError::Timeout { .. }
        | CarrierError::StorageMissing
        | CarrierError::HostAway(_)
        | CarrierError::Untrusted(..)
        | CarrierError::AlreadyExists(_)
        | CarrierError::RevisionChanged(_)
        | CarrierError::Refused { .. } => RETRY_AFTER,
    }
}

/// The end of a publication or of a question.
enum Finished {
    Published(HostName, Result<(), CarrierError>),
    /// A frame for this host itself, with the acknowledgement.
    Delivered(Option<bytes::Bytes>),
    Asked(HostName, Result<bytes::Bytes, CarrierError>),
}

/// The parts of the task.
pub(crate) struct OutboundTask {
    carrier: Carrier,
    identity: HostIdentity,
    /// The way for frames for this host itself.
    inbound: mpsc::UnboundedSender<InboundEvent>,
    /// `None` only while another thread works with it.
    outbound: Option<Outbound>,
    lanes: BTreeMap<HostName, Lane>,
    waiting: WaitingLines,
    work: JoinSet<Finished>,
    is_named: bool,
    /// The names that were reported as being on no host.
    reported: BTreeSet<AgentName>,
    /// The time at which late writers are looked for.
    look_again: Option<Instant>,
    /// The time at which all inboxes are looked at.
    look_at_all: Instant,
}

impl OutboundTask {
    /// Creates the task.
    pub(crate) fn new(
        carrier: Carrier,
        identity: HostIdentity,
        inbound: mpsc::UnboundedSender<InboundEvent>,
        outbound: Outbound,
    ) -> Self {
        let waiting = outbound.waiting_lines();
        Self {
            carrier,
            identity,
            inbound,
            outbound: Some(outbound),
            lanes: BTreeMap::new(),
            waiting,
            work: JoinSet::new(),
            is_named: false,
            reported: BTreeSet::new(),
            look_again: None,
            look_at_all: Instant::now(),
        }
    }

    /// Runs until it is told to end, or the channel is closed. `mail` is notified when mail may have come into an inbox.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<OutboundEvent>,
        mail: Arc<MailEvents>,
    ) {
        loop {
            let pause = self.pause();
            let mut look = Look::Not;
            tokio::select! {
                event = events.recv() => {
                    let mut next = event;
                    loop {
                        match next {
                            None | Some(OutboundEvent::End) => return self.end().await,
                            Some(event) => look = look.max(self.handle(event).await),
                        }
                        // All that is there is handled before the next look at the inboxes.
                        match events.try_recv() {
                            Ok(event) => next = Some(event),
                            Err(_) => break,
                        }
                    }
                }
                Some(finished) = self.work.join_next(), if !self.work.is_empty() => {
                    if let Ok(finished) = finished {
                        self.finish(finished).await;
                    }
                }
                () = mail.wake.notified() => look = Look::Changed,
                () = tokio::time::sleep(pause) => look = Look::Changed,
            }
            if look != Look::Not {
                let is_due = look == Look::All || self.look_at_all <= Instant::now();
                self.take_in(if is_due { ChangedInboxes::Any } else { mail.take() }).await;
            }
            self.publish().await;
            self.ask();
        }
    }

    /// Returns the time until something is to be done without an event.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let again = self.look_again.map(until);
        // Without a connection nothing is sent; a new one is an event.
        let is_connected = self.is_named && self.carrier.is_connected();
        let lanes = self.lanes.iter().filter(|(host, _)| is_connected && self.has_waiting(host));
        let lanes = lanes.filter_map(|(_, lane)| {
            let retry = lane.not_before.filter(|at| *at > now).map(until);
            let ask = lane.may_ask().then(|| until(lane.moved + lane.ask_after));
            retry.into_iter().chain(ask).min()
        });
        lanes.chain(again).min().unwrap_or(POLL).clamp(Duration::from_millis(1), POLL)
    }

    fn has_waiting(&self, host: &HostName) -> bool {
        self.waiting.sum(host) > 0
    }

    /// Handles an event; returns which inboxes are to be looked at.
    async fn handle(&mut self, event: OutboundEvent) -> Look {
        match event {
            OutboundEvent::Named => {
                self.is_named = true;
                Look::Changed
            }
            OutboundEvent::Recipients(recipients) => {
                let set = move |outbound: &mut Outbound| {
                    let set = outbound.set_recipients(recipients);
                    (set, outbound.orphaned())
                };
                let (set, orphaned) = self.with_outbound(set).await;
                if let Err(why) = set {
                    tracing::warn!(%why, "not all mail for other hosts can be taken in");
                }
                self.report(orphaned.unwrap_or_default());
                Look::Changed
            }
            OutboundEvent::Acknowledged { by, body } => {
                self.acknowledged(by, &body).await;
                Look::Not
            }
            OutboundEvent::Heard(host) => {
                let heard = |known: &HostName| host.as_ref().is_none_or(|host| host == known);
                for (_, lane) in self.lanes.iter_mut().filter(|(known, _)| heard(known)) {
                    // It is asked at once.
                    lane.ask_after = Duration::ZERO;
                    (lane.not_before, lane.failure) = (None, None);
                    lane.is_asked = false;
                }
                Look::Not
            }
            OutboundEvent::End => Look::Not,
        }
    }

    /// Reports mail that an earlier process has left for members that are on no host any more.
    fn report(&mut self, orphaned: Vec<AgentName>) {
        for name in orphaned {
            if self.reported.insert(name.clone()) {
                tracing::warn!(%name, "mail waits for a member that is on no host: look into its outbox");
            }
        }
    }

    async fn acknowledged(&mut self, by: HostName, body: &[u8]) {
        let acknowledgement: Acknowledgement = match serde_json::from_slice(body) {
            Ok(acknowledgement) => acknowledgement,
            Err(why) => {
                tracing::warn!(%by, %why, "what came is no acknowledgement");
                return;
            }
        };
        if acknowledgement.v != RELAY_PROTOCOL {
            tracing::warn!(%by, version = acknowledgement.v, "a host speaks another version of the protocol");
            return;
        }
        let host = by.clone();
        let work = move |outbound: &mut Outbound| {
            let before = outbound.waiting_for(&host);
            let noted = outbound.acknowledged(&host, &acknowledgement);
            (before, outbound.waiting_for(&host), noted)
        };
        let (before, after, noted) = self.with_outbound(work).await;
        if let Err(why) = noted {
            tracing::warn!(%by, %why, "an acknowledgement is not noted");
        }
        if after != before {
            let lane = self.lanes.entry(by).or_insert_with(Lane::new);
            (lane.moved, lane.empty_answers) = (Instant::now(), 0);
            if lane.failure.take().is_some() {
                // There may be room at the server now.
                lane.not_before = None;
            }
        }
    }

    async fn take_in(&mut self, changed: ChangedInboxes) {
        let is_any = changed == ChangedInboxes::Any;
        let work = move |outbound: &mut Outbound| match changed {
            ChangedInboxes::Of(names) => outbound.take_in_for(&names),
            ChangedInboxes::Any => outbound.take_in(),
        };
        let taken_in = self.with_outbound(work).await;
        if is_any {
            self.look_at_all = Instant::now() + POLL;
        }
        self.look_again = match taken_in {
            Ok(taken_in) => taken_in.again.map(|after| Instant::now() + after),
            Err(_) => {
                // The inboxes that were not looked at have had their events.
                self.look_at_all = self.look_at_all.min(Instant::now() + RETRY_AFTER);
                Some(Instant::now() + RETRY_AFTER)
            }
        };
    }

    /// Publishes what is not published yet, a few frames a host.
    async fn publish(&mut self) {
        if !self.is_named || !self.carrier.is_connected() {
            return;
        }
        self.send_broken_again().await;
        let now = Instant::now();
        let mut rooms = Vec::new();
        for host in self.waiting.ready_hosts() {
            let lane = self.lanes.entry(host.clone()).or_insert_with(Lane::new);
            let is_early = lane.not_before.is_some_and(|at| at > now);
            let room = MOST_IN_FLIGHT.saturating_sub(lane.in_flight);
            if !lane.is_broken && !is_early && room > 0 {
                rooms.push((host, room));
            }
        }
        if rooms.is_empty() {
            return;
        }
        let frames = move |outbound: &mut Outbound| {
            let of_host = |(host, room)| {
                let frames = next_frames(outbound, &host, room);
                (host, frames)
            };
            rooms.into_iter().map(of_host).collect::<Vec<_>>()
        };
        for (host, frames) in self.with_outbound(frames).await {
            let frames = match frames {
                Ok(frames) => frames,
                Err(why) => {
                    tracing::warn!(%host, %why, "mail cannot be read from the outbox");
                    continue;
                }
            };
            let Some(lane) = self.lanes.get_mut(&host) else { continue };
            lane.in_flight += frames.len();
            for frame in frames {
                if host == self.identity.host {
                    let (reply, acknowledged) = oneshot::channel();
                    drop(self.inbound.send(InboundEvent::Own { body: frame.body, reply }));
                    self.work.spawn(async { Finished::Delivered(acknowledged.await.ok()) });
                    continue;
                }
                let (carrier, host) = (self.carrier.clone(), host.clone());
                self.work.spawn(async move {
                    let published =
                        carrier.publish_frame(host.as_str(), &frame.id, frame.body.into()).await;
                    Finished::Published(host, published)
                });
            }
        }
    }

    /// Makes the lines of hosts to which a publication has failed ready to be sent again, once nothing is in flight.
    async fn send_broken_again(&mut self) {
        let is_broken = |(_, lane): &(&HostName, &mut Lane)| lane.is_broken && lane.in_flight == 0;
        let mut broken = Vec::new();
        for (host, lane) in self.lanes.iter_mut().filter(is_broken) {
            lane.is_broken = false;
            broken.push(host.clone());
        }
        if !broken.is_empty() {
            let again = move |outbound: &mut Outbound| {
                for host in &broken {
                    outbound.send_again(host);
                }
            };
            self.with_outbound(again).await;
        }
    }

    /// Asks the hosts whose acknowledgements do not come.
    fn ask(&mut self) {
        if !self.is_named || !self.carrier.is_connected() {
            return;
        }
        let question = ProgressQuestion { v: RELAY_PROTOCOL, epoch: self.identity.epoch.clone() };
        let Ok(body) = serde_json::to_vec(&question) else { return };
        for (host, lane) in &mut self.lanes {
            let is_waiting = self.waiting.sum(host) > 0;
            let is_own = *host == self.identity.host;
            if is_own || !is_waiting || !lane.may_ask() || lane.moved.elapsed() < lane.ask_after {
                continue;
            }
            lane.is_asked = true;
            let (carrier, host, body) = (self.carrier.clone(), host.clone(), body.clone());
            self.work.spawn(async move {
                let answer = carrier.request_sync(host.as_str(), body.into()).await;
                Finished::Asked(host, answer)
            });
        }
    }

    async fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Published(host, published) => {
                let lane = self.lanes.entry(host.clone()).or_insert_with(Lane::new);
                lane.in_flight = lane.in_flight.saturating_sub(1);
                lane.moved = Instant::now();
                if let Err(why) = published
                    && lane.fail(&why)
                {
                    tracing::info!(%host, %why, "a frame is not published");
                }
            }
            Finished::Delivered(acknowledgement) => {
                let host = self.identity.host.clone();
                if let Some(body) = acknowledgement {
                    self.acknowledged(host.clone(), &body).await;
                }
                let is_waiting = self.has_waiting(&host);
                let lane = self.lanes.entry(host).or_insert_with(Lane::new);
                lane.in_flight = lane.in_flight.saturating_sub(1);
                if is_waiting && lane.in_flight == 0 {
                    // There was no room in an inbox.
                    lane.is_broken = true;
                    lane.not_before = Some(Instant::now() + RETRY_AFTER);
                }
            }
            Finished::Asked(host, answer) => self.answered(host, answer).await,
        }
    }

    async fn answered(&mut self, host: HostName, answer: Result<bytes::Bytes, CarrierError>) {
        let body = match answer {
            Ok(body) => body,
            Err(why) => {
                let has_no_key = matches!(why, CarrierError::KeyUnknown(_));
                let lane = self.lanes.entry(host.clone()).or_insert_with(Lane::new);
                let pause = if has_no_key { LONG_RETRY_AFTER } else { ASK_AFTER };
                // A host that was removed never says it: it is told once.
                if !has_no_key || lane.ask_after != pause {
                    tracing::info!(%host, %why, "a host does not say how far its mail has come");
                }
                (lane.moved, lane.ask_after) = (Instant::now(), pause);
                // The next sign of life asks again; a lost answer is asked for after the usual time.
                lane.is_asked = matches!(why, CarrierError::HostAway(_));
                return;
            }
        };
        let pending = serde_json::from_slice::<Acknowledgement>(&body)
            .ok()
            .and_then(|acknowledgement| acknowledgement.pending);
        self.acknowledged(host.clone(), &body).await;
        let lane = self.lanes.entry(host).or_insert_with(Lane::new);
        (lane.is_asked, lane.moved) = (false, Instant::now());
        lane.empty_answers = if pending == Some(0) { lane.empty_answers + 1 } else { 0 };
        // Once may be a frame on its way; twice, the carrier has lost it.
        if lane.empty_answers >= 2 {
            lane.empty_answers = 0;
            lane.is_broken = true;
        }
        lane.ask_after = if lane.empty_answers == 1 { ASK_AGAIN_AFTER } else { ASK_AFTER };
    }

    async fn end(mut self) {
        self.work.abort_all();
        if let Err(why) = self.with_outbound(Outbound::compact_all).await {
            tracing::warn!(%why, "acknowledged mail will be sent again");
        }
    }

    /// Runs work on the outbox files on another thread.
    async fn with_outbound<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Outbound) -> R + Send + 'static,
    ) -> R {
        let Some(mut outbound) = self.outbound.take() else {
            // Each call puts it back, and no two calls overlap.
            return std::future::pending().await;
        };
        let (outbound, done) = offload(move || {
            let done = work(&mut outbound);
            (outbound, done)
        })
        .await;
        self.outbound = Some(outbound);
        done
    }
}

/// Returns the next frames for a host, at most `most`.
fn next_frames(
    outbound: &mut Outbound,
    host: &HostName,
    most: usize,
) -> Result<Vec<OutboundFrame>, RelayError> {
    let mut frames = Vec::new();
    while frames.len() < most
        && let Some(frame) = outbound.next_frame(host)?
    {
        frames.push(frame);
    }
    Ok(frames)
}
