//! The owner's end of a mailbox: claim, deliver, acknowledge (RELIABILITY 3.5).
//!
//! A message is acknowledged when its line is in the sink, for an agent its transcript, and the sink is synced. The claim is
//! kept longer for writers that do not know the side lock: lines that arrive late are delivered until no
//! process can write to the file.
//!
//! *Invariant:* only the holder of the life lock has a mailbox, so an inbox has one reader.

use super::attempts::Attempts;
use super::claim::{BatchIds, Claim, ClaimEnd, ClaimFile, Stage};
use super::dead::{self, DeadLetter, DeadLetters};
use super::dedup::SeenMessages;
use super::ingest::Ingest;
use super::rotation::InboxRotation;
use super::sink::{Delivered, KnownPart, MailSink, each_delivered_in};
use super::wake::WakeMode;
use super::{Drained, MailPolicy, SettleResult};
use crate::os::file::{Access, At, FileError, open_known};
use crate::store::conversations::{bring_back, put_away};
use crate::store::process::liveness::{LifeLock, LockPlace};
use crate::store::replay::release_rest;
use crate::store::transcript::Transcript;
use crate::store::{Keyring, SharedClock, StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::message::Message;
use std::collections::VecDeque;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size from which a file with holes cannot come from senders of mail, in bytes.
const SPARSE_BYTES: u64 = 1 << 30;

/// An open mailbox, which delivers to a sink.
pub struct Mailbox<S = Transcript> {
    pub(super) dir: TeamDir,
    pub(super) name: AgentName,
    pub(super) life: LockPlace,
    pub(super) rotation: InboxRotation,
    pub(super) batch_ids: BatchIds,
    pub(super) attempts: Attempts,
    pub(super) ingest: Ingest<S>,
    pub(super) claims: VecDeque<Claim>,
    /// Whether the mail of the archived conversations is known. It is read before the first claim and not at the start, which
    /// would wait for it: without an index these conversations are read whole.
    pub(super) is_archive_known: bool,
    /// Mail that was acknowledged and not yet returned, because the drain failed afterwards.
    pub(super) held_back: Drained,
}

/// A claim whose lines are in the sink, and may not be durable yet.
pub(super) struct ReadClaim {
    /// Its position among the claims.
    at: usize,
    /// Its size when it was read.
    size: u64,
    has_mail: bool,
    is_inherited: bool,
}

/// The parts of a mailbox that its owner chooses.
#[derive(Clone)]
pub struct MailboxSetup {
    /// The policy for its mail.
    pub policy: MailPolicy,
    /// The clock.
    pub clock: SharedClock,
    /// The keys of its owner.
    pub keyring: Arc<Keyring>,
}

impl<S: MailSink> Mailbox<S> {
    /// Opens the mailbox of the life lock's name. Mail left by an earlier process is returned by the first drain.
    pub fn open(
        dir: &TeamDir,
        life: &LifeLock,
        sink: S,
        policy: MailPolicy,
        clock: SharedClock,
        keyring: Arc<Keyring>,
    ) -> Result<Self, StoreError> {
        let left = InboxRotation::open(dir, life.name(), policy.fsync)?;
        Self::with(dir, life, sink, MailboxSetup { policy, clock, keyring }, left)
    }

    /// Opens one of many mailboxes, whose owner watches the folder of all inboxes, and knows the claims that are left.
    pub(crate) fn open_unwatched(
        dir: &TeamDir,
        life: &LifeLock,
        sink: S,
        setup: MailboxSetup,
        claims: Vec<ClaimFile>,
    ) -> Result<Self, StoreError> {
        let left = InboxRotation::open_unwatched(dir, life.name(), setup.policy.fsync, claims)?;
        Self::with(dir, life, sink, setup, left)
    }

    fn with(
        dir: &TeamDir,
        life: &LifeLock,
        sink: S,
        MailboxSetup { policy, clock, keyring }: MailboxSetup,
        (rotation, mut claims): (InboxRotation, Vec<Claim>),
    ) -> Result<Self, StoreError> {
        let name = life.name().clone();
        for claim in &mut claims {
            claim.note_age(clock.now());
        }
        let has_claims = !claims.is_empty();
        let is_archive_known = has_claims || S::IS_WHOLE;
        let known = if has_claims {
            KnownMail::of_all(&sink, dir, &name, &mut claims)?
        } else {
            KnownMail::of(&sink, dir, &name, KnownPart::Current, &mut claims)?
        };
        if !claims.is_empty() {
            for letter in dead::read_all(dir, &name)? {
                if let Some(claim) = claims.iter_mut().find(|c| c.batch_id == letter.batch_id) {
                    claim.recorded.dead = claim.recorded.dead.max(Some(letter.offset));
                }
            }
        }
        let KnownMail { seen, newest } = known;
        let known = claims.iter().map(|claim| claim.batch_id.as_str()).chain([newest.as_str()]);
        let batch_ids =
            if S::IS_WHOLE { BatchIds::after(known) } else { BatchIds::open(dir, &name, known)? };
        let dead = DeadLetters::of(dir, &name);
        failpoint::hit("recover.known");
        Ok(Self {
            rotation,
            batch_ids,
            attempts: Attempts::of(dir, &name),
            ingest: Ingest { sink, dead, seen, policy, clock, keyring },
            claims: claims.into(),
            is_archive_known,
            held_back: Drained::default(),
            dir: dir.clone(),
            name,
            life: life.place()?,
        })
    }

    /// Delivers all waiting mail. When this returns, the mail is acknowledged: in the transcript, on disk. After
    /// an error, mail that was not acknowledged stays in its file and is delivered by a later drain.
    pub fn drain(&mut self) -> Result<Drained, StoreError> {
        self.check_life()?;
        match self.drain_what_is_there() {
            // An outsider removed an empty folder.
            Err(why) if why.is_without_team() => {
                self.dir.complete()?;
                self.drain_what_is_there()
            }
            drained => drained,
        }
    }

    /// An agent must not repair a team that is being removed: `rm -rf` would fail, and leave half of it.
    pub(super) fn check_life(&self) -> Result<(), StoreError> {
        if self.life.is_removed() {
            self.dir.is_still_there()?;
            Err(StoreError::Gone(self.dir.root().to_owned()))
        } else {
            Ok(())
        }
    }

    /// Like [`Mailbox::drain`], at the end of the owner's process: mail that a replay still holds is delivered, too.
    pub(crate) fn drain_last(&mut self) -> Result<Drained, StoreError> {
        if let Err(why) = release_rest(&self.dir, &self.name) {
            tracing::warn!(%why, "held mail is not delivered");
        }
        self.drain()
    }

    fn drain_what_is_there(&mut self) -> Result<Drained, StoreError> {
        let fsync = self.ingest.policy.fsync;
        if !self.is_archive_known && self.rotation.has_mail() {
            self.know_archive()?;
        }
        // Mail that comes from now on is claimed by the next drain.
        let claimed = if self.is_archive_known {
            self.rotation.claim(&mut self.batch_ids, fsync)
        } else {
            Ok(None)
        };
        let claimed = claimed.map(|claim| self.claims.extend(claim));
        // Events are consumed after the claim, so that a late line that is older than a line of this claim is
        // known.
        self.rotation.catch_up()?;
        // Older claims first: a late line in them is older than this claim.
        self.deliver_claims()?;
        match claimed {
            Err(why) if self.held_back.is_empty() => Err(why),
            // A broken inbox must not delay the mail of earlier claims; the next drain reports it.
            Ok(()) | Err(_) => Ok(std::mem::take(&mut self.held_back)),
        }
    }

    /// Reads the mail of the archived conversations, and that of the current one again: the newest comes last.
    pub(super) fn know_archive(&mut self) -> Result<(), StoreError> {
        // There is no claim before the archive is known.
        let known = KnownMail::of_all(&self.ingest.sink, &self.dir, &self.name, &mut [])?;
        self.ingest.seen = known.seen;
        self.batch_ids.continue_after(&known.newest);
        self.is_archive_known = true;
        Ok(())
    }

    fn deliver_claims(&mut self) -> Result<(), StoreError> {
        for at in 0..self.claims.len() {
            self.deliver(at)?;
        }
        self.rotation.waker.forget_written();
        Ok(())
    }

    fn deliver(&mut self, at: usize) -> Result<(), StoreError> {
        let Some(read) = self.read(at)? else { return Ok(()) };
        self.ingest.sync()?;
        self.acknowledge(&read)
    }

    /// Writes the new lines of a claim into the sink. They are not durable yet; `None` if there is nothing to read.
    pub(super) fn read(&mut self, at: usize) -> Result<Option<ReadClaim>, StoreError> {
        let Some(claim) = self.claims.get_mut(at) else { return Ok(None) };
        let is_watched = self.rotation.waker.mode() == WakeMode::Events;
        if claim.is_read() && is_watched && !self.rotation.waker.may_be_written(claim.watch_id) {
            return Ok(None);
        }
        let path = claim.path();
        let opened = match claim.unread.take() {
            Some(file) => file.metadata().at(&path).map(|known| (file, known)),
            None => open_known(&path, Access::Read),
        };
        let (file, known) = match opened {
            Ok(opened) => opened,
            Err(why) if why.is_missing() => {
                // An outsider removed the claim.
                claim.stage = Stage::Taken;
                return Ok(None);
            }
            Err(why @ (FileError::NotRegular { .. } | FileError::ForeignOwner { .. })) => {
                return self.quarantine(at, why.to_string()).map(|()| None);
            }
            Err(why) => return Err(why.into()),
        };
        if claim.is_read() && known.len() == claim.size {
            return Ok(None);
        }
        if known.len() >= SPARSE_BYTES && known.blocks() * 512 < known.len() {
            let why = format!("{} bytes, most of them a hole", known.len());
            return self.quarantine(at, why).map(|()| None);
        }
        let is_inherited = claim.stage == Stage::Inherited;
        if is_inherited && self.attempts.is_poison(&claim.batch_id)? {
            let why = "poison: its delivery crashed again and again".into();
            return self.quarantine(at, why).map(|()| None);
        }
        let before = self.held_back.mail.len();
        self.ingest.deliver(claim, (file, known.len()), &path, &mut self.held_back)?;
        let has_mail = self.held_back.mail.len() > before;
        Ok(Some(ReadClaim { at, size: known.len(), has_mail, is_inherited }))
    }

    /// Acknowledges the mail of a claim that was read, once it is durable.
    pub(super) fn acknowledge(&mut self, read: &ReadClaim) -> Result<(), StoreError> {
        let Some(claim) = self.claims.get_mut(read.at) else { return Ok(()) };
        if read.is_inherited {
            self.attempts.clear()?;
        }
        claim.size = read.size;
        claim.grown = Instant::now();
        let is_mail_to_act_on =
            read.has_mail || matches!(claim.stage, Stage::Inherited | Stage::Acknowledged);
        let stage = if is_mail_to_act_on { Stage::Acknowledged } else { Stage::Taken };
        Ok(claim.enter(stage)?)
    }

    /// Moves a whole claim that cannot be read to the dead letters.
    fn quarantine(&mut self, at: usize, reason: String) -> Result<(), StoreError> {
        let Some(claim) = self.claims.get_mut(at) else { return Ok(()) };
        let path = claim.path();
        let kept = self.dir.dead_claim(&self.name, &claim.batch_id);
        let Ingest { dead, clock, policy, .. } = &mut self.ingest;
        let mut letter = DeadLetter::new(&claim.batch_id, 0, reason, clock.now());
        letter.file = Some(kept.clone());
        let notice = letter.notice();
        dead.append(&[letter])?;
        dead.sync(policy.fsync)?;
        failpoint::hit("recover.lettered");
        fs::rename(&path, &kept).at(&path)?;
        failpoint::hit("recover.quarantined");
        self.attempts.clear()?;
        self.held_back.notices.push(notice);
        claim.stage = Stage::Taken;
        Ok(())
    }

    /// Marks all drained mail as acted on. On an error the mail still counts as unread.
    pub fn mark_taken(&mut self) -> Result<(), StoreError> {
        for claim in &mut self.claims {
            if claim.stage == Stage::Acknowledged {
                failpoint::hit("drain.marking");
                claim.enter(Stage::Taken)?;
                failpoint::hit("drain.marked");
            }
        }
        Ok(())
    }

    /// Removes the claims that no process can write to any more. On an error they stay, which is harmless.
    pub fn settle(&mut self) -> Result<SettleResult, StoreError> {
        if S::IS_WATCHED {
            self.rotation.prepare_next();
        }
        let mut settled = SettleResult::Done;
        let mut at = 0;
        while at < self.claims.len() {
            match self.settle_claim(at)? {
                SettleResult::Done => drop(self.claims.remove(at)),
                again @ (SettleResult::Grown | SettleResult::Again { .. }) => {
                    (settled, at) = (settled.min(again), at + 1);
                }
            }
        }
        Ok(settled)
    }

    fn settle_claim(&mut self, at: usize) -> Result<SettleResult, StoreError> {
        let Some(claim) = self.claims.get_mut(at) else { return Ok(SettleResult::Done) };
        match claim.settle()? {
            ClaimEnd::Later(settled) => return Ok(settled),
            ClaimEnd::Gone => return Ok(SettleResult::Done),
            ClaimEnd::Whole => {}
            ClaimEnd::Fragment(bytes) => {
                let notice = self.ingest.reject_fragment(claim, &bytes)?;
                self.held_back.notices.push(notice);
            }
        }
        claim.remove()?;
        Ok(SettleResult::Done)
    }

    /// Whether a drain would return mail. This is cheap: it is called after every wake-up and by the slow poll.
    pub fn has_unread(&self) -> bool {
        let rotation = &self.rotation;
        if !self.held_back.is_empty() || rotation.has_mail() {
            return true;
        }
        let is_blind = !self.claims.is_empty() && rotation.waker.is_blind();
        self.claims.iter().any(|claim| {
            // A late writer to a taken claim is also found when the claim is settled.
            let may_have_grown = is_blind
                || claim.stage != Stage::Taken
                || rotation.waker.may_be_written(claim.watch_id);
            !claim.is_read() || (may_have_grown && claim.has_grown())
        })
    }

    /// Whether claims are kept for late writers.
    pub(crate) fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Returns a descriptor that is readable when mail may have arrived. Drain before waiting on it.
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.rotation.wake_descriptor()
    }

    /// Consumes the pending events. The owner's own claims cause events as well, so call [`Mailbox::has_unread`]
    /// afterwards. Fails if neither file events nor a fifo are available.
    pub fn acknowledge_events(&mut self) -> Result<(), StoreError> {
        self.rotation.waker.acknowledge()
    }

    /// Returns the mechanism by which mail wakes this owner.
    pub fn wake_mode(&self) -> WakeMode {
        self.rotation.waker.mode()
    }

    /// Returns the period in which to call [`Mailbox::has_unread`] without an event.
    pub fn poll(&self) -> Duration {
        self.rotation.waker.poll()
    }

    /// Returns the place to which the mailbox delivers.
    pub fn sink(&mut self) -> &mut S {
        &mut self.ingest.sink
    }
}

