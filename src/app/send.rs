//! Sends messages in the name of the user or of an agent that runs the command.

use crate::bus::{Bus, BusError, EVERYBODY, Outgoing, Sent};
use crate::error::{Exit, Failure, OrFail};
use crate::store::attachments::{AttachError, AttachableFile};
use crate::store::{StoreError, outbox};
use crate::wire::AgentName;
use crate::wire::attachment::{Attachment, MOST_ATTACHMENTS};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Puts a message into the outbox of the command that runs this: its agent sends it after the command. Fails for a name or
/// a text that no message can have.
pub(crate) fn put_into_outbox(outbox: &Path, to: &str, text: &str) -> Result<(), Failure> {
    let refused = |why: BusError| send_failure(to, &why);
    if EVERYBODY.contains(&to) {
        return Err(refused(BusError::Everybody(to.into())));
    }
    AgentName::mailbox(to).map_err(|why| refused(why.into()))?;
    if text.trim().is_empty() {
        return Err(refused(BusError::Empty));
    }
    let line = json!({ "type": "message", "to": to, "content": text }).to_string();
    let what = format!("nothing was sent to {to:?}");
    outbox::append(outbox, &line).or_fail(what, "send it after this command, in another one")
}

/// Keeps copies of files for a message to one recipient. Fails before it copies one if a file or the recipient is none.
pub(crate) fn attached(
    bus: &Bus,
    from: &AgentName,
    to: &str,
    paths: &[PathBuf],
) -> Result<Vec<Attachment>, Failure> {
    if !paths.is_empty() {
        bus.check_recipient(from, to).map_err(|why| send_failure(to, &why))?;
    }
    kept(bus, paths)
}

/// Keeps copies of files for a message. Fails before it copies one if a file is none.
fn kept(bus: &Bus, paths: &[PathBuf]) -> Result<Vec<Attachment>, Failure> {
    if paths.len() > MOST_ATTACHMENTS {
        let why = format!("{} files are more than {MOST_ATTACHMENTS}", paths.len());
        let hint = "attach an archive (tar), or send several messages";
        return Err(Failure::new(Exit::Failure, "nothing was sent", why, hint));
    }
    let opened = paths.iter().map(|path| {
        let file = AttachableFile::open(path).map_err(|why| not_attached(path, &why))?;
        Ok((path, file))
    });
    let opened = opened.collect::<Result<Vec<_>, Failure>>()?;
    let keep = |(path, file): (&PathBuf, AttachableFile)| {
        file.keep(bus.dir(), bus.fsync()).map_err(|why| not_attached(path, &why))
    };
    opened.into_iter().map(keep).collect()
}

fn not_attached(path: &Path, why: &AttachError) -> Failure {
    let hint = match why {
        AttachError::Unreadable(_) => "give the path of a file that you can read",
        AttachError::Name(_) => "rename the file",
        AttachError::TooLarge(..) => "commit it, or put it where the other host finds it",
        AttachError::Store(_) => "check permissions and free space, and try again",
    };
    let what = format!("nothing was sent: {} cannot be attached", path.display());
    Failure::new(Exit::Failure, what, why.to_string(), hint)
}

/// Sends a message to all members and the lead. Fails if there is no recipient.
pub(crate) fn broadcast(
    bus: &Bus,
    from: &AgentName,
    outgoing: &Outgoing,
) -> Result<Vec<Sent>, Failure> {
    let sent = bus.broadcast(from, outgoing).map_err(|why| send_failure("all", &why))?;
    if sent.is_empty() { Err(nobody_reached()) } else { Ok(sent) }
}

/// Keeps copies of files for a message to all. Fails before it copies one if a file is none, or there is no recipient.
pub(crate) fn attached_for_all(
    bus: &Bus,
    from: &AgentName,
    paths: &[PathBuf],
) -> Result<Vec<Attachment>, Failure> {
    let reachable = bus.reachable().map_err(|why| send_failure("all", &why))?;
    if !paths.is_empty() && reachable.iter().all(|to| to == from || to.is_user()) {
        return Err(nobody_reached());
    }
    kept(bus, paths)
}

fn nobody_reached() -> Failure {
    let hint = "start a team with `team lead` first";
    Failure::new(Exit::Failure, "nothing was sent", "no member can be reached", hint)
}

pub(crate) fn unreached(sent: &[Sent]) -> Vec<String> {
    sent.iter()
        .filter_map(|(name, outcome)| outcome.as_ref().err().map(|why| format!("{name}: {why}")))
        .collect()
}

pub(crate) fn require_all(unreached: &[String]) -> Result<(), Failure> {
    if unreached.is_empty() {
        return Ok(());
    }
    let hint = "correct the cause, then send to these members one by one";
    let what = "not all members got the message";
    Err(Failure::new(Exit::Failure, what, unreached.join("; "), hint))
}

pub(crate) fn send_failure(to: &str, why: &BusError) -> Failure {
    let to: String = to.chars().take(64).collect();
    let is_locked = why.store_error().is_some_and(StoreError::is_lock_timeout);
    let exit = if is_locked { Exit::InUse } else { Exit::Failure };
    Failure::new(exit, format!("nothing was sent to {to:?}"), why.to_string(), why.hint())
}
