//! The mail of this host for members of other hosts: from their local inboxes into outboxes, and from there into frames.

use super::RelayError;
use super::placements::KnownPlacements;
use crate::bus::{Bus, Outgoing};
use crate::store::relay::{HostIdentity, Outbox, OwnTerms, outboxes};
use crate::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailNotice, MailPolicy, Mailbox, SettleResult,
    SharedClock, TeamDir, inbox, unread,
};
use crate::wire::AgentName;
use crate::wire::carried::{
    Acknowledgement, FRAME_BYTES, FRAME_LINES, Frame, FrameHead, HostName, RELAY_PROTOCOL,
};
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Body;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The most unacknowledged lines of an outbox. Beyond it, mail waits in the inbox, whose senders are refused when it is full.
const MOST_WAITING: u64 = 50_000;

/// The most bytes of the unacknowledged lines of an outbox.
const MOST_WAITING_BYTES: u64 = 64 * 1024 * 1024;

/// A member of another host, as its host describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Its host.
    pub host: HostName,
    /// Its incarnation.
    pub incarnation: String,
    /// Whether its process is alive. Then its name is taken on this host, too.
    pub is_alive: bool,
}

/// The result of one look at the local inboxes of other hosts' members.
#[derive(Debug, Default)]
pub struct TakenIn {
    /// The number of messages that were taken in.
    pub count: usize,
    /// The time after which to look again, for late writers.
    pub again: Option<Duration>,
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

/// A mailbox that this relay owns.
struct OwnedMailbox {
    mailbox: Mailbox<Outbox>,
    /// Held as long as the mailbox is open: its owner is this process.
    life: LifeLock,
}

struct Link {
    recipient: Recipient,
    /// The recipient on its next host. Its host before may have lines already whose acknowledgements are on their way: it says
    /// first how far they have come.
    moves_to: Option<Recipient>,
    /// Whether lines that are not acknowledged may have been published.
    is_published: bool,
    owned: Option<OwnedMailbox>,
    /// The outbox without the mailbox, while the name is free on this host or belongs to it: lines still wait in it.
    parked: Option<Outbox>,
    /// Whether its outbox was looked at: an earlier process may have left lines in it.
    is_known: bool,
    /// The number of the line that is published next.
    cursor: u64,
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
        Self { dir, identity, bus, clock, placements, links, attempts }
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

    /// Opens the mailbox of a member that is alive or has mail here, and closes it otherwise.
    fn hold_or_release(&mut self, name: &AgentName, is_same: bool) -> Result<(), RelayError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let terms = self.placements.own_terms();
        if self.placements.is_given_up(&link.recipient.host) {
            return link.park(&self.dir, name, terms);
        }
        if link.recipient.host == self.identity.host {
            return Ok(());
        }
        let is_needed = link.recipient.is_alive
            || link.has_waiting()
            || unread::count(&self.dir, name).unwrap_or(0) > 0
            || (!link.is_known && self.dir.relay_outbox(name).exists());
        match &mut link.owned {
            None if is_needed => {
                link.parked = None;
                let owned = open(&self.dir, name, &link.recipient, &self.clock, terms)?;
                let owned = link.owned.insert(owned);
                link.cursor = owned.mailbox.sink().base() + 1;
                // By an earlier process.
                link.is_published = true;
            }
            Some(owned) if is_needed && !is_same => {
                let record = record_of(&link.recipient, &self.clock);
                owned.life.update(record)?;
            }
            Some(_) if !is_needed => link.owned = None,
            Some(_) | None => {}
        }
        // Not before: an outbox that could not be opened is looked at again.
        link.is_known = true;
        Ok(())
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
        let names: Vec<_> = self.links.keys().cloned().collect();
        for name in names {
            if let Err(why) = self.take_in_of(&name, &mut taken_in) {
                tracing::warn!(%name, %why, "mail for another host is not taken in");
                failed = failed.and(Err(why));
            }
        }
        failed.map(|()| taken_in)
    }

    fn take_in_of(&mut self, name: &AgentName, sum: &mut TakenIn) -> Result<(), RelayError> {
        let is_closed = self.links.get(name).is_some_and(|link| link.owned.is_none());
        if is_closed {
            self.hold_or_release(name, true)?;
        }
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let Some(owned) = &mut link.owned else { return Ok(()) };
        owned.mailbox.acknowledge_events()?;
        let waits = owned.mailbox.sink().next() - owned.mailbox.sink().base() - 1;
        let is_full =
            waits >= MOST_WAITING || owned.mailbox.sink().waiting_bytes() >= MOST_WAITING_BYTES;
        if owned.mailbox.has_unread() && !is_full {
            let drained = owned.mailbox.drain()?;
            sum.count += drained.mail.len();
            for notice in &drained.notices {
                log_notice(name, notice);
            }
            owned.mailbox.mark_taken()?;
        }
        if let SettleResult::Again { after } = owned.mailbox.settle()? {
            sum.again = Some(sum.again.map_or(after, |again| again.min(after)));
        }
        if !link.recipient.is_alive && !link.has_waiting() {
            self.hold_or_release(name, true)?;
        }
        Ok(())
    }

