//! Takes the mail of this host for members of other hosts from their local inboxes into outboxes.

use super::RelayError;
use super::link::{Claims, Link, NewNames, OpenMailbox};
use super::outbound::Outbound;
use crate::store::{MailNotice, SettleResult, drain_together};
use crate::wire::AgentName;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

/// The most unacknowledged lines of an outbox. Beyond it, mail waits in the inbox, whose senders are refused when it is full.
const MOST_WAITING: u64 = 50_000;

/// The most bytes of the unacknowledged lines of an outbox.
const MOST_WAITING_BYTES: u64 = 64 * 1024 * 1024;

/// The time without mail after which a mailbox is closed. Its recipient's name stays taken.
const KEEP_OPEN: Duration = Duration::from_secs(10);

/// The pause before the next look at mail for which no mailbox could be opened.
const ROOM_AFTER: Duration = Duration::from_millis(100);

/// The longest time in which nobody looks for late writers while mail waits for room: that would keep the mail waiting.
const SETTLE_WITHIN: Duration = Duration::from_secs(3);

/// The least pause before the next look for late writers: those to many claims are looked for together.
const SETTLE_AFTER: Duration = Duration::from_millis(20);

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

impl Outbound {
    /// Takes in the mail that waits for members of other hosts. When this returns, it is durable in the outboxes.
    ///
    /// # Errors
    /// The first error; the mail of the others was taken in.
    pub fn take_in(&mut self) -> Result<TakenIn, RelayError> {
        let names = self.links.keys().cloned().collect();
        self.take_in_for(&names)
    }

    /// Takes in the mail for these recipients, and for those whose mailboxes are open or who wait for one. Mail for others may
    /// only come with an event for them.
    ///
    /// # Errors
    /// The first error; the mail of the others was taken in.
    pub fn take_in_for(&mut self, names: &BTreeSet<AgentName>) -> Result<TakenIn, RelayError> {
        let mut taken_in = TakenIn::default();
        let mut failed = self.look_at(names);
        if self.has_no_room() {
            self.make_room();
        }
        failed = failed.and(self.open_mailboxes(&mut Claims::default()));
        let open: Vec<_> = self.open.iter().cloned().collect();
        failed = failed.and(self.drain(&open, &mut taken_in));
        for name in &open {
            self.count(name);
        }
        failed = failed.and(self.settle_some(&mut taken_in));
        if !self.crowded.is_empty() {
            taken_in.look_within(if taken_in.count > 0 { Duration::ZERO } else { ROOM_AFTER });
        }
        failed.map(|()| taken_in)
    }

    /// Looks which of these recipients have mail without an open mailbox.
    fn look_at(&mut self, names: &BTreeSet<AgentName>) -> Result<(), RelayError> {
        let (mut new, mut claims) = (NewNames::default(), Claims::default());
        let mut failed = Ok(());
        for name in names {
            if self.links.get(name).is_some_and(|link| link.open.is_none()) {
                let held = self.hold_or_release(name, true, &mut new, &mut claims);
                if let Err(why) = held {
                    tracing::warn!(%name, %why, "mail for another host is not taken in");
                    failed = failed.and(Err(why));
                }
                self.count(name);
            }
        }
        failed.and(self.prepare(&new))
    }

    fn has_no_room(&self) -> bool {
        self.crowded.len() + self.open.len() > self.most_open
    }

    /// Closes mailboxes without mail: others need their room.
    fn make_room(&mut self) {
        let links = &mut self.links;
        self.open.retain(|name| links.get_mut(name).is_some_and(Link::make_room));
    }

    /// Takes in the mail of open mailboxes, with common syncs.
    fn drain(&mut self, names: &[AgentName], sum: &mut TakenIn) -> Result<(), RelayError> {
        let mut failed = Ok(());
        let mut drained = Vec::new();
        for name in names {
            let Some(link) = self.links.get_mut(name) else { continue };
            let Some(open) = &mut link.open else { continue };
            if !is_full(open)
                && open.mailbox.has_unread()
                && let Some(open) = link.open.take()
            {
                drained.push((name, open));
            }
        }
        let mut mailboxes: Vec<_> = drained.iter_mut().map(|(_, open)| &mut open.mailbox).collect();
        let outcomes = drain_together(&self.dir, &mut mailboxes);
        for ((name, mut open), outcome) in drained.into_iter().zip(outcomes) {
            let taken = outcome.and_then(|mail| open.mailbox.mark_taken().map(|()| mail));
            let Some(link) = self.links.get_mut(name) else { continue };
            // It stays open after an error, too: a log that could not be synced must not be opened anew, which would take for
            // durable what is not, and lines of it that wait go on being published and acknowledged.
            open.used = Instant::now();
            link.open = Some(open);
            match taken {
                Ok(mail) => {
                    sum.count += mail.mail.len();
                    for notice in &mail.notices {
                        log_notice(name, notice);
                    }
                }
                Err(why) => {
                    tracing::warn!(%name, %why, "mail for another host is not taken in");
                    failed = failed.and(Err(why.into()));
                }
            }
        }
        failed
    }

