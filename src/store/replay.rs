//! A team that plays a record again: its plan, the transcripts of the record, and the mail that is held until its
//! recipient is to get it.
//!
//! The folder of held mail is what makes senders hold it. A line moves into the inbox by a copy, so a process that is
//! killed in between copies it again; the inbox delivers an id once.

use super::file::atomic::{Fsync, json_line, remove, replace};
use super::file::jsonl::each_line;
use super::file::read::{known_if_there, names_in, read_state};
use super::inbox::{Inbox, MailboxOwner, Priority, SendError, SendPolicy};
use super::tail::Tail;
use super::teamdir::make_folder;
use super::{StoreError, TeamDir};
use crate::os::file::At;
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::replay::ReplayPlan;
use crate::wire::transcript::Line;
use crate::wire::{AgentName, WallTime};

impl TeamDir {
    /// Whether senders hold mail until the recipient is to get it.
    pub(super) fn holds_mail(&self) -> bool {
        self.held_mail().is_dir()
    }
}

/// Makes a team folder play a record. Fails if the plan cannot be written.
pub(crate) fn begin(dir: &TeamDir, plan: &ReplayPlan) -> Result<(), StoreError> {
    make_folder(&dir.held_mail())?;
    let path = dir.replay();
    Ok(replace(&path, &json_line(plan, &path)?, Fsync::Never)?)
}

/// Returns the plan of a team that plays a record; `None` for any other team.
pub(crate) fn plan(dir: &TeamDir) -> Result<Option<ReplayPlan>, StoreError> {
    Ok(read_state(&dir.replay())?)
}

/// Makes a team that played a record an ordinary one. Mail that is still held goes to the inboxes.
pub(crate) fn end(dir: &TeamDir) -> Result<(), SendError> {
    for file in names_in(&dir.held_mail())? {
        let name = file.strip_suffix(".jsonl").and_then(|name| AgentName::mailbox(name).ok());
        if let Some(name) = name {
            release_rest(dir, &name)?;
            remove(&dir.held_mail_of(&name))?;
        }
    }
    if dir.holds_mail() {
        let folder = dir.held_mail();
        std::fs::remove_dir(&folder).at(&folder)?;
    }
    Ok(remove(&dir.replay())?)
}

/// Returns the agents of the conversation that the lead had last. The person has a transcript, too, which is left out, as
/// those of teammates are that only worked in earlier conversations.
pub(crate) fn recorded_agents(record: &TeamDir) -> Result<Vec<AgentName>, StoreError> {
    let began = began_at(record, &AgentName::lead())?;
    let mut agents = Vec::new();
    for file in names_in(&record.conversations())? {
        let name = file.strip_suffix(".jsonl").and_then(|name| AgentName::mailbox(name).ok());
        let Some(name) = name.filter(|name| !name.is_user()) else { continue };
        let mut last = None;
        each_entry(record, &name, |line| last = Some(line.at))?;
        if last >= began {
            agents.push(name);
        }
    }
    Ok(agents)
}

/// Returns the time of the first entry of an agent's transcript.
pub(crate) fn began_at(record: &TeamDir, name: &AgentName) -> Result<Option<WallTime>, StoreError> {
    let mut first = None;
    each_entry(record, name, |line| _ = first.get_or_insert(line.at))?;
    Ok(first)
}

/// Reads the current transcript of an agent, line by line.
pub(crate) fn each_entry(
    record: &TeamDir,
    name: &AgentName,
    mut meet: impl FnMut(Line),
) -> Result<(), StoreError> {
    let meet = |line: &[u8]| {
        if let Some(line) = Line::read(line) {
            meet(line);
        }
    };
    Ok(each_line(&record.transcript(name), meet)?)
}

/// Follows the transcript of an agent.
pub(crate) fn follow(dir: &TeamDir, name: &AgentName) -> Tail {
    Tail::new(dir.transcript(name))
}

/// Follows the mail that is held for an agent.
pub(crate) fn follow_held(dir: &TeamDir, name: &AgentName) -> Tail {
    Tail::new(dir.held_mail_of(name))
}

/// Moves a line of held mail into the inbox.
pub(crate) fn release(dir: &TeamDir, name: &AgentName, line: &[u8]) -> Result<(), SendError> {
    let policy = SendPolicy {
        priority: Priority::Control,
        fsync: Fsync::Never,
        // The line was accepted when it was sent.
        capacity: u64::MAX / 2,
        lock_limit: LOCK_TIMEOUT,
    };
    let line = [line, b"\n"].concat();
    let permit = || Ok::<_, SendError>(MailboxOwner::Agent);
    Inbox::of_owner(dir, name).append(&line, &policy, permit)?.sync()
}

/// Moves all held mail of an agent into its inbox, at the end of its process. Mail that has moved before is delivered
/// once.
pub(crate) fn release_rest(dir: &TeamDir, name: &AgentName) -> Result<(), SendError> {
    if known_if_there(&dir.held_mail_of(name))?.is_none() {
        return Ok(());
    }
    for line in follow_held(dir, name).read_new()? {
        release(dir, name, &line)?;
    }
    Ok(())
}
