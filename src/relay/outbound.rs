//! The mail of this host for members of other hosts: from their local inboxes into outboxes, and from there into frames.

use super::RelayError;
use super::link::{Link, OpenMailbox, Recipient, open_mailbox, outbox_of, record_of, take_name};
use super::placements::KnownPlacements;
use crate::bus::{Bus, Outgoing};
use crate::os::usage;
use crate::store::relay::{HostIdentity, Outbox, outboxes};
use crate::store::{MailNotice, SettleResult, SharedClock, TeamDir};
use crate::wire::AgentName;
use crate::wire::carried::{
    Acknowledgement, FRAME_BYTES, FRAME_LINES, Frame, FrameHead, HostName, RELAY_PROTOCOL,
};
use crate::wire::message::Body;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most unacknowledged lines of an outbox. Beyond it, mail waits in the inbox, whose senders are refused when it is full.
const MOST_WAITING: u64 = 50_000;

/// The most bytes of the unacknowledged lines of an outbox.
const MOST_WAITING_BYTES: u64 = 64 * 1024 * 1024;

/// The time without mail after which a mailbox is closed. Its recipient's name stays taken.
const KEEP_OPEN: Duration = Duration::from_secs(10);

/// The pause before the next look at mail for which no mailbox may be opened yet.
const ROOM_AFTER: Duration = Duration::from_millis(100);

/// The share of the descriptors of a process that open mailboxes may have, about eight each.
const SHARE_OF_DESCRIPTORS: u64 = 32;

/// The most mailboxes that are open at a time, whatever the limit of descriptors.
const MOST_OPEN: u64 = 512;

/// The result of one look at the local inboxes of other hosts' members.
#[derive(Debug, Default)]
pub struct TakenIn {
    /// The number of messages that were taken in.
    pub count: usize,
    /// The time after which to look again, for late writers.
    pub again: Option<Duration>,
}

impl TakenIn {
    fn look_within(&mut self, time: Duration) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// A frame to be published.
#[derive(Debug)]
pub struct OutboundFrame {
    /// The host to which it goes.
    pub host: HostName,
    /// An id that a repeated publication of the same frame has, too.
    pub id: String,
    /// The serialized frame.
    pub body: Vec<u8>,
}

/// The outgoing side of a relay.
pub struct Outbound {
    dir: TeamDir,
    identity: HostIdentity,
    bus: Arc<Bus>,
    clock: SharedClock,
    placements: KnownPlacements,
    links: BTreeMap<AgentName, Link>,
    /// The number of times that lines of a host were sent again. It is part of the ids of frames: the carrier would drop a
    /// repeated id although it has lost the frame.
    attempts: BTreeMap<HostName, u64>,
    /// The number of mailboxes that are open, and the most that may be.
    open: usize,
    pub(super) most_open: usize,
    /// Whether mail waits for a mailbox that may not be opened yet.
    is_crowded: bool,
}

impl Outbound {
    /// Creates the outgoing side of the relay of this host.
    pub fn new(
        dir: TeamDir,
        identity: HostIdentity,
        bus: Arc<Bus>,
        clock: SharedClock,
        placements: KnownPlacements,
    ) -> Self {
        let (links, attempts) = (BTreeMap::new(), BTreeMap::new());
        let (open, most_open, is_crowded) = (0, most_open(), false);
        Self { dir, identity, bus, clock, placements, links, attempts, open, most_open, is_crowded }
    }

    /// Sets the members of other hosts. The names of those that are alive are taken on this host, so that no process here
    /// takes them, and every program of this host sees that they live.
    ///
    /// # Errors
    /// A life lock or a mailbox cannot be opened. The others are served.
    pub fn set_recipients(
        &mut self,
        recipients: BTreeMap<AgentName, Recipient>,
    ) -> Result<(), RelayError> {
        // A name whose host is unknown keeps its mailbox as long as lines wait in it.
        self.links.retain(|name, link| recipients.contains_key(name) || link.has_waiting());
        self.count_open();
        let mut failed = self.follow_home(&recipients);
        for (name, recipient) in recipients {
            let link =
                self.links.entry(name.clone()).or_insert_with(|| Link::to(recipient.clone()));
            let is_same = link.recipient == recipient;
            let has_moved = link.recipient.host != recipient.host;
            let may_tell = !self.placements.is_given_up(&link.recipient.host);
            if has_moved && may_tell && link.may_have_arrived() {
                link.moves_to = Some(recipient);
            } else {
                (link.recipient, link.moves_to) = (recipient, None);
                if has_moved {
                    link.publish_anew();
                }
            }
            let opened = self.hold_or_release(&name, is_same);
            failed = failed.and(opened);
        }
        failed
    }

