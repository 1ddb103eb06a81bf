//! The mailbox of a name that this process holds: opening, draining and closing it.

use super::agent_process::{fresh_id, take_life_lock};
use super::{context::Context, event_loop::block_on};
use crate::bus::Bus;
use crate::error::{Failure, OrFail};
use crate::os::SystemClock;
use crate::settings::Rules;
use crate::store::asynchronous::{self, SharedMailbox, offload, with_mailbox};
use crate::store::{
    Drained, Keyring, LifeLock, Mail, MailPolicy, Mailbox, SettleResult, StoreError, TeamDir,
    Transcript, inbox,
};
use crate::wire::{AgentName, message::Message};
use std::sync::{Arc, Mutex};

/// Opens the mailbox of the holder of `life`. Creates its inbox if that does not exist.
pub(super) async fn open_mailbox(
    bus: &Bus,
    life: LifeLock,
    rules: Rules,
) -> Result<(Mailbox, LifeLock), Failure> {
    let (team, keyring) = (bus.dir().clone(), Arc::clone(bus.keyring()));
    let open = move || {
        make_inbox(&team, life.name())?;
        own_keys(&keyring, &life, rules)?;
        let policy = MailPolicy { fsync: rules.fsync, max_content: rules.max_message_bytes };
        let transcript = Transcript::open(&team, life.name())?;
        let clock = Arc::new(SystemClock);
        let mailbox = Mailbox::open(&team, &life, transcript, policy, clock, keyring)?;
        Ok((mailbox, life))
    };
    offload(open).await
}

/// Makes the keyring that of the life lock's holder. On a full disk the key of the process before stays in force.
fn own_keys(keyring: &Keyring, life: &LifeLock, rules: Rules) -> Result<(), StoreError> {
    match keyring.own(life.name(), rules.fsync) {
        Err(why) if why.is_full() => {
            tracing::warn!(%why, "this process has no mailbox key of its own");
            Ok(())
        }
        owned => owned,
    }
}

/// Takes the life lock of a name and opens its mailbox, for a process that reads its mail but is not its agent. Fails
/// if another process holds the lock.
pub(super) async fn take_mailbox(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    started_by: &str,
) -> Result<(LifeLock, SharedMailbox), Failure> {
    let life = take_life_lock(team, name, &fresh_id(), &fresh_id(), started_by).await?;
    let (bus, rules) = (context.bus(team.clone()), context.settings_or_defaults().rules());
    let (mailbox, life) = open_mailbox(&bus, life, rules).await?;
    Ok((life, Arc::new(Mutex::new(mailbox))))
}

pub(super) fn make_inbox(team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
    let hint = "check the team folder's permissions and free space";
    inbox::ensure(team, name).or_fail(format!("the inbox of {name} cannot be used"), hint)
}

/// Drains an inbox in place of its owner. The claims are removed after `show` has returned for each message.
pub(crate) fn drain(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    show: impl FnMut(Mail),
) -> Result<(), Failure> {
    context.refuse_inside_agent("inbox --drain")?;
    block_on(async {
        let (life, mailbox) = take_mailbox(context, team, name, "hand").await?;
        asynchronous::drain(&mailbox).await?.mail.into_iter().for_each(show);
        close_mailbox(mailbox).await;
        drop(life);
        Ok(())
    })?
}

/// Drains the mail that arrived after the end of the agent's loop. If that fails, the mail waits for the next start.
pub(super) async fn drain_last_mail(mailbox: &SharedMailbox) -> Vec<Message> {
    let drained = with_mailbox(mailbox, Mailbox::drain_last).await.unwrap_or_else(|why| {
        tracing::warn!(%why, "mail is left for the next start");
        Drained::default()
    });
    drained.mail.into_iter().map(|mail| *mail.message).collect()
}

/// Marks all drained mail as acted on, and removes the claims that no process can write to any more. A claim that a
/// late writer may still have open stays: the next start of this name delivers its late lines, and removes it.
pub(super) async fn close_mailbox(mailbox: SharedMailbox) {
    let settle = |mailbox: &mut Mailbox| mailbox.mark_taken().and_then(|()| mailbox.settle());
    match with_mailbox(&mailbox, settle).await {
        Ok(SettleResult::Again { .. } | SettleResult::Grown | SettleResult::Done) => {}
        Err(why) => tracing::warn!(%why, "claims are left for the next start"),
    }
}