    /// Looks after the claims of some recipients, each in its turn. While the mail of others waits for room, they wait for a time.
    fn settle_some(&mut self, sum: &mut TakenIn) -> Result<(), RelayError> {
        if !self.crowded.is_empty() && self.settled.elapsed() < SETTLE_WITHIN {
            return Ok(());
        }
        let begin = self.settle_after.take().map_or(Unbounded, Excluded);
        let mut rest = self.active.range((begin, Unbounded)).cloned();
        let names: Vec<AgentName> = rest.by_ref().take(self.most_settled).collect();
        let has_more = rest.next().is_some();
        let (mut failed, mut found) = (Ok(()), TakenIn::default());
        for name in &names {
            if let Err(why) = self.settle(name, &mut found) {
                tracing::warn!(%name, %why, "mail for another host is not taken in");
                failed = failed.and(Err(why));
            }
            self.count(name);
        }
        let now = Instant::now();
        let again = found.again.map(|after| now + after);
        self.settle_again = self.settle_again.into_iter().chain(again).min();
        if has_more {
            self.settle_after = names.into_iter().next_back();
            sum.look_within(Duration::ZERO);
        } else {
            self.settled = now;
            if let Some(again) = self.settle_again.take() {
                sum.look_within(again.saturating_duration_since(now));
            }
        }
        failed
    }

    /// Removes the claims of a recipient to which no process can write any more, and closes a mailbox that is not used.
    fn settle(&mut self, name: &AgentName, sum: &mut TakenIn) -> Result<(), RelayError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        let settled = match &mut link.open {
            Some(open) => open.mailbox.settle()?,
            None => link.settle_kept()?,
        };
        match settled {
            SettleResult::Done => {}
            SettleResult::Again { after } => sum.look_within(after.max(SETTLE_AFTER)),
            // The mailbox reads what was written.
            SettleResult::Grown => {
                let is_held_up = link.open.as_mut().is_some_and(|open| is_full(open));
                if link.open.is_none() {
                    self.crowded.insert((link.recipient.host.clone(), name.clone()));
                }
                sum.look_within(if is_held_up { ROOM_AFTER } else { Duration::ZERO });
            }
        }
        let is_unused = |open: &OpenMailbox| open.used.elapsed() >= KEEP_OPEN;
        if link.open.as_deref().is_some_and(is_unused) && !link.has_waiting() {
            link.open = None;
        }
        if !link.recipient.is_alive && !link.has_waiting() {
            self.hold_or_release(name, true, &mut NewNames::default(), &mut Claims::default())?;
        }
        Ok(())
    }
}

/// Whether so much waits in an outbox that no more mail is taken in.
fn is_full(open: &mut OpenMailbox) -> bool {
    let outbox = open.mailbox.sink();
    let waits = outbox.next() - outbox.base() - 1;
    waits >= MOST_WAITING || outbox.waiting_bytes() >= MOST_WAITING_BYTES
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

#[cfg(test)]
mod tests {
    use crate::relay::tests::{Host, host, name};
    use crate::store::list_claims;
    use std::fs;

    #[test]
    fn mail_is_taken_in_though_a_relay_was_killed_after_it_had_claimed_it() {
        let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
        a.send("alice", "carol", "one");
        let claim = a.dir.claims().join("carol.000000000001-0123abcd.taken");
        fs::rename(a.dir.inbox(&name("carol")), claim).unwrap();
        let mut out = a.outbound();
        assert_eq!(out.take_in().unwrap().count, 1);
        a.send("alice", "carol", "two");
        assert_eq!(out.take_in().unwrap().count, 1);
        assert_eq!(out.waiting_for(&host("b")), 2);
        let claims = list_claims(&a.dir).unwrap();
        assert_eq!(claims.len(), 2);
        assert!(claims.iter().all(|claim| claim.is_taken), "no claim of a relay is mail to read");
    }
}
