//! The way of mail to one member of another host: its name and mailbox on this host, and the outbox.

use super::RelayError;
use crate::store::relay::{Outbox, OwnTerms};
use crate::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailPolicy, Mailbox, SharedClock, TeamDir, inbox, unread,
};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::limits::MAX_LINE_BYTES;
use std::sync::Arc;
use std::time::Instant;

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

/// The mailbox of a member of another host, which this relay owns.
pub(super) struct OpenMailbox {
    pub(super) mailbox: Mailbox<Outbox>,
    /// The time at which it had mail last.
    pub(super) used: Instant,
}

impl OpenMailbox {
    /// Whether there is mail, or a claim that is kept for late writers.
    fn has_mail(&self) -> bool {
        self.mailbox.has_unread() || self.mailbox.has_claims()
    }
}

/// The way to one recipient.
pub(super) struct Link {
    pub(super) recipient: Recipient,
    /// The recipient on its next host. Its host before may have lines already whose acknowledgements are on their way: it says
    /// first how far they have come.
    pub(super) moves_to: Option<Recipient>,
    /// Whether lines that are not acknowledged may have been published.
    pub(super) is_published: bool,
    /// Open while mail waits, and for a time after it.
    pub(super) open: Option<OpenMailbox>,
    /// Held while the recipient is alive or its mailbox is open: then its name is taken on this host, too.
    pub(super) life: Option<LifeLock>,
    /// The outbox without the mailbox, while the name is free on this host or belongs to it, or others need the room: lines still
    /// wait in it.
    pub(super) parked: Option<Outbox>,
    /// Whether its outbox was looked at: an earlier process may have left lines in it.
    pub(super) is_known: bool,
    /// The number of the line that is published next.
    pub(super) cursor: u64,
}

impl Link {
    pub(super) fn to(recipient: Recipient) -> Self {
        Self {
            recipient,
            moves_to: None,
            is_published: false,
            open: None,
            life: None,
            parked: None,
            is_known: false,
            cursor: 1,
        }
    }

    pub(super) fn outbox(&mut self) -> Option<&mut Outbox> {
        outbox_of(&mut self.open, &mut self.parked)
    }

    /// Returns the number of lines that are not acknowledged.
    pub(super) fn waiting(&mut self) -> u64 {
        self.outbox().map_or(0, |outbox| outbox.next() - outbox.base() - 1)
    }

    /// Whether its host may have lines that it has not acknowledged yet.
    pub(super) fn may_have_arrived(&mut self) -> bool {
        self.is_published && self.waiting() > 0
    }

    pub(super) fn has_waiting(&mut self) -> bool {
        self.waiting() > 0 || self.open.as_ref().is_some_and(OpenMailbox::has_mail)
    }

    /// Whether mail is in the files of a mailbox that is closed. Of one that this process has closed, or only taken the name,
    /// there is no more than the inbox.
    pub(super) fn has_mail(&self, dir: &TeamDir, name: &AgentName) -> bool {
        if self.open.is_some() {
            return false;
        }
        let is_known = self.is_known && (self.parked.is_none() || self.life.is_some());
        if is_known && self.life.is_some() {
            return inbox::has_lines(dir, name);
        }
        unread::count(dir, name).unwrap_or(0) > 0 || (!is_known && dir.relay_outbox(name).exists())
    }

    /// Has the lines that wait published to a host that has none of them.
    pub(super) fn publish_anew(&mut self) {
        self.is_published = false;
        self.cursor = self.outbox().map_or(1, |outbox| outbox.base() + 1);
    }

    /// Closes a mailbox that has no mail but lines which are not acknowledged, and keeps these: other mailboxes need its room.
    pub(super) fn make_room(
        &mut self,
        dir: &TeamDir,
        name: &AgentName,
        terms: &OwnTerms,
    ) -> Result<(), RelayError> {
        if self.open.as_ref().is_some_and(|open| !open.has_mail()) && self.waiting() > 0 {
            self.open = None;
            self.parked = Some(Outbox::open(dir, name, terms)?);
        }
        Ok(())
    }

    /// Closes the mailbox and gives the name back. The lines that wait stay.
    pub(super) fn park(
        &mut self,
        dir: &TeamDir,
        name: &AgentName,
        terms: &OwnTerms,
    ) -> Result<(), RelayError> {
        let has_outbox = self.open.is_some() || dir.relay_outbox(name).exists();
        (self.open, self.life) = (None, None);
        if self.parked.is_none() && has_outbox {
            self.parked = Some(Outbox::open(dir, name, terms)?);
            self.cursor = self.cursor.max(self.outbox().map_or(1, |outbox| outbox.base() + 1));
        }
        self.is_known = true;
        Ok(())
    }
}