/// The mailbox of an agent, whose mail belongs to conversations.
impl Mailbox<Transcript> {
    /// Returns the transcript.
    pub fn transcript(&mut self) -> &mut Transcript {
        self.sink()
    }

    /// Archives the conversation and starts a new one. Claims of an earlier process belong to the old
    /// conversation; their mail is returned. On an error the old conversation continues.
    pub fn start_anew(&mut self) -> Result<Drained, StoreError> {
        self.know_archive_before_change()?;
        self.change_conversation(None)
    }

    /// Like [`Mailbox::start_anew`], but an archived conversation continues.
    pub(crate) fn continue_archived(&mut self, archived: &Path) -> Result<Drained, StoreError> {
        self.know_archive_before_change()?;
        // Its mail is known from now on: a member that comes back with it may repeat a send.
        each_delivered_in(archived, &mut |mail| record_mail(mail, &mut [], &mut self.ingest.seen))?;
        self.change_conversation(Some(archived))
    }

    /// Reads the archived conversations if the current one has mail: it would hide the mail of those before it.
    fn know_archive_before_change(&mut self) -> Result<(), StoreError> {
        if self.is_archive_known || self.ingest.seen.is_empty() {
            return Ok(());
        }
        self.know_archive()
    }

    fn change_conversation(&mut self, archived: Option<&Path>) -> Result<Drained, StoreError> {
        self.deliver_claims()?;
        failpoint::hit("recover.gathered");
        let fsync = self.ingest.policy.fsync;
        match archived {
            Some(archived) => bring_back(&self.dir, &self.name, archived, fsync)?,
            None => put_away(&self.dir, &self.name, fsync)?,
        }
        self.ingest.sink = Transcript::open(&self.dir, &self.name)?;
        Ok(std::mem::take(&mut self.held_back))
    }
}

