//! The owner's end of a mailbox: claim, deliver, acknowledge (RELIABILITY 3.5).
//!
//! A message is taken in when its line stands in the transcript and the transcript is synced. A claim
//! outlives that for the sake of writers that do not know our locks: until nobody can write to it any
//! more, whatever still arrives in it is delivered.
//!
//! *Invariant:* only the holder of the life lock has one of these, so there is one reader per inbox.

use super::attempts::Attempts;
use super::batch_id::BatchIds;
use super::claim::{Claim, Stage};
use super::dead::{self, DeadLetter, DeadLetters};
use super::dedup::Seen;
use super::drained::{Drained, MailNotice, MailPolicy, SettleResult};
use super::ingest::Ingest;
use super::late_writers::{LateWriters, late_writers, too_early};
use super::rotation::InboxRotation;
use super::wake::WakeMode;
use crate::os::file::{Access, At, FileError, open, open_known};
use crate::store::process::liveness::LifeLock;
use crate::store::transcript::{TakenIn, Transcript, archive, each_mail, latest_archives};
use crate::store::{SharedClock, StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::limits::LATE_WRITER_DELAY;
use crate::wire::message::Message;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// A file of that size with holes in it was not written by any sender of mail.
const SPARSE_BYTES: u64 = 1 << 30;

/// An open mailbox.
pub struct Mailbox {
    dir: TeamDir,
    name: AgentName,
    inlet: InboxRotation,
    batch_ids: BatchIds,
    attempts: Attempts,
    delivery: Ingest,
    claims: VecDeque<Claim>,
    /// Taken in, but not brought yet: the drain failed afterwards.
    held_back: Drained,
}

impl Mailbox {
    /// Opens the mailbox of the life's name. What an earlier life left comes with the first drain.
    ///
    /// # Errors
    /// A file refused.
    pub fn open(
        dir: &TeamDir,
        life: &LifeLock,
        transcript: Transcript,
        policy: MailPolicy,
        clock: SharedClock,
    ) -> Result<Self, StoreError> {
        let name = life.name().clone();
        let (inlet, mut claims) = InboxRotation::open(dir, &name, policy.fsync)?;
        let mut seen = Seen::default();
        let mut newest = String::new();
        let oldest = claims.first().map(|claim| claim.batch_id.as_str());
        let mut conversations = latest_archives(dir, &name, oldest)?;
        conversations.push(dir.transcript(&name));
        for conversation in conversations {
            each_mail(&conversation, |taken_in| {
                recall(&taken_in, &mut claims, &mut seen);
                newest = taken_in.batch_id;
            })?;
        }
        recall_dead(dir, &name, &mut claims)?;
        let known = claims.iter().map(|claim| claim.batch_id.as_str()).chain([newest.as_str()]);
        let batch_ids = BatchIds::open(dir, &name, known)?;
        let dead = DeadLetters::of(dir, &name);
        failpoint::hit("recover.known");
        Ok(Self {
            inlet,
            batch_ids,
            attempts: Attempts::of(dir, &name),
            delivery: Ingest { transcript, dead, seen, policy, clock },
            claims: claims.into(),
            held_back: Drained::default(),
            dir: dir.clone(),
            name,
        })
    }

    /// Takes in everything that is there. Returns when it is acknowledged: in the transcript, on disk.
    ///
    /// # Errors
    /// What was not acknowledged stays where it is, and comes with a later drain.
    pub fn drain(&mut self) -> Result<Drained, StoreError> {
        self.dir.is_still_there()?;
        match self.drain_what_is_there() {
            // Somebody tidied a folder away that seemed to be empty.
            Err(why) if why.is_without_team() => {
                self.dir.complete()?;
                self.drain_what_is_there()
            }
            drained => drained,
        }
    }

    fn drain_what_is_there(&mut self) -> Result<Drained, StoreError> {
        let fsync = self.delivery.policy.fsync;
        let claimed = self.inlet.claim(&mut self.batch_ids, fsync);
        let claimed = claimed.map(|claim| self.claims.extend(claim));
        // After the claim: a late line that its writer wrote before one in this claim is known by now.
        self.inlet.catch_up()?;
        // Older claims first: what a late writer added there is older than what came with this claim.
        self.take_in_claims()?;
        match claimed {
            Err(why) if self.held_back.is_empty() => Err(why),
            // A broken inbox must not hold up what was claimed before; the next drain reports it.
            Ok(()) | Err(_) => Ok(std::mem::take(&mut self.held_back)),
        }
    }

    /// Puts the conversation away and begins a new one. What an earlier life had claimed belongs to the
    /// old conversation and is returned.
    ///
    /// # Errors
    /// The old conversation goes on.
    pub fn start_anew(&mut self) -> Result<Drained, StoreError> {
        self.take_in_claims()?;
        failpoint::hit("recover.gathered");
        archive(&self.dir, &self.name, self.delivery.policy.fsync)?;
        failpoint::hit("recover.archived");
        self.delivery.transcript = Transcript::open(&self.dir, &self.name)?;
        Ok(std::mem::take(&mut self.held_back))
    }

    fn take_in_claims(&mut self) -> Result<(), StoreError> {
        for at in 0..self.claims.len() {
            self.take_in(at)?;
        }
        self.inlet.waker.forget_written();
        Ok(())
    }

    fn take_in(&mut self, at: usize) -> Result<(), StoreError> {
        let Some(claim) = self.claims.get_mut(at) else { return Ok(()) };
        let is_watched = self.inlet.waker.mode() == WakeMode::Events;
        if claim.is_read() && is_watched && !self.inlet.waker.may_be_written(claim.mark) {
            return Ok(());
        }
        let path = claim.path(&self.dir, &self.name);
        let (file, known) = match open_known(&path, Access::Read) {
            Ok(opened) => opened,
            Err(why) if why.is_missing() => {
                // Somebody removed it: nothing can be read there any more.
                claim.stage = Stage::Taken;
                return Ok(());
            }
            Err(why @ (FileError::NotRegular { .. } | FileError::ForeignOwner { .. })) => {
                return self.quarantine(at, why.to_string());
            }
            Err(why) => return Err(why.into()),
        };
        if claim.is_read() && known.len() == claim.size {
            return Ok(());
        }
        if known.len() >= SPARSE_BYTES && known.blocks() * 512 < known.len() {
            return self.quarantine(at, format!("{} bytes, most of them a hole", known.len()));
        }
        let is_inherited = claim.stage == Stage::Inherited;
        if is_inherited && self.attempts.is_poison(&claim.batch_id)? {
            return self.quarantine(at, "poison: its delivery crashed again and again".into());
        }
        let before = self.held_back.mail.len();
        self.delivery.take_in(claim, file, &path, &mut self.held_back)?;
        if is_inherited {
            self.attempts.clear()?;
        }
        claim.size = known.len();
        claim.grown = Instant::now();
        let stage = match claim.stage {
            // Nobody has to act on it.
            Stage::Fresh | Stage::Taken | Stage::InheritedTaken
                if self.held_back.mail.len() == before =>
            {
                Stage::Taken
            }
            Stage::Fresh
            | Stage::Inherited
            | Stage::InheritedTaken
            | Stage::Acknowledged
            | Stage::Taken => Stage::Acknowledged,
        };
        Ok(claim.enter(stage, &self.dir, &self.name)?)
    }

    /// Moves a claim away that cannot be read, whole.
    fn quarantine(&mut self, at: usize, reason: String) -> Result<(), StoreError> {
        let Some(claim) = self.claims.get(at) else { return Ok(()) };
        let path = claim.path(&self.dir, &self.name);
        let kept = self.dir.dead_claim(&self.name, &claim.batch_id);
        let Ingest { dead, clock, policy, .. } = &mut self.delivery;
        let mut letter = DeadLetter::new(&claim.batch_id, 0, reason.clone(), clock.now());
        letter.file = Some(kept.clone());
        dead.append(&[letter])?;
        dead.sync(policy.fsync)?;
        failpoint::hit("recover.lettered");
        fs::rename(&path, &kept).at(&path)?;
        failpoint::hit("recover.quarantined");
        self.attempts.clear()?;
        let batch_id = claim.batch_id.clone();
        self.held_back.notices.push(MailNotice::Dead { reason, batch_id, offset: 0 });
        if let Some(claim) = self.claims.get_mut(at) {
            claim.stage = Stage::Taken;
        }
        Ok(())
    }

    /// The owner has acted on everything it drained: whoever looks sees no unread mail any more.
    ///
    /// # Errors
    /// The mail still looks unread.
    pub fn mark_taken(&mut self) -> Result<(), StoreError> {
        for claim in &mut self.claims {
            if claim.stage == Stage::Acknowledged {
                failpoint::hit("drain.marking");
                claim.enter(Stage::Taken, &self.dir, &self.name)?;
                failpoint::hit("drain.marked");
            }
        }
        Ok(())
    }

    /// Lets go of the claims that nobody can write to any more, and does what else a drain left for later.
    ///
    /// # Errors
    /// The claims stay, which is harmless.
    pub fn settle(&mut self) -> Result<SettleResult, StoreError> {
        self.inlet.get_ready();
        let mut settled = SettleResult::Done;
        let mut kept = VecDeque::new();
        while let Some(mut claim) = self.claims.pop_front() {
            let answer = self.let_go(&mut claim);
            if answer.is_err() || answer.as_ref().is_ok_and(|answer| *answer != SettleResult::Done)
            {
                kept.push_back(claim);
            }
            match answer {
                Ok(answer) => settled = settled.and(answer),
                Err(why) => {
                    kept.append(&mut self.claims);
                    self.claims = kept;
                    return Err(why);
                }
            }
        }
        self.claims = kept;
        Ok(settled)
    }

    fn let_go(&mut self, claim: &mut Claim) -> Result<SettleResult, StoreError> {
        if claim.stage != Stage::Taken {
            return Ok(SettleResult::Again { after: LATE_WRITER_DELAY });
        }
        if let Some(after) = too_early(claim) {
            return Ok(SettleResult::Again { after });
        }
        let path = claim.path(&self.dir, &self.name);
        let file = match open(&path, Access::Read) {
            Err(why) if why.is_missing() => return Ok(SettleResult::Done),
            other => other?,
        };
        let size = match late_writers(claim, &file).at(&path)? {
            LateWriters::Wait(after) => return Ok(SettleResult::Again { after }),
            LateWriters::Grown => {
                // Should its event be missing: look at it in any case.
                claim.mark = None;
                return Ok(SettleResult::Grown);
            }
            LateWriters::Over(size) => size,
        };
        if claim.read_to < size {
            let bytes = read_tail(&file, claim.read_to, size).at(&path)?;
            let notice = self.delivery.reject_fragment(claim, &bytes)?;
            self.held_back.notices.push(notice);
        }
        failpoint::hit("drain.before_unlink");
        fs::remove_file(&path).at(&path)?;
        failpoint::hit("drain.unlinked");
        Ok(SettleResult::Done)
    }

    /// Whether a drain would bring something. Cheap: for the slow poll and after every wake.
    pub fn has_unread(&self) -> bool {
        let inlet = &self.inlet;
        let is_blind = !self.claims.is_empty() && inlet.waker.is_blind();
        !self.held_back.is_empty()
            || inlet.has_mail()
            || self.claims.iter().any(|claim| {
                // A late writer of one that was acted on is also found when it is let go of.
                let may_have_grown = is_blind
                    || claim.stage != Stage::Taken
                    || inlet.waker.may_be_written(claim.mark);
                !claim.is_read() || (may_have_grown && claim.has_grown(&self.dir, &self.name))
            })
    }

    /// Readable when mail may have come. Drain after opening and before waiting on it.
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.inlet.waker.as_fd()
    }

    /// Quiets the descriptor; then ask [`Mailbox::has_unread`]. Not every wake brings mail: our own
    /// claims wake as well.
    ///
    /// # Errors
    /// Neither file events nor a fifo are to be had.
    pub fn acknowledge_events(&mut self) -> Result<(), StoreError> {
        self.inlet.waker.acknowledge()
    }

    /// How mail wakes this owner.
    pub fn wake_mode(&self) -> WakeMode {
        self.inlet.waker.mode()
    }

    /// How often to ask [`Mailbox::has_unread`] all the same.
    pub fn poll(&self) -> Duration {
        self.inlet.waker.poll()
    }

    /// The conversation.
    pub fn transcript(&mut self) -> &mut Transcript {
        &mut self.delivery.transcript
    }
}

/// What the transcript tells about the claims that are still there.
fn recall(taken_in: &TakenIn, claims: &mut [Claim], seen: &mut Seen) {
    let TakenIn { batch_id, offset, message: object, .. } = taken_in;
    if let Some(claim) = claims.iter_mut().find(|claim| claim.batch_id == *batch_id) {
        claim.recorded.mail = claim.recorded.mail.max(Some(*offset));
    }
    if let Ok(message) = Message::read(object)
        && let Some(id) = &message.id
    {
        seen.meet(id, &message);
        seen.keep();
    }
}

/// What the dead letters tell about them.
fn recall_dead(dir: &TeamDir, name: &AgentName, claims: &mut [Claim]) -> Result<(), StoreError> {
    if claims.is_empty() {
        return Ok(());
    }
    for letter in dead::read_all(dir, name)? {
        if let Some(claim) = claims.iter_mut().find(|c| c.batch_id == letter.batch_id) {
            claim.recorded.dead = claim.recorded.dead.max(Some(letter.offset));
        }
    }
    Ok(())
}

fn read_tail(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}