/// Returns the outbox of a link, with or without its mailbox.
pub(super) fn outbox_of<'a>(
    open: &'a mut Option<OpenMailbox>,
    parked: &'a mut Option<Outbox>,
) -> Option<&'a mut Outbox> {
    match open {
        Some(open) => Some(open.mailbox.sink()),
        None => parked.as_mut(),
    }
}

pub(super) fn record_of(recipient: &Recipient, clock: &SharedClock) -> LifeRecord {
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

/// Takes the name of a member of another host, so that mail for it can be written.
pub(super) fn take_name(
    dir: &TeamDir,
    name: &AgentName,
    record: LifeRecord,
) -> Result<LifeLock, RelayError> {
    let life = LifeLock::take(dir, name, record)?;
    inbox::ensure(dir, name).map_err(crate::bus::BusError::from)?;
    Keyring::new(dir.clone()).own_with_same_key(name, Fsync::Always)?;
    Ok(life)
}

/// Opens the mailbox of a member of another host, whose name is taken.
pub(super) fn open_mailbox(
    dir: &TeamDir,
    life: &LifeLock,
    clock: &SharedClock,
    terms: &OwnTerms,
) -> Result<Mailbox<Outbox>, RelayError> {
    let name = life.name();
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own_with_same_key(name, Fsync::Always)?;
    let outbox = Outbox::open(dir, name, terms)?;
    // The limits of content are those of the senders and of the recipient's host.
    let policy = MailPolicy { fsync: Fsync::Always, max_content: MAX_LINE_BYTES };
    Ok(Mailbox::open(dir, life, outbox, policy, Arc::clone(clock), keyring)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::tests::{Host, Owner, acknowledge, deliver, frames_for, host};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn mail_waits_for_a_mailbox_while_others_are_open_and_comes_in_order_after_they_were_closed() {
        let a = Host::new("a", &[("alice", None), ("carol", Some("b")), ("dave", Some("b"))]);
        let b = Host::new("b", &[("alice", Some("a")), ("carol", None), ("dave", None)]);
        let (mut carol, mut dave) = (Owner::of(&b, "carol"), Owner::of(&b, "dave"));
        let (mut out, mut inbound) = (a.outbound(), b.inbound());
        out.most_open = 1;
        let mut deliver_all = |count: usize| {
            let (begin, mut taken_in) = (Instant::now(), 0);
            let mut first = None;
            while taken_in < count {
                assert!(begin.elapsed() < Duration::from_secs(60), "{taken_in} of {count}");
                let looked = out.take_in().unwrap();
                taken_in += looked.count;
                first.get_or_insert(looked.count);
                let arrived = deliver(&mut inbound, &host("a"), &frames_for(&mut out, &host("b")));
                acknowledge(&mut out, &host("b"), &arrived);
                if let Some(after) = looked.again {
                    thread::park_timeout(after);
                }
            }
            first
        };
        a.send("alice", "carol", "one");
        a.send("alice", "dave", "two");
        assert_eq!(deliver_all(2), Some(1), "there is room for one mailbox");
        a.send("alice", "carol", "three");
        a.send("alice", "carol", "four");
        a.send("alice", "dave", "five");
        deliver_all(3);
        let contents = |owner: &mut Owner| {
            owner.mail().into_iter().map(|(_, content, _)| content).collect::<Vec<_>>()
        };
        assert_eq!(contents(&mut carol), ["one", "three", "four"]);
        assert_eq!(contents(&mut dave), ["two", "five"]);
    }

    #[test]
    fn lines_for_a_host_that_is_away_do_not_hold_up_mail_for_others() {
        let a = Host::new("a", &[("alice", None), ("carol", Some("b")), ("dave", Some("c"))]);
        let mut out = a.outbound();
        out.most_open = 1;
        a.send("alice", "carol", "one");
        assert_eq!(out.take_in().unwrap().count, 1);
        a.send("alice", "dave", "two");
        let mut take_in = |most: Duration| {
            let (begin, mut count) = (Instant::now(), 0);
            while count == 0 && begin.elapsed() < most {
                let looked = out.take_in().unwrap();
                count = looked.count;
                thread::park_timeout(looked.again.unwrap_or(Duration::from_millis(10)));
            }
            count
        };
        assert_eq!(take_in(Duration::from_secs(60)), 1, "dave's");
        a.send("alice", "carol", "three");
        assert_eq!(take_in(Duration::from_secs(60)), 1, "carol's mailbox opens again");
        assert_eq!([out.waiting_for(&host("b")), out.waiting_for(&host("c"))], [2, 1]);
        let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
        let (mut carol, mut inbound) = (Owner::of(&b, "carol"), b.inbound());
        let arrived = deliver(&mut inbound, &host("a"), &frames_for(&mut out, &host("b")));
        acknowledge(&mut out, &host("b"), &arrived);
        let mail: Vec<_> = carol.mail().into_iter().map(|(_, content, _)| content).collect();
        assert_eq!(mail, ["one", "three"]);
        assert_eq!(out.waiting_for(&host("b")), 0);
    }
}
