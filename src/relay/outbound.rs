//! The mail of this host for members of other hosts: from their local inboxes into outboxes, and from there into frames.

use super::RelayError;
use super::link::{Claims, Link, NewNames, Recipient, outbox_of, record_of};
use super::placements::KnownPlacements;
use super::waiting::WaitingLines;
use crate::bus::{Bus, Outgoing};
use crate::os::usage;
use crate::store::relay::{HostIdentity, Outbox, lasting_claims, outboxes, sync_names};
use crate::store::{SharedClock, StoreError, TeamDir, each_on_processors};
use crate::wire::AgentName;
use crate::wire::carried::{
    Acknowledgement, FRAME_BYTES, FRAME_LINES, Frame, FrameHead, HostName, LinkProgress,
    RELAY_PROTOCOL,
};
use crate::wire::message::Body;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The share of the descriptors of a process that open mailboxes may have, about six each.
const SHARE_OF_DESCRIPTORS: u64 = 32;

/// The most mailboxes that are open at a time, whatever the limit of descriptors.
const MOST_OPEN: u64 = 512;

/// The most recipients whose claims are looked after at once: other mail must not wait for thousands.
const MOST_SETTLED: usize = 512;

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
    pub(super) dir: TeamDir,
    identity: HostIdentity,
    bus: Arc<Bus>,
    pub(super) clock: SharedClock,
    pub(super) placements: KnownPlacements,
    pub(super) links: BTreeMap<AgentName, Link>,
    pub(super) waiting: WaitingLines,
    /// The number of times that lines of a host were sent again. It is part of the ids of frames: the carrier would drop a
    /// repeated id although it has lost the frame.
    attempts: BTreeMap<HostName, u64>,
    /// The recipients whose mailboxes are open, or have claims that are kept for late writers.
    pub(super) active: BTreeSet<AgentName>,
    /// The recipients whose mailboxes are open, as of the last count of each.
    pub(super) open: BTreeSet<AgentName>,
    /// The time at which the claims of all of them had been looked after.
    pub(super) settled: Instant,
    /// The recipient after which the next look at claims begins; `None` for the first one.
    pub(super) settle_after: Option<AgentName>,
    /// The time at which claims that were looked at in this turn are to be looked at again.
    pub(super) settle_again: Option<Instant>,
    /// The most recipients whose claims are looked after at once.
    pub(super) most_settled: usize,
    /// The most mailboxes that may be open.
    pub(super) most_open: usize,
    /// The recipients whose mail waits for a mailbox that may not be opened yet. Those of one host follow each other: their lines
    /// are one frame then.
    pub(super) crowded: BTreeSet<(HostName, AgentName)>,
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
        Self {
            dir,
            identity,
            bus,
            clock,
            placements,
            links: BTreeMap::new(),
            waiting: WaitingLines::default(),
            attempts: BTreeMap::new(),
            active: BTreeSet::new(),
            open: BTreeSet::new(),
            settled: Instant::now(),
            settle_after: None,
            settle_again: None,
            most_settled: MOST_SETTLED,
            most_open: most_open(),
            crowded: BTreeSet::new(),
        }
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
        let (mut new, mut claims) = (NewNames::default(), Claims::default());
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
            if is_same && link.is_at_rest() {
                continue;
            }
            let held = self.hold_or_release(&name, is_same, &mut new, &mut claims);
            failed = failed.and(held);
        }
        failed = failed.and(self.prepare(&new)).and(self.open_mailboxes(&mut Claims::default()));
        self.count_again();
        failed
    }

    /// Makes what new names need. One for which that fails is given back, and is taken again later.
    ///
    /// # Errors
    /// The first error; the other names are served.
    pub(super) fn prepare(&mut self, new: &NewNames) -> Result<(), RelayError> {
        let mut failed = Ok(());
        if new.prepare(&self.dir).is_err() {
            for name in new.names() {
                if let Err(why) = NewNames::prepare_one(&self.dir, name) {
                    tracing::warn!(%name, %why, "mail for another host cannot be taken in");
                    failed = failed.and(Err(why));
                    if let Some(link) = self.links.get_mut(name) {
                        link.release();
                    }
                }
            }
        }
        // Until its name was taken, an agent of this host may have made a claim.
        let mut claims = Claims::default();
        for name in new.names() {
            let Some(link) = self.links.get_mut(name).filter(|link| link.life.is_some()) else {
                continue;
            };
            let left = claims.of(&self.dir, name)?;
            link.is_ours = left.is_empty();
            if link.open.is_none() && !left.is_empty() {
                self.crowded.insert((link.recipient.host.clone(), name.clone()));
            }
        }
        failed
    }

    /// Counts what waits, and the mailboxes that are open, from the beginning.
    fn count_again(&mut self) {
        for host in self.waiting.hosts() {
            for name in self.waiting.waiting(&host) {
                self.waiting.forget(&name);
            }
        }
        (self.active, self.open) = (BTreeSet::new(), BTreeSet::new());
        let names: Vec<_> = self.links.keys().cloned().collect();
        for name in &names {
            self.count(name);
        }
    }

    /// Counts what waits for a recipient.
    pub(super) fn count(&mut self, name: &AgentName) {
        let Some(link) = self.links.get_mut(name) else { return };
        let (waiting, is_ready) = (link.waiting(), link.is_ready());
        self.waiting.note(name, &link.recipient.host, waiting, is_ready);
        let is_open = link.open.is_some();
        keep_if(&mut self.open, name, is_open);
        keep_if(&mut self.active, name, is_open || !link.kept.is_empty());
    }

    /// Returns the counts of lines that wait, which go on being kept.
    pub fn waiting_lines(&self) -> WaitingLines {
        self.waiting.clone()
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

    /// Takes the name of a member that is alive or has mail here, and notes that its mailbox is to be opened if it has mail;
    /// gives the name back otherwise.
    pub(super) fn hold_or_release(
        &mut self,
        name: &AgentName,
        is_same: bool,
        new: &mut NewNames,
        claims: &mut Claims,
    ) -> Result<(), RelayError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        if self.placements.is_given_up(&link.recipient.host) {
            return link.park(&self.dir, name, self.placements.own_terms());
        }
        if link.recipient.host == self.identity.host {
            return Ok(());
        }
        // Lines of a mailbox that has made room for others leave without it.
        let has_mail = link.has_mail(&self.dir, name, claims)?
            || (link.has_waiting() && !link.has_made_room());
        let is_held = has_mail || link.has_waiting() || link.recipient.is_alive;
        match &mut link.life {
            None if is_held => {
                let record = record_of(&link.recipient, &self.clock);
                link.life = Some(new.take(&self.dir, name, record)?);
            }
            Some(life) if is_held && !is_same => {
                life.update(record_of(&link.recipient, &self.clock))?;
            }
            Some(_) if !is_held => {
                link.release();
                link.parked = None;
            }
            Some(_) | None => {}
        }
        if has_mail && link.open.is_none() {
            self.crowded.insert((link.recipient.host.clone(), name.clone()));
        } else {
            link.is_known = true;
        }
        Ok(())
    }

    /// Opens mailboxes for which there is mail, as many as may be open.
    pub(super) fn open_mailboxes(&mut self, claims: &mut Claims) -> Result<(), RelayError> {
        let mut failed = Ok(());
        loop {
            let room = self.most_open.saturating_sub(self.open.len());
            let mut chosen = Vec::new();
            while chosen.len() < room
                && let Some((_, name)) = self.crowded.pop_first()
            {
                let is_wanted = |link: &&Link| link.open.is_none() && link.life.is_some();
                if self.links.get(&name).is_some_and(|link| is_wanted(&link))
                    && let Some(link) = self.links.remove(&name)
                {
                    let left = link.left(&self.dir, &name, claims);
                    chosen.push((name, link, left));
                }
            }
            if chosen.is_empty() {
                return failed;
            }
            let terms = self.placements.own_terms();
            let open = |(name, mut link, left): (AgentName, Link, Result<_, StoreError>)| {
                let opened = left.map_err(RelayError::from);
                let opened = opened.and_then(|left| link.open(&self.dir, &self.clock, terms, left));
                (name, link, opened)
            };
            let mut opened = each_on_processors(chosen, open);
            let open = opened.iter_mut().filter_map(|(_, link, _)| link.open.as_mut());
            sync_names(&self.dir, open.map(|open| open.mailbox.sink()));
            for (name, mut link, opened) in opened {
                match opened {
                    Ok(()) => {
                        self.active.insert(name.clone());
                        self.open.insert(name.clone());
                    }
                    // It is looked at again later: it is not known.
                    Err(why) => {
                        link.is_known = false;
                        failed = failed.and(Err(why));
                    }
                }
                self.links.insert(name, link);
            }
        }
    }

    /// Returns the hosts to which mail goes, or may go.
    pub fn hosts(&self) -> BTreeSet<HostName> {
        self.links.values().map(|link| link.recipient.host.clone()).collect()
    }

    /// Returns the next frame for a host, and counts its lines as published; `None` if all are.
    ///
    /// # Errors
    /// An outbox cannot be read.
    pub fn next_frame(&mut self, host: &HostName) -> Result<Option<OutboundFrame>, RelayError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut ids = Vec::new();
        for name in self.waiting.ready(host) {
            let Some(link) = self.links.get_mut(&name) else { continue };
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
            self.count(&name);
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
        for name in self.waiting.waiting(host) {
            let Some(link) = self.links.get_mut(&name) else { continue };
            let Some(outbox) = link.outbox() else { continue };
            let first = outbox.base() + 1;
            is_again |= link.cursor > first;
            link.cursor = first;
            self.count(&name);
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
            let done = self.acknowledged_for(&name, by, progress);
            self.count(&name);
            done?;
        }
        Ok(())
    }

    fn acknowledged_for(
        &mut self,
        name: &AgentName,
        by: &HostName,
        progress: &LinkProgress,
    ) -> Result<(), RelayError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        // Only the home of a recipient has its mail.
        if link.recipient.host != *by {
            return Ok(());
        }
        let Some(outbox) = outbox_of(&mut link.open, &mut link.parked) else { return Ok(()) };
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
            self.tell_sender(name, seq, &message, why);
        }
        // Not before: a sender that is not told yet is told by the next process.
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let has_made_room = link.has_made_room();
        if let Some(outbox) = link.outbox() {
            outbox.note_acknowledged()?;
            if has_made_room {
                outbox.close();
            }
        }
        link.drop_empty();
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
        let claims = lasting_claims(&self.dir).map_err(StoreError::from)?;
        for outbox in self.links.values_mut().filter_map(Link::outbox) {
            outbox.compact_beside(&claims)?;
        }
        Ok(())
    }

    /// Returns the number of lines for a host that it has not acknowledged.
    pub fn waiting_for(&self, host: &HostName) -> u64 {
        self.waiting.sum(host)
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

/// Keeps a name in a set, or not.
fn keep_if(names: &mut BTreeSet<AgentName>, name: &AgentName, is_kept: bool) {
    if !is_kept {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}

/// The most mailboxes that are open at a time: a broadcast to thousands must not take all descriptors.
fn most_open() -> usize {
    let descriptors = usage::max_descriptors().unwrap_or(MOST_OPEN * SHARE_OF_DESCRIPTORS);
    let most = (descriptors / SHARE_OF_DESCRIPTORS).clamp(1, MOST_OPEN);
    usize::try_from(most).unwrap_or(usize::MAX)
}