    /// Returns the next frame for a host, and counts its lines as published; `None` if all are.
    ///
    /// # Errors
    /// An outbox cannot be read.
    pub fn next_frame(&mut self, host: &HostName) -> Result<Option<OutboundFrame>, RelayError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut ids = Vec::new();
        for (name, link) in self.links.iter_mut().filter(|(_, link)| link.recipient.host == *host) {
            let Some(outbox) = outbox_of(&mut link.owned, &mut link.parked) else { continue };
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
            let Some(outbox) = outbox_of(&mut link.owned, &mut link.parked) else { continue };
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

impl Link {
    fn to(recipient: Recipient) -> Self {
        Self {
            recipient,
            moves_to: None,
            is_published: false,
            owned: None,
            parked: None,
            is_known: false,
            cursor: 1,
        }
    }

    fn outbox(&mut self) -> Option<&mut Outbox> {
        outbox_of(&mut self.owned, &mut self.parked)
    }

    /// Returns the number of lines that are not acknowledged.
    fn waiting(&mut self) -> u64 {
        self.outbox().map_or(0, |outbox| outbox.next() - outbox.base() - 1)
    }

    /// Whether its host may have lines that it has not acknowledged yet.
    fn may_have_arrived(&mut self) -> bool {
        self.is_published && self.waiting() > 0
    }

    fn has_waiting(&mut self) -> bool {
        let has_unread =
            |owned: &OwnedMailbox| owned.mailbox.has_unread() || owned.mailbox.has_claims();
        self.waiting() > 0 || self.owned.as_ref().is_some_and(has_unread)
    }

    /// Has the lines that wait published to a host that has none of them.
    fn publish_anew(&mut self) {
        self.is_published = false;
        self.cursor = self.outbox().map_or(1, |outbox| outbox.base() + 1);
    }

    /// Closes the mailbox and gives the name back. The lines that wait stay.
    fn park(
        &mut self,
        dir: &TeamDir,
        name: &AgentName,
        terms: &OwnTerms,
    ) -> Result<(), RelayError> {
        let has_outbox = self.owned.is_some() || dir.relay_outbox(name).exists();
        if self.parked.is_none() && has_outbox {
            self.owned = None;
            self.parked = Some(Outbox::open(dir, name, terms)?);
            self.cursor = self.cursor.max(self.outbox().map_or(1, |outbox| outbox.base() + 1));
        }
        self.is_known = true;
        Ok(())
    }
}

/// Returns the outbox of a link, with or without its mailbox.
fn outbox_of<'a>(
    owned: &'a mut Option<OwnedMailbox>,
    parked: &'a mut Option<Outbox>,
) -> Option<&'a mut Outbox> {
    match owned {
        Some(owned) => Some(owned.mailbox.sink()),
        None => parked.as_mut(),
    }
}

fn record_of(recipient: &Recipient, clock: &SharedClock) -> LifeRecord {
    LifeRecord {
        // No process of this host is the agent's.
        pid: 0,
        start_time: 0,
        boot_id: String::new(),
        incarnation: recipient.incarnation.clone(),
        started_at: clock.now(),
        started_by: "relay".into(),
        host: recipient.host.to_string(),
        ..LifeRecord::of_this_process()
    }
}

/// Takes the name of a member of another host, and opens its mailbox.
fn open(
    dir: &TeamDir,
    name: &AgentName,
    recipient: &Recipient,
    clock: &SharedClock,
    terms: &OwnTerms,
) -> Result<OwnedMailbox, RelayError> {
    let life = LifeLock::take(dir, name, record_of(recipient, clock))?;
    inbox::ensure(dir, name).map_err(crate::bus::BusError::from)?;
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own_with_same_key(name, Fsync::Always)?;
    let outbox = Outbox::open(dir, name, terms)?;
    // The limits of content are those of the senders and of the recipient's host.
    let policy = MailPolicy { fsync: Fsync::Always, max_content: MAX_LINE_BYTES };
    let mailbox = Mailbox::open(dir, &life, outbox, policy, Arc::clone(clock), keyring)?;
    Ok(OwnedMailbox { mailbox, life })
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
