//! The way of mail to one member of another host: its name and mailbox on this host, and the outbox.

use super::RelayError;
use crate::store::relay::{Outbox, OwnTerms};
use crate::store::{
    ClaimFile, Fsync, KeptClaims, Keyring, LifeLock, LifeRecord, MailPolicy, Mailbox, MailboxSetup,
    SettleResult, SharedClock, StoreError, TeamDir, inbox, keyring, list_claims,
};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::limits::MAX_LINE_BYTES;
use std::collections::BTreeMap;
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
    pub(super) open: Option<Box<OpenMailbox>>,
    /// Held while the recipient is alive or its mailbox is open: then its name is taken on this host, too.
    pub(super) life: Option<LifeLock>,
    /// The claims of a mailbox that was closed to make room.
    pub(super) kept: KeptClaims,
    /// The outbox without the mailbox, while the name is free on this host or belongs to it, or others need the room: lines still
    /// wait in it.
    pub(super) parked: Option<Outbox>,
    /// Whether all claims on disk are its own: an earlier process, or an agent of this host, has left none.
    pub(super) is_ours: bool,
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
            kept: KeptClaims::default(),
            parked: None,
            is_ours: false,
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
        self.waiting() > 0
            || !self.kept.is_empty()
            || self.open.as_ref().is_some_and(|open| open.has_mail())
    }

    /// Whether lines wait that were not published yet.
    pub(super) fn is_ready(&mut self) -> bool {
        let cursor = self.cursor;
        self.outbox().is_some_and(|outbox| outbox.has_waiting() && cursor < outbox.next())
    }

    /// Whether its mailbox was closed to make room, with its name still taken.
    pub(super) fn has_made_room(&self) -> bool {
        self.is_ours && self.parked.is_some()
    }

    /// Closes the mailbox and gives the name back.
    pub(super) fn release(&mut self) {
        (self.open, self.life, self.kept) = (None, None, KeptClaims::default());
        self.is_ours = false;
    }

    /// Whether mail is in the files of a mailbox that is closed. Of one that this process has closed, or only taken the name,
    /// there is no more than the inbox.
    pub(super) fn has_mail(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        claims: &mut Claims,
    ) -> Result<bool, StoreError> {
        if self.open.is_some() {
            return Ok(false);
        }
        let is_known = self.is_known && (self.parked.is_none() || self.life.is_some());
        if is_known && self.life.is_some() {
            return Ok(inbox::has_lines(dir, name));
        }
        Ok(inbox::has_mail(dir, name)
            || !claims.of(dir, name)?.is_empty()
            || (!is_known && dir.relay_outbox(name).exists()))
    }

    /// Has the lines that wait published to a host that has none of them.
    pub(super) fn publish_anew(&mut self) {
        self.is_published = false;
        self.cursor = self.outbox().map_or(1, |outbox| outbox.base() + 1);
    }

    /// Closes a mailbox that has no mail which was not taken in, without its descriptors: other mailboxes need its room. Lines
    /// that are not acknowledged, and claims for late writers, are kept. Returns whether it is open still.
    pub(super) fn make_room(&mut self) -> bool {
        let Some(open) = self.open.take() else { return false };
        let OpenMailbox { mailbox, used } = *open;
        match mailbox.close() {
            Ok((mut outbox, kept)) => {
                outbox.close();
                (self.kept, self.parked) = (kept, Some(outbox));
                self.drop_empty();
            }
            Err(mailbox) => self.open = Some(Box::new(OpenMailbox { mailbox: *mailbox, used })),
        }
        self.open.is_some()
    }

    /// Whether nothing is to be done for it until there is mail, or a change of its recipient.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_closed = self.open.is_none() && self.parked.is_none() && self.kept.is_empty();
        is_closed && self.is_known && self.life.is_some() == self.recipient.is_alive
    }

    /// Forgets an outbox without lines, whose mailbox has made room.
    pub(super) fn drop_empty(&mut self) {
        if self.has_made_room() && self.kept.is_empty() && self.waiting() == 0 {
            self.parked = None;
        }
    }

    /// Removes the claims that were kept, if no process can write to them any more.
    pub(super) fn settle_kept(&mut self) -> Result<SettleResult, StoreError> {
        let settled = self.kept.settle()?;
        self.drop_empty();
        Ok(settled)
    }

    /// Returns the claims that are left for its mailbox.
    pub(super) fn left(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        claims: &mut Claims,
    ) -> Result<Vec<ClaimFile>, StoreError> {
        if self.is_ours { Ok(Vec::new()) } else { Ok(claims.of(dir, name)?.to_vec()) }
    }

    /// Opens the mailbox, whose name is taken. These claims are left.
    pub(super) fn open(
        &mut self,
        dir: &TeamDir,
        clock: &SharedClock,
        terms: &OwnTerms,
        left: Vec<ClaimFile>,
    ) -> Result<(), RelayError> {
        let has_made_room = self.has_made_room();
        let Some(life) = &self.life else { return Ok(()) };
        let name = life.name();
        let keyring = Arc::new(Keyring::new(dir.clone()));
        keyring.own_with_same_key(name, Fsync::Always)?;
        let outbox = match self.parked.take().filter(|_| has_made_room) {
            Some(outbox) => outbox,
            None => {
                let outbox = Outbox::open(dir, name, terms)?;
                self.cursor = outbox.base() + 1;
                // By an earlier process.
                self.is_published = outbox.has_waiting();
                outbox
            }
        };
        // The limits of content are those of the senders and of the recipient's host.
        let policy = MailPolicy { fsync: Fsync::Always, max_content: MAX_LINE_BYTES };
        let setup = MailboxSetup { policy, clock: Arc::clone(clock), keyring };
        let opened = Mailbox::open_unwatched(dir, life, outbox, setup, left).inspect_err(|_| {
            // Its lines leave without a mailbox meanwhile.
            self.parked = Outbox::open(dir, name, terms).ok();
        });
        let mut mailbox = opened?;
        mailbox.take_back(std::mem::take(&mut self.kept));
        self.open = Some(Box::new(OpenMailbox { mailbox, used: Instant::now() }));
        (self.is_ours, self.is_known) = (true, true);
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
        self.release();
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
    open: &'a mut Option<Box<OpenMailbox>>,
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

/// Takes the names of members of other hosts. Mail for them can be written once [`NewNames::prepare`] has returned.
#[derive(Debug, Default)]
pub(super) struct NewNames(Vec<AgentName>);

impl NewNames {
    pub(super) fn take(
        &mut self,
        dir: &TeamDir,
        name: &AgentName,
        record: LifeRecord,
    ) -> Result<LifeLock, RelayError> {
        let life = LifeLock::take(dir, name, record)?;
        self.0.push(name.clone());
        Ok(life)
    }

    /// Makes the inboxes and the keys of the names that were taken, with few syncs for all of them.
    pub(super) fn prepare(&self, dir: &TeamDir) -> Result<(), RelayError> {
        let names: Vec<_> = self.0.iter().collect();
        inbox::ensure_all(dir, &names).map_err(crate::bus::BusError::from)?;
        Ok(keyring::ensure_all(dir, &names)?)
    }

    /// Does the same for one name.
    pub(super) fn prepare_one(dir: &TeamDir, name: &AgentName) -> Result<(), RelayError> {
        inbox::ensure(dir, name).map_err(crate::bus::BusError::from)?;
        Ok(keyring::ensure_all(dir, &[name])?)
    }

    pub(super) fn names(&self) -> &[AgentName] {
        &self.0
    }
}

/// The claims that earlier processes have left. Their folder is read once for many names, and only if that is needed.
#[derive(Debug, Default)]
pub(super) struct Claims(Option<BTreeMap<AgentName, Vec<ClaimFile>>>);

impl Claims {
    /// Returns the claims of a name, oldest first.
    pub(super) fn of(
        &mut self,
        dir: &TeamDir,
        name: &AgentName,
    ) -> Result<&[ClaimFile], StoreError> {
        if self.0.is_none() {
            let mut all: BTreeMap<AgentName, Vec<ClaimFile>> = BTreeMap::new();
            for file in list_claims(dir)? {
                all.entry(file.owner.clone()).or_default().push(file);
            }
            self.0 = Some(all);
        }
        let of_name = self.0.as_ref().and_then(|all| all.get(name));
        Ok(of_name.map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::Outbound;
    use crate::relay::tests::{Host, Owner, acknowledge, deliver, frames_for, host, name};
    use crate::store::dead;
    use crate::store::lock::exclusive;
    use crate::store::{Liveness, liveness};
    use crate::wire::carried::Frame;
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Write;
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

    /// Returns a host with so many members of another one, and their names.
    fn with_many(count: usize) -> (Host, Vec<String>) {
        let names: Vec<_> = (0..count).map(|at| format!("m{at:02}")).collect();
        let members = names.iter().map(|name| (name.as_str(), Some("b")));
        let members: Vec<_> = members.chain([("alice", None)]).collect();
        (Host::new("a", &members), names)
    }

    /// Takes in until nothing is left for late writers; returns the number of messages.
    fn take_in_all(out: &mut Outbound) -> usize {
        let (begin, mut count) = (Instant::now(), 0);
        loop {
            assert!(begin.elapsed() < Duration::from_secs(60), "{count}");
            let looked = out.take_in().unwrap();
            count += looked.count;
            let Some(after) = looked.again else { return count };
            thread::park_timeout(after);
        }
    }

    #[test]
    fn a_name_that_cannot_be_taken_holds_up_no_other_one() {
        let (a, names) = with_many(3);
        // As a program of another user leaves it.
        fs::create_dir_all(a.dir.mailbox_key(&name("m01")).join("full")).unwrap();
        let mut out = a.closed_outbound();
        out.set_recipients(a.recipients()).unwrap_err();
        for to in [&names[0], &names[2]] {
            a.send("alice", to, "one");
        }
        let begin = Instant::now();
        while out.waiting_for(&host("b")) < 2 {
            assert!(begin.elapsed() < Duration::from_secs(60));
            drop(out.take_in());
        }
        let is_held =
            |of: &str| !matches!(liveness::probe(&a.dir, &name(of)).unwrap(), Liveness::Dead);
        assert!(is_held("m00") && !is_held("m01") && is_held("m02"));
    }

    #[test]
    fn lines_that_wait_go_on_while_no_more_can_be_taken_in() {
        let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
        let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
        let (mut carol, mut inbound) = (Owner::of(&b, "carol"), b.inbound());
        let mut out = a.outbound();
        a.send("alice", "carol", "one");
        assert_eq!(out.take_in().unwrap().count, 1);
        let inbox = a.dir.inbox(&name("carol"));
        fs::remove_file(&inbox).unwrap();
        fs::create_dir_all(inbox.join("full")).unwrap();
        out.take_in().unwrap_err();
        assert_eq!(out.waiting_for(&host("b")), 1);
        let arrived = deliver(&mut inbound, &host("a"), &frames_for(&mut out, &host("b")));
        acknowledge(&mut out, &host("b"), &arrived);
        assert_eq!(out.waiting_for(&host("b")), 0);
        assert_eq!(carol.mail().len(), 1);
        fs::remove_dir_all(&inbox).unwrap();
        a.send("alice", "carol", "two");
        assert_eq!(take_in_all(&mut out), 1);
    }

    #[test]
    fn a_few_mailboxes_take_in_the_mail_of_many_without_waiting_for_late_writers() {
        let (a, names) = with_many(12);
        let mut out = a.outbound();
        out.most_open = 4;
        for name in &names {
            a.send("alice", name, "x");
        }
        let kept = || list_claims(&a.dir).unwrap().len();
        assert_eq!([(); 2].map(|()| out.take_in().unwrap().count), [4, 4]);
        assert_eq!(kept(), 8, "for late writers, while others wait for room");
        // Their claims are looked after in four turns.
        out.most_settled = 3;
        assert_eq!(out.take_in().unwrap().count, 4);
        let frames = frames_for(&mut out, &host("b"));
        let lines = Frame::parse(&frames[0]).unwrap().lines.len();
        assert_eq!((frames.len(), lines, out.waiting_for(&host("b"))), (1, 12, 12));
        assert_eq!(take_in_all(&mut out), 0);
        assert_eq!(kept(), 0);
        assert!(frames_for(&mut out, &host("b")).is_empty(), "all were published");
    }

    #[test]
    fn what_is_written_late_into_the_claim_of_a_closed_mailbox_is_taken_in() {
        let (a, names) = with_many(3);
        let mut out = a.outbound();
        out.most_open = 1;
        let [first, other, last] = [0, 1, 2].map(|at| names[at].as_str());
        let open = |name: &str| {
            let name = AgentName::mailbox(name).unwrap();
            std::fs::OpenOptions::new().append(true).open(a.dir.inbox(&name)).unwrap()
        };
        let (mut whole, mut torn) = (open(first), open(other));
        for name in &names {
            a.send("alice", name, "x");
        }
        assert_eq!([(); 3].map(|()| out.take_in().unwrap().count), [1, 1, 1]);
        whole.write_all(b"{\"from\":\"alice\",\"content\":\"late\"}\n").unwrap();
        torn.write_all(b"{\"from\":\"alice\",\"con").unwrap();
        drop((whole, torn));
        assert_eq!(take_in_all(&mut out), 1);
        let name = |text| AgentName::mailbox(text).unwrap();
        let letters = |text| dead::read_all(&a.dir, &name(text)).unwrap().len();
        assert_eq!([first, other, last].map(letters), [0, 1, 0], "the torn line");
        let of = out.waiting_lines().of(&host("b"));
        assert_eq!([first, other, last].map(|name| of[name]), [2, 1, 1]);
    }

    #[test]
    fn only_mail_of_which_an_event_tells_is_looked_for_until_all_is() {
        let (a, names) = with_many(2);
        let mut out = a.outbound();
        for name in &names {
            a.send("alice", name, "x");
        }
        let one = BTreeSet::from([AgentName::mailbox(&names[1]).unwrap()]);
        assert_eq!(out.take_in_for(&BTreeSet::new()).unwrap().count, 0);
        assert_eq!(out.take_in_for(&one).unwrap().count, 1);
        assert_eq!(out.take_in().unwrap().count, 1);
    }

    #[test]
    fn mailboxes_that_are_drained_together_wait_for_no_lock_but_their_own() {
        let (a, names) = with_many(20);
        let mut out = a.outbound();
        // Their mailboxes are open from then on.
        for name in &names {
            a.send("alice", name, "x");
        }
        assert_eq!(take_in_all(&mut out), 20);
        for name in &names {
            a.send("alice", name, "y");
        }
        let busy = AgentName::mailbox(&names[7]).unwrap();
        let held = exclusive(&a.dir.inbox_lock(&busy), Duration::from_secs(10)).unwrap();
        let outboxes = || {
            let lines = |name: &String| {
                let path = a.dir.relay_outbox(&AgentName::mailbox(name).unwrap());
                std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"seq\":2,"))
            };
            names.iter().filter(|name| lines(name)).count()
        };
        thread::scope(|scope| {
            let taking = scope.spawn(|| out.take_in().unwrap().count);
            let begin = Instant::now();
            while outboxes() < 19 && begin.elapsed() < Duration::from_secs(60) {
                thread::park_timeout(Duration::from_millis(1));
            }
            assert_eq!(outboxes(), 19);
            drop(held);
            assert_eq!(taking.join().unwrap(), 20);
        });
    }

    #[test]
    fn names_that_are_taken_have_inboxes_and_keys_which_stay() {
        let (a, names) = with_many(3);
        let files = || {
            let key = |name: &String| {
                let name = AgentName::mailbox(name).unwrap();
                assert_eq!(std::fs::metadata(a.dir.inbox(&name)).unwrap().len(), 0);
                std::fs::read_to_string(a.dir.mailbox_key(&name)).unwrap()
            };
            names.iter().map(key).collect::<Vec<_>>()
        };
        drop(a.outbound());
        let before = files();
        assert!(before[0].contains("key") && before[0] != before[1]);
        drop(a.outbound());
        assert_eq!(files(), before);
    }
}
