//! The mailbox of a name that this process holds: opening, emptying and closing it.

use crate::error::{Failure, OrFail};
use crate::os::SystemClock;
use crate::settings::Rules;
use crate::store::liveness::LifeLock;
use crate::store::{
    Drained, MailPolicy, Mailbox, SettleResult, StoreError, TeamDir, Transcript, inbox,
};
use crate::wire::AgentName;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long closing a mailbox may take in an orderly end; waiting for late writers takes about a second.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Opens the mailbox of the holder of `life`; its inbox is made if it does not exist.
pub(crate) fn open_mailbox(
    team: &TeamDir,
    name: &AgentName,
    life: &LifeLock,
    rules: Rules,
) -> Result<Mailbox, Failure> {
    ensure_inbox(team, name)?;
    let policy = MailPolicy { fsync: rules.fsync, max_content: rules.max_message_bytes };
    let transcript = Transcript::open(team, name)?;
    Ok(Mailbox::open(team, life, transcript, policy, Arc::new(SystemClock))?)
}

/// Makes the inbox of a name that becomes known.
pub(super) fn ensure_inbox(team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
    inbox::ensure(team, name).or_fail(
        format!("the inbox of {name} is not usable"),
        "check the team folder's permissions and free space",
    )
}

/// Drains the mail that arrived after the agent's loop ended. Mail that cannot be drained waits for the
/// next start.
pub(super) fn drain_last_mail(mailbox: &Mutex<Mailbox>) -> Drained {
    let drained = mailbox.lock().unwrap_or_else(PoisonError::into_inner).drain();
    drained.unwrap_or_else(|why| {
        tracing::warn!(%why, "mail is left for the next start");
        Drained::default()
    })
}

/// Removes the claims of a mailbox whose mail was acted on, within `limit`. A claim that stays is
/// recovered at the next start.
pub(crate) async fn close_mailbox(mailbox: Arc<Mutex<Mailbox>>, limit: Duration) {
    let settle = || -> Result<SettleResult, StoreError> {
        let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.mark_taken()?;
        mailbox.settle()
    };
    let give_up = Instant::now() + limit;
    loop {
        match settle() {
            Ok(SettleResult::Again { after }) if Instant::now() < give_up => {
                tokio::time::sleep(after).await;
            }
            // The next start drains a claim that has grown.
            Ok(SettleResult::Again { .. } | SettleResult::Grown | SettleResult::Done) => return,
            Err(why) => {
                tracing::warn!(%why, "claims are left for the next start");
                return;
            }
        }
    }
}