    /// Lets lines follow agents that were on a host that was given up, and are on this one now: they go to this host as to any
    /// other.
    fn follow_home(
        &mut self,
        recipients: &BTreeMap<AgentName, Recipient>,
    ) -> Result<(), RelayError> {
        let own = self.identity.host.clone();
        let here = Recipient { host: own.clone(), incarnation: String::new(), is_alive: false };
        let is_here = |name: &AgentName| {
            !recipients.contains_key(name)
                && self.placements.place_of(name.as_str()).is_some_and(|it| it.host == own)
        };
        let mut failed = Ok(());
        for (name, link) in self.links.iter_mut().filter(|(name, _)| is_here(name)) {
            if !self.placements.is_given_up(&link.recipient.host) && link.recipient.host != own {
                continue;
            }
            let parked = link.park(&self.dir, name, self.placements.own_terms());
            if parked.is_ok() && link.recipient.host != own {
                (link.recipient, link.moves_to) = (here.clone(), None);
                link.publish_anew();
            }
            failed = failed.and(parked);
        }
        // Those that an earlier process has left.
        for name in outboxes(&self.dir)?.into_iter().filter(&is_here) {
            if !self.links.contains_key(&name) {
                let outbox = Outbox::open(&self.dir, &name, self.placements.own_terms())?;
                if outbox.has_waiting() {
                    let mut link = Link::to(here.clone());
                    link.parked = Some(outbox);
                    link.publish_anew();
                    self.links.insert(name, link);
                }
            }
        }
        failed
    }

    /// Takes the name of a member that is alive or has mail here, and opens its mailbox if it has mail; gives the name back
    /// otherwise.
    fn hold_or_release(&mut self, name: &AgentName, is_same: bool) -> Result<(), RelayError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let terms = self.placements.own_terms();
        if self.placements.is_given_up(&link.recipient.host) {
            return link.park(&self.dir, name, terms);
        }
        if link.recipient.host == self.identity.host {
            return Ok(());
        }
        // Lines of a mailbox that has made room for others leave without it.
        let has_made_room = link.life.is_some() && link.parked.is_some();
        let has_mail = link.has_mail(&self.dir, name) || (link.has_waiting() && !has_made_room);
        let is_held = has_mail || link.has_waiting() || link.recipient.is_alive;
        match &mut link.life {
            None if is_held => {
                let record = record_of(&link.recipient, &self.clock);
                link.life = Some(take_name(&self.dir, name, record)?);
            }
            Some(life) if is_held && !is_same => {
                life.update(record_of(&link.recipient, &self.clock))?;
            }
            Some(_) if !is_held => (link.open, link.parked, link.life) = (None, None, None),
            Some(_) | None => {}
        }
        if let (true, None, Some(life)) = (has_mail, &link.open, &link.life) {
            if self.open >= self.most_open {
                self.is_crowded = true;
                return Ok(());
            }
            link.parked = None;
            let mailbox = open_mailbox(&self.dir, life, &self.clock, terms)?;
            let open = link.open.insert(OpenMailbox { mailbox, used: Instant::now() });
            let outbox = open.mailbox.sink();
            link.cursor = outbox.base() + 1;
            // By an earlier process.
            link.is_published = outbox.has_waiting();
            self.open += 1;
        }
        // Not before: an outbox that could not be opened is looked at again.
        link.is_known = true;
        Ok(())
    }

    fn count_open(&mut self) {
        self.open = self.links.values().filter(|link| link.open.is_some()).count();
    }

    /// Returns the hosts to which mail goes, or may go.
    pub fn hosts(&self) -> BTreeSet<HostName> {
        self.links.values().map(|link| link.recipient.host.clone()).collect()
    }

    /// Takes in the mail that waits for members of other hosts. When this returns, it is durable in the outboxes.
    ///
    /// # Errors
    /// The first error; the mail of the others was taken in.
    pub fn take_in(&mut self) -> Result<TakenIn, RelayError> {
        let mut taken_in = TakenIn::default();
        let mut failed = Ok(());
        self.count_open();
        self.is_crowded = false;
        let names: Vec<_> = self.links.keys().cloned().collect();
        for name in names {
            if let Err(why) = self.take_in_of(&name, &mut taken_in) {
                tracing::warn!(%name, %why, "mail for another host is not taken in");
                failed = failed.and(Err(why));
            }
        }
        if self.is_crowded {
            self.close_unused(Duration::ZERO);
            for (name, link) in &mut self.links {
                let made = link.make_room(&self.dir, name, self.placements.own_terms());
                failed = failed.and(made);
            }
            taken_in.look_within(ROOM_AFTER);
        } else {
            self.close_unused(KEEP_OPEN);
        }
        failed.map(|()| taken_in)
    }

