//! Draining an inbox in its owner's place, while no process holds the owner's name.

use super::agent_process::{fresh_id, take_life_lock};
use super::context::Context;
use super::event_loop::block_on;
use super::own_mailbox::{CLOSE_LIMIT, close_mailbox, open_mailbox};
use crate::error::Failure;
use crate::store::{Mail, TeamDir, asynchronous};
use crate::wire::AgentName;
use std::sync::{Arc, Mutex};

/// Drains the inbox. The claims are removed after `show` has returned for each message.
///
/// # Errors
/// A process holds the name, or the mail cannot be drained.
pub(crate) fn drain(
    context: &Context,
    team: &TeamDir,
    name: &AgentName,
    mut show: impl FnMut(Mail),
) -> Result<(), Failure> {
    context.refuse_inside_agent("inbox --drain")?;
    let life = take_life_lock(team, name, &fresh_id(), &fresh_id(), "hand")?;
    let rules = context.settings()?.rules();
    block_on(async {
        let (mailbox, life) = open_mailbox(team, life, rules).await?;
        let mailbox = Arc::new(Mutex::new(mailbox));
        asynchronous::drain(&mailbox).await?.mail.into_iter().for_each(&mut show);
        close_mailbox(mailbox, CLOSE_LIMIT).await;
        drop(life);
        Ok(())
    })?
}
