//! Drains many mailboxes of one owner together, so that they share the syncs of the folders, and sync their sinks at the same
//! time. Each of them passes the same steps in the same order as alone ([`Mailbox::drain`]).
//!
//! *Invariant:* a process holds several side locks only here, and waits for none of them: it takes those that are free.

use super::Drained;
use super::claim::{KeptClaims, Stage};
use super::owner::Mailbox;
use super::rotation::{Begun, BegunClaim};
use super::sink::MailSink;
use crate::store::file::atomic::sync_folder;
use crate::store::file::together::{each_at_once, each_on_processors};
use crate::store::{FileError, Fsync, StoreError, TeamDir};
use std::io;

/// A mailbox in the midst of a drain.
enum Step {
    /// It claims its inbox; `None` if that is empty, or the claim is complete.
    Claims(Option<Box<BegunClaim>>),
    /// It is drained alone: a lock is held, or something has failed.
    Alone,
    Failed(StoreError),
}

/// Drains mailboxes of one team folder; returns the outcome of each. After an error, a mailbox is drained again later.
pub(crate) fn drain_together<S: MailSink + Send>(
    dir: &TeamDir,
    mailboxes: &mut [&mut Mailbox<S>],
) -> Vec<Result<Drained, StoreError>> {
    // Otherwise each of them fails when it is drained alone.
    let is_there = dir.is_still_there().is_ok();
    let begin = |mailbox: &mut Mailbox<S>| if is_there { mailbox.begin() } else { Step::Alone };
    let mut steps = each_on_processors(each(mailboxes), begin);
    let fsync = mailboxes.first().map(|mailbox| mailbox.ingest.policy.fsync).unwrap_or_default();
    let claims_synced = if has_claims(&steps) { sync_folder(&dir.claims(), fsync) } else { Ok(()) };
    let are_synced = claims_synced.is_ok();
    let replace =
        |(mailbox, step): (&mut Mailbox<S>, Step)| mailbox.replace(step, are_synced, fsync);
    steps = each_on_processors(each(mailboxes).into_iter().zip(steps).collect(), replace);
    let replaced = if has_claims(&steps) { sync_folder(&dir.inboxes(), fsync) } else { Ok(()) };
    // All locks are released before anything is read.
    for (mailbox, step) in mailboxes.iter_mut().zip(&mut steps) {
        let Step::Claims(begun) = step else { continue };
        match (begun.take(), &replaced) {
            (Some(begun), Err(why)) => {
                mailbox.claims.push_back(begun.release());
                *step = Step::Failed(unsynced(dir, why));
            }
            (begun, _) => mailbox.claims.extend(begun.map(|begun| begun.release())),
        }
    }
    let finish = |(mailbox, step): (&'_ mut Mailbox<S>, Step)| match step {
        Step::Claims(_) => mailbox.deliver_all(),
        Step::Alone => mailbox.drain(),
        Step::Failed(why) => Err(why),
    };
    each_at_once(each(mailboxes).into_iter().zip(steps).collect(), finish)
}

fn each<'a, S>(mailboxes: &'a mut [&mut Mailbox<S>]) -> Vec<&'a mut Mailbox<S>> {
    mailboxes.iter_mut().map(|mailbox| &mut **mailbox).collect()
}

fn has_claims(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Claims(Some(_))))
}

/// Returns the failed sync of the inboxes as the error of one mailbox.
fn unsynced(dir: &TeamDir, why: &FileError) -> StoreError {
    FileError::Io(dir.inboxes(), io::Error::other(why.to_string())).into()
}

impl<S: MailSink> Mailbox<S> {
    fn begin(&mut self) -> Step {
        match self.try_begin() {
            Ok(Begun::Claim(begun)) => Step::Claims(Some(begun)),
            Ok(Begun::Empty) => Step::Claims(None),
            Ok(Begun::Busy) | Err(_) => Step::Alone,
        }
    }

    /// Puts a new inbox into the place of the one that is claimed. If that fails, or the claims are not synced, the mailbox is
    /// drained alone.
    fn replace(&mut self, step: Step, are_synced: bool, fsync: Fsync) -> Step {
        let Step::Claims(Some(mut begun)) = step else { return step };
        let has_link = begun.has_link();
        if are_synced && self.rotation.replace_inbox(&mut begun, fsync).is_ok() {
            return Step::Claims(Some(begun));
        }
        // A second name is undone by the next look at the inbox; without links, the inbox is the claim already.
        let claim = begun.release();
        if !has_link {
            self.claims.push_back(claim);
        }
        Step::Alone
    }

    fn try_begin(&mut self) -> Result<Begun, StoreError> {
        self.check_life()?;
        if !self.is_archive_known {
            // Reading it takes time, in which no lock of others may be held.
            return Ok(Begun::Busy);
        }
        self.rotation.try_begin_claim(&mut self.batch_ids, self.ingest.policy.fsync)
    }

    /// Delivers the mail of all claims, with one sync.
    fn deliver_all(&mut self) -> Result<Drained, StoreError> {
        self.rotation.catch_up()?;
        let mut read = Vec::new();
        // Older claims first: a late line in them is older than this claim.
        for at in 0..self.claims.len() {
            read.extend(self.read(at)?);
        }
        self.rotation.waker.forget_written();
        if !read.is_empty() {
            self.ingest.sync()?;
        }
        for claim in &read {
            self.acknowledge(claim)?;
        }
        Ok(std::mem::take(&mut self.held_back))
    }

    /// Closes the mailbox; returns its sink, and its claims, which are kept for late writers. Gives itself back if it has mail
    /// that was not acted on.
    pub(crate) fn close(self) -> Result<(S, KeptClaims), Box<Self>> {
        let is_taken = self.claims.iter().all(|claim| claim.stage == Stage::Taken);
        if !is_taken || self.has_unread() {
            return Err(Box::new(self));
        }
        Ok((self.ingest.sink, KeptClaims(self.claims.into())))
    }

    /// Takes back claims of this mailbox that it had when it was closed.
    pub(crate) fn take_back(&mut self, kept: KeptClaims) {
        for claim in kept.0.into_iter().rev() {
            self.claims.push_front(claim);
        }
    }
}