    fn take_in_of(&mut self, name: &AgentName, sum: &mut TakenIn) -> Result<(), RelayError> {
        let is_closed = self.links.get(name).is_some_and(|link| link.open.is_none());
        if is_closed {
            self.hold_or_release(name, true)?;
        }
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let Some(OpenMailbox { mailbox, used }) = &mut link.open else { return Ok(()) };
        mailbox.acknowledge_events()?;
        let waits = mailbox.sink().next() - mailbox.sink().base() - 1;
        let is_full = waits >= MOST_WAITING || mailbox.sink().waiting_bytes() >= MOST_WAITING_BYTES;
        if mailbox.has_unread() && !is_full {
            *used = Instant::now();
            let drained = mailbox.drain()?;
            sum.count += drained.mail.len();
            for notice in &drained.notices {
                log_notice(name, notice);
            }
            mailbox.mark_taken()?;
        }
        if let SettleResult::Again { after } = mailbox.settle()? {
            sum.look_within(after);
        }
        if !link.recipient.is_alive && !link.has_waiting() {
            self.hold_or_release(name, true)?;
        }
        Ok(())
    }

    /// Closes the mailboxes without mail that had none for a time.
    fn close_unused(&mut self, for_time: Duration) {
        for link in self.links.values_mut() {
            let is_unused = |open: &OpenMailbox| open.used.elapsed() >= for_time;
            if link.open.as_ref().is_some_and(is_unused) && !link.has_waiting() {
                link.open = None;
            }
        }
    }

    /// Returns the next frame for a host, and counts its lines as published; `None` if all are.
    ///
    /// # Errors
    /// An outbox cannot be read.
    pub fn next_frame(&mut self, host: &HostName) -> Result<Option<OutboundFrame>, RelayError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut ids = Vec::new();
        for (name, link) in self.links.iter_mut().filter(|(_, link)| link.recipient.host == *host) {
            let Some(outbox) = outbox_of(&mut link.open, &mut link.parked) else { continue };
            let room = FRAME_LINES.saturating_sub(lines.len());
            if room == 0 || bytes >= FRAME_BYTES {
                break;
            }
            // Beside other lines, a long one waits for a frame of its own.
            let mut found = outbox.lines_from(link.cursor, room)?;
            let fitting = found.iter().position(|line| {
                bytes += line.line.get().len();
                bytes > FRAME_BYTES && !(lines.is_empty())
            });
            found.truncate(fitting.unwrap_or(found.len()));
            let (Some(first), Some(last)) = (found.first(), found.last()) else { continue };
            ids.push(format!("{name}.{}-{}", first.seq, last.seq));
            link.cursor = last.seq + 1;
            link.is_published = true;
            lines.append(&mut found);
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let HostIdentity { host: src, epoch, .. } = &self.identity;
        let attempt = self.attempts.get(host).copied().unwrap_or_default();
        let id =
            format!("{epoch}.{}.{}.{attempt}", ids.join(","), lines.len(), epoch = epoch.as_str());
        let head = FrameHead { v: RELAY_PROTOCOL, src: src.clone(), epoch: epoch.clone() };
        let body = Frame { head, lines }.body()?;
        Ok(Some(OutboundFrame { host: host.clone(), id, body }))
    }

    /// Sends all unacknowledged lines for a host again, under new ids.
    pub fn send_again(&mut self, host: &HostName) {
        let mut is_again = false;
        for link in self.links.values_mut().filter(|link| link.recipient.host == *host) {
            let Some(outbox) = link.outbox() else { continue };
            let first = outbox.base() + 1;
            is_again |= link.cursor > first;
            link.cursor = first;
        }
        if is_again {
            *self.attempts.entry(host.clone()).or_default() += 1;
        }
    }

