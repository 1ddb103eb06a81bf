//! The mailbox of a name that this process holds: opening, draining and closing it.

use super::agent_process::{fresh_id, take_life_lock};
use super::{context::Context, event_loop::block_on, team_rules::durability};
use crate::error::{Failure, OrFail};
use crate::os::SystemClock;
use crate::settings::Rules;
use crate::store::{
    Drained, LifeLock, Mail, MailPolicy, Mailbox, SettleResult, StoreError, TeamDir, Transcript,
    inbox,
};
use crate::wire::AgentName;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long closing a mailbox may take in an orderly end; waiting for late writers takes about a second.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A mailbox that an agent and its end share.
pub(super) type SharedMailbox = Arc<Mutex<Mailbox>>;

/// Opens the mailbox of the holder of `life`; its inbox is made if it does not exist.
pub(super) fn open_mailbox(
    team: &TeamDir,
    name: &AgentName,
    life: &LifeLock,
    rules: Rules,
) -> Result<Mailbox, Failure> {
    ensure_inbox(team, name)?;
    let policy =
        MailPolicy { fsync: durability(rules.fsync), max_content: rules.max_message_bytes };
    let transcript = Transcript::open(team, name)?;
    Ok(Mailbox::open(team, life, transcript, policy, Arc::new(SystemClock))?)
}

/// Takes a name and opens its mailbox, to read its mail without being its agent. Fails if a process holds it.
pub(super) fn take_mailbox(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    started_by: &str,
) -> Result<(LifeLock, SharedMailbox), Failure> {
    let life = take_life_lock(team, name, &fresh_id(), &fresh_id(), started_by)?;
    let mailbox = open_mailbox(team, name, &life, context.settings()?.rules())?;
    Ok((life, Arc::new(Mutex::new(mailbox))))
}

/// Makes the inbox of a name that becomes known.
pub(super) fn ensure_inbox(team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
    inbox::ensure(team, name).or_fail(
        format!("the inbox of {name} is not usable"),
        "check the team folder's permissions and free space",
    )
}

/// Drains an inbox in its owner's place. The claims are removed after `show` has returned for each message.
pub(crate) fn drain(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    show: impl FnMut(Mail),
) -> Result<(), Failure> {
    context.refuse_inside_agent("inbox --drain")?;
    let (life, mailbox) = take_mailbox(context, team, name, "hand")?;
    let drained = mailbox.lock().unwrap_or_else(PoisonError::into_inner).drain()?;
    drained.mail.into_iter().for_each(show);
    block_on(close_mailbox(mailbox, CLOSE_LIMIT))?;
    drop(life);
    Ok(())
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
pub(super) async fn close_mailbox(mailbox: SharedMailbox, limit: Duration) {
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
            Err(why) => return tracing::warn!(%why, "claims are left for the next start"),
        }
    }
}
