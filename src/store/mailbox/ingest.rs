//! Delivers a claim into the sink: every line once, in order, acknowledged only when it is durable.

use super::claim::{Claim, Recorded};
use super::dead::{DeadLetter, DeadLetters};
use super::dedup::{KnownId, SeenMessages};
use super::parse_line::{ParsedLine, ValidLine, parse};
use super::sink::{Delivery, MailSink};
use super::{Drained, Mail, MailNotice, MailPolicy};
use crate::os::file::At;
use crate::store::file::jsonl::{Framed, Lines};
use crate::store::{Keyring, SharedClock, StoreError, failpoint};
use crate::wire::WallTime;
use crate::wire::limits::MAX_LINE_BYTES;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The size at which composed lines are written, in bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// The destinations of the mail of one mailbox.
pub(crate) struct Ingest<S> {
    pub(crate) sink: S,
    pub(crate) dead: DeadLetters,
    pub(crate) seen: SeenMessages,
    pub(crate) policy: MailPolicy,
    pub(crate) clock: SharedClock,
    pub(crate) keyring: Arc<Keyring>,
}

/// Mail that was read and is not yet written.
#[derive(Default)]
struct Batch {
    lines: Vec<u8>,
    letters: Vec<DeadLetter>,
    drained: Drained,
    reached: Recorded,
}

impl<S: MailSink> Ingest<S> {
    /// Writes the new lines of a claim up to the size of its file that is known; [`Self::sync`] makes them durable. The mail in `drained` is in the sink, even after an
    /// error.
    pub(crate) fn deliver(
        &mut self,
        claim: &mut Claim,
        (file, size): (File, u64),
        path: &Path,
        drained: &mut Drained,
    ) -> Result<(), StoreError> {
        failpoint::hit("drain.reading");
        // An earlier delivery that failed may have looked up messages that it did not write.
        self.seen.forget();
        self.sink.forget_composed();
        let mut lines = Lines::up_to(size, file, claim.read_to, MAX_LINE_BYTES);
        let now = self.clock.now();
        let mut batch = Batch::default();
        let mut read_to = claim.read_to;
        while let Some(framed) = lines.next().at(path)? {
            match parse(&framed, &claim.batch_id, self.policy.max_content) {
                ParsedLine::Blank => {}
                ParsedLine::Unfinished => break,
                ParsedLine::Invalid(reason) => reject(&framed, reason, claim, now, &mut batch),
                ParsedLine::Valid(valid) => self.admit(&framed, valid, claim, now, &mut batch),
            }
            read_to = lines.offset();
            if batch.lines.len() >= BATCH_BYTES {
                self.write(&mut batch, claim, drained)?;
                claim.read_to = read_to;
            }
        }
        self.write(&mut batch, claim, drained)?;
        claim.read_to = read_to;
        failpoint::hit("drain.delivered");
        Ok(())
    }

    /// Makes the delivered lines durable.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.dead.sync(self.policy.fsync)?;
        failpoint::hit("drain.dead_synced");
        self.sink.sync_mail(self.policy.fsync)?;
        failpoint::hit("drain.synced");
        Ok(())
    }

    fn admit(
        &mut self,
        framed: &Framed<'_>,
        valid: ValidLine<'_>,
        claim: &Claim,
        now: WallTime,
        batch: &mut Batch,
    ) {
        let offset = framed.offset;
        if claim.recorded.mail.is_some_and(|last| offset <= last) {
            return;
        }
        let ValidLine { mut message, text } = valid;
        message.verification = self.keyring.verify(&message, &text);
        let id = message.id.as_deref().unwrap_or_default();
        let batch_id = &claim.batch_id;
        match self.seen.look_up(id, &message) {
            KnownId::New => {
                let verification = message.verification;
                let mail = Delivery { at: now, batch_id, offset, text: &text, verification };
                self.sink.compose(&mail, &mut batch.lines);
                batch.reached.mail = Some(offset);
                let batch_id = batch_id.clone();
                let text = text.into_owned();
                batch.drained.mail.push(Mail { message, text, batch_id, offset });
            }
            KnownId::Same => {
                let (id, from) = (id.to_owned(), message.from);
                batch.drained.notices.push(MailNotice::Repeated { id, from });
            }
            KnownId::Other => reject(framed, format!("id reused: {id:?}"), claim, now, batch),
        }
    }

    fn write(
        &mut self,
        batch: &mut Batch,
        claim: &mut Claim,
        drained: &mut Drained,
    ) -> Result<(), StoreError> {
        let Batch { mut lines, letters, drained: mut brought, reached } = std::mem::take(batch);
        self.dead.append(&letters)?;
        failpoint::hit("drain.buried");
        claim.recorded.dead = claim.recorded.dead.max(reached.dead);
        if !lines.is_empty() {
            self.sink.append_mail(&lines)?;
        }
        claim.recorded.mail = claim.recorded.mail.max(reached.mail);
        self.seen.keep();
        drained.mail.append(&mut brought.mail);
        drained.notices.append(&mut brought.notices);
        // The next write reuses the buffer.
        lines.clear();
        batch.lines = lines;
        Ok(())
    }

    /// Rejects a line that will never be completed.
    pub(crate) fn reject_fragment(
        &mut self,
        claim: &mut Claim,
        bytes: &[u8],
    ) -> Result<MailNotice, StoreError> {
        let (reason, offset) = ("the line was never finished".to_owned(), claim.read_to);
        let letter = DeadLetter::new(&claim.batch_id, offset, reason, self.clock.now());
        let letter = letter.holding(bytes);
        let notice = letter.notice();
        if claim.recorded.dead.is_none_or(|last| offset > last) {
            self.dead.append(&[letter])?;
            self.dead.sync(self.policy.fsync)?;
            claim.recorded.dead = Some(offset);
        }
        Ok(notice)
    }
}

fn reject(framed: &Framed<'_>, reason: String, claim: &Claim, now: WallTime, batch: &mut Batch) {
    let offset = framed.offset;
    if claim.recorded.dead.is_some_and(|last| offset <= last) {
        return;
    }
    let letter = DeadLetter::new(&claim.batch_id, offset, reason, now).holding(framed.bytes);
    batch.drained.notices.push(letter.notice());
    batch.letters.push(letter);
    batch.reached.dead = Some(offset);
}