/// The mail that a sink has.
struct KnownMail {
    seen: SeenMessages,
    /// The newest batch id.
    newest: String,
}

impl KnownMail {
    /// Reads all the mail by which repeated mail is recognized.
    fn of_all(
        sink: &impl MailSink,
        dir: &TeamDir,
        name: &AgentName,
        claims: &mut [Claim],
    ) -> Result<Self, StoreError> {
        let oldest = claims.first().map(|claim| claim.batch_id.clone());
        Self::of(sink, dir, name, KnownPart::All(oldest.as_deref()), claims)
    }

    fn of(
        sink: &impl MailSink,
        dir: &TeamDir,
        name: &AgentName,
        part: KnownPart<'_>,
        claims: &mut [Claim],
    ) -> Result<Self, StoreError> {
        let (mut seen, mut newest) = (SeenMessages::default(), String::new());
        sink.each_delivered(dir, name, part, &mut |mail| {
            record_mail(mail, claims, &mut seen);
            if *mail.batch_id > *newest {
                mail.batch_id.clone_into(&mut newest);
            }
        })?;
        Ok(Self { seen, newest })
    }
}

/// Records delivered mail: its offset in an existing claim, and its message as seen.
fn record_mail(mail: &Delivered<'_>, claims: &mut [Claim], seen: &mut SeenMessages) {
    let Delivered { batch_id, offset, message } = *mail;
    if let Some(claim) = claims.iter_mut().find(|claim| claim.batch_id == batch_id) {
        claim.recorded.mail = claim.recorded.mail.max(Some(offset));
    }
    if let Some(object) = message
        && let Ok(message) = Message::read(object)
        && let Some(id) = &message.id
    {
        seen.look_up(id, &message);
        seen.keep();
    }
}