    /// Lets go of the lines that a host has. A refused one becomes a dead letter, and its sender is told.
    ///
    /// # Errors
    /// An outbox cannot be written. Its lines stay.
    pub fn acknowledged(
        &mut self,
        by: &HostName,
        acknowledgement: &Acknowledgement,
    ) -> Result<(), RelayError> {
        if acknowledgement.epoch != self.identity.epoch {
            return Ok(());
        }
        for progress in &acknowledgement.links {
            let Ok(name) = AgentName::mailbox(&progress.to) else { continue };
            let Some(link) = self.links.get_mut(&name) else { continue };
            // Only the home of a recipient has its mail.
            if link.recipient.host != *by {
                continue;
            }
            let Some(outbox) = outbox_of(&mut link.open, &mut link.parked) else { continue };
            let now = self.clock.now();
            let refused = outbox.acknowledge(progress.next, &progress.refused, now)?;
            if !outbox.has_waiting() {
                link.is_published = false;
                if let Some(next) = link.moves_to.take() {
                    link.recipient = next;
                }
            }
            link.cursor = link.cursor.max(outbox.base() + 1);
            if progress.again && link.cursor > outbox.base() + 1 {
                link.cursor = outbox.base() + 1;
                *self.attempts.entry(by.clone()).or_default() += 1;
            }
            for (seq, message) in refused {
                let why = progress.refused.get(&seq).map_or("refused", String::as_str);
                self.tell_sender(&name, seq, &message, why);
            }
            // Not before: a sender that is not told yet is told by the next process.
            if let Some(outbox) = self.links.get_mut(&name).and_then(Link::outbox) {
                outbox.note_acknowledged()?;
            }
        }
        Ok(())
    }

    /// Tells the sender of a message that was not delivered. A sender that is no agent of this host is not told.
    fn tell_sender(&self, to: &AgentName, seq: u64, message: &Map<String, Value>, why: &str) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let (from, id) = (text("from"), text("id"));
        tracing::warn!(%to, from, id, why, "a message was refused by the host of its recipient");
        let epoch = self.identity.epoch.as_str();
        let content = format!(
            "Your message {id} to {to} was not delivered: {to} {why}. It is kept among the dead letters of {to}."
        );
        let outgoing = Outgoing {
            id: Some(format!("undelivered:{epoch}:{to}:{seq}")),
            ..Outgoing::of(Body::text(), content)
        };
        if AgentName::mailbox(from).is_ok()
            && let Err(why) = self.bus.send(&AgentName::system(), from, outgoing)
        {
            tracing::warn!(from, %why, "the sender is not told");
        }
    }

    /// Rewrites the outboxes without what was acknowledged, so that a next process does not send it again.
    ///
    /// # Errors
    /// An outbox cannot be written; it stays as it is.
    pub fn compact_all(&mut self) -> Result<(), RelayError> {
        for outbox in self.links.values_mut().filter_map(Link::outbox) {
            outbox.compact()?;
        }
        Ok(())
    }

    /// Returns the number of lines for a host that it has not acknowledged.
    pub fn waiting_for(&mut self, host: &HostName) -> u64 {
        let links = self.links.values_mut().filter(|link| link.recipient.host == *host);
        links.map(Link::waiting).sum()
    }

    /// Returns the number of lines that each host has not acknowledged, for each recipient for whom there are some.
    pub fn waiting_for_each(&mut self) -> BTreeMap<HostName, BTreeMap<String, u64>> {
        let mut waiting: BTreeMap<HostName, BTreeMap<String, u64>> = BTreeMap::new();
        for (name, link) in &mut self.links {
            let count = link.waiting();
            if count > 0 {
                let of_host = waiting.entry(link.recipient.host.clone()).or_default();
                of_host.insert(name.to_string(), count);
            }
        }
        waiting
    }

    /// Returns the names that have an outbox with waiting mail and are members of no other host now.
    ///
    /// # Errors
    /// The folder of the outboxes cannot be read.
    pub fn orphaned(&self) -> Result<Vec<AgentName>, RelayError> {
        let mut orphaned = Vec::new();
        for name in outboxes(&self.dir)? {
            if !self.links.contains_key(&name) {
                let outbox = Outbox::open(&self.dir, &name, self.placements.own_terms())?;
                if outbox.has_waiting() {
                    orphaned.push(name);
                }
            }
        }
        Ok(orphaned)
    }
}

/// The most mailboxes that are open at a time: a broadcast to thousands must not take all descriptors.
fn most_open() -> usize {
    let descriptors = usage::max_descriptors().unwrap_or(MOST_OPEN * SHARE_OF_DESCRIPTORS);
    let most = (descriptors / SHARE_OF_DESCRIPTORS).clamp(1, MOST_OPEN);
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn log_notice(name: &AgentName, notice: &MailNotice) {
    match notice {
        MailNotice::Dead { reason, batch_id, offset } => {
            tracing::warn!(%name, reason, batch_id, offset, "a line became a dead letter");
        }
        MailNotice::Repeated { id, from } => {
            tracing::info!(%name, id, from, "a repeated message was dropped");
        }
    }
}
