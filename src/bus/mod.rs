//! Sending mail by name: recipients, message ids and size limits (SPEC 3.1).
//!
//! *Invariant:* the bus decides under the lock of the inbox whether the recipient may get mail, so that no send of
//! data succeeds after the recipient was asked to stop. This layer does not know models, tools or processes.

pub(crate) mod host_orders;
mod reachability;

use crate::store::inbox::{
    Inbox, InboxFolder, MailboxOwner, Priority, SendError, SendPolicy, Stored,
};
use crate::store::{Fsync, Keyring, SharedClock, StoreError, TeamDir, each_at_once, relay, roster};
use crate::wire::attachment::{Attachment, set_attachments};
use crate::wire::limits;
use crate::wire::message::{Body, Correlation, OutgoingMessage};
use crate::wire::nearest::nearest;
use crate::wire::{AgentName, NameError};
use reachability::{NOT_ON_ROSTER, Reachability, RecipientState};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use uuid::{Builder, NoContext, Timestamp, Uuid};

/// The most inboxes that are open at a time, with two descriptors each: a process may have 1,024 by default.
const INBOXES_AT_ONCE: usize = 200;

/// Words for all members, which are no names.
pub(crate) const EVERYBODY: [&str; 3] = ["all", "broadcast", "team"];

/// Limits of mail from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailLimits {
    /// The longest content in bytes.
    pub max_message_bytes: usize,
    /// The largest inbox in bytes.
    pub inbox_bytes: u64,
    /// The durability of an acknowledged send.
    pub fsync: Fsync,
    /// The longest wait for an inbox's lock.
    pub lock_limit: Duration,
}

impl Default for MailLimits {
    fn default() -> Self {
        Self {
            max_message_bytes: limits::DEFAULT_MESSAGE_BYTES,
            inbox_bytes: limits::DEFAULT_INBOX_BYTES,
            fsync: Fsync::Always,
            lock_limit: limits::LOCK_TIMEOUT,
        }
    }
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// The kind of the message, with its fields.
    pub body: Body,
    /// The text.
    pub content: String,
    /// The id, if a repeated send derives the same one; with `None`, a new id is made.
    pub id: Option<String>,
    /// The request that the message makes or answers.
    pub correlation: Option<Correlation>,
    /// Further fields.
    pub extra: Map<String, Value>,
}

/// The seal of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MailSeal {
    /// That of this process.
    Own,
    None,
}

impl Outgoing {
    /// Creates a plain text message.
    pub fn text(content: impl Into<String>) -> Self {
        Self::of(Body::text(), content)
    }

    /// Creates a text for all members.
    pub fn broadcast(content: impl Into<String>) -> Self {
        Self::of(Body::Broadcast {}, content)
    }

    /// Creates a message of this kind.
    pub fn of(body: Body, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { body, content, id: None, correlation: None, extra: Map::new() }
    }

    /// Adds files that are kept in the team folder.
    #[must_use]
    pub fn with_attachments(mut self, attachments: &[Attachment]) -> Self {
        if !attachments.is_empty() {
            set_attachments(&mut self.extra, attachments);
        }
        self
    }
}

/// Whether a text has no visible characters. Does not read on after the first one.
fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// Makes a unique id for a message or a request.
pub fn new_id(from: &AgentName) -> String {
    let mut digits = Uuid::encode_buffer();
    [from.as_str(), ":", unique().hyphenated().encode_lower(&mut digits)].concat()
}

/// Makes a UUID v7, which sorts by time, from a counter hashed with keys that only this process has. Only the
/// first call reads randomness from the system, because a read costs as much as writing a message.
fn unique() -> Uuid {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let [one, two] = [0, 1].map(|half| u128::from(KEYS.hash_one((count, half))));
    let [random @ .., _, _, _, _, _, _] = (one << 64 | two).to_be_bytes();
    let (seconds, nanos) = Timestamp::now(NoContext).to_unix();
    let millis = seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000));
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// A recipient of a broadcast, and the id of its message or the error.
pub type Sent = (AgentName, Result<String, BusError>);

/// The reason for which a send failed. Only after [`SendError::NotDurable`] may the message arrive anyway.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is a word for all members.
    #[error("{0:?} is not a name; use broadcast to write to all members")]
    Everybody(String),
    /// The sender is the recipient.
    #[error(
        "{0} cannot write to itself: its conversation already holds what it knows, and the text that \
         ends its turn is its report"
    )]
    SelfSend(AgentName),
    /// The recipient cannot get mail now.
    #[error("{to} {why}; reachable: {}", names(reachable))]
    Unreachable {
        /// The recipient.
        to: AgentName,
        /// The reason.
        why: String,
        /// All agents that can get mail.
        reachable: Vec<AgentName>,
    },
    /// A text message has no text.
    #[error("the message has no text")]
    Empty,
    /// The content has this many bytes, more than the limit.
    #[error(
        "the message has {0} bytes, more than {1}: write a file and send its path, or attach it"
    )]
    TooLong(usize, usize),
    /// The message could not be written as JSON.
    #[error("the message cannot be serialized: {0}")]
    Json(#[from] serde_json::Error),
    /// The message could not be stored.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The roster or a life lock could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BusError {
    /// Whether the disk is full; a later send may succeed.
    pub fn is_full(&self) -> bool {
        self.store_error().is_some_and(StoreError::is_full)
    }

    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        if let Self::Store(why) | Self::Send(SendError::Store(why)) = self {
            Some(why)
        } else {
            None
        }
    }

    /// Returns advice for the user about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::Name(why) => why.hint(),
            Self::Everybody(_) => "team broadcast TEXT".into(),
            Self::SelfSend(_) => "write to another agent".into(),
            Self::Unreachable { .. } => "`team ls` lists the members".into(),
            Self::Empty => "write what the recipient should know or do".into(),
            Self::TooLong(..) | Self::Send(SendError::TooLong(_)) => {
                "write the text to a file and send its path, or attach it".into()
            }
            Self::Send(SendError::Full { name, .. }) => {
                format!("wait until {name} has read its mail, then send it again")
            }
            Self::Send(SendError::NotDurable { .. }) => "check the disk, then send it again".into(),
            Self::Json(_) => "this is a bug in the program: please report it".into(),
            Self::Store(why) | Self::Send(SendError::Store(why)) => why.hint().into(),
        }
    }
}

pub(crate) fn names(names: &[AgentName]) -> String {
    names.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}

/// The sending side of the team's mail.
pub struct Bus {
    dir: TeamDir,
    limits: MailLimits,
    clock: SharedClock,
    keyring: Arc<Keyring>,
    reachability: Mutex<Reachability>,
    folder: OnceLock<Arc<InboxFolder>>,
    inboxes: Mutex<BTreeMap<AgentName, Arc<Mutex<Inbox>>>>,
}

impl Bus {
    /// Creates the bus of a team.
    pub fn new(dir: TeamDir, limits: MailLimits, clock: SharedClock) -> Self {
        let reachability = Mutex::new(Reachability::of(dir.clone()));
        let keyring = Arc::new(Keyring::new(dir.clone()));
        let (folder, inboxes) = (OnceLock::new(), Mutex::default());
        Self { dir, limits, clock, keyring, reachability, folder, inboxes }
    }

    /// Returns the folder of the team.
    pub fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// Returns the keys by which this process seals its mail.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// Returns the durability of an acknowledged send.
    pub fn fsync(&self) -> Fsync {
        self.limits.fsync
    }

    /// Cuts a text to the size limit: a note replaces the middle.
    pub fn cut(&self, text: &str) -> String {
        let most = self.limits.max_message_bytes;
        if text.len() <= most {
            return text.to_owned();
        }
        let note = format!("\n[… {} bytes in all, the middle is left out …]\n", text.len());
        let half = most.saturating_sub(note.len()) / 2;
        let head = text.get(..text.floor_char_boundary(half)).unwrap_or_default();
        let tail_from = text.ceil_char_boundary(text.len() - half);
        let tail = text.get(tail_from..).unwrap_or_default();
        let short = format!("{head}{note}{tail}");
        // If the note alone exceeds the limit, only the beginning remains.
        short.get(..short.floor_char_boundary(most)).unwrap_or_default().to_owned()
    }

    /// Sends a message from the program to the lead. A second send with the same id has no effect.
    pub fn notify_lead(&self, body: Body, content: String, id: String) -> Result<String, BusError> {
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(body, content) };
        self.send(&AgentName::system(), AgentName::lead().as_str(), outgoing)
    }

    /// Checks that a message to this recipient could be sent now.
    ///
    /// # Errors
    /// The recipient cannot get mail.
    pub fn check_recipient(&self, from: &AgentName, to: &str) -> Result<(), BusError> {
        if EVERYBODY.contains(&to) {
            return Err(BusError::Everybody(to.into()));
        }
        let to = AgentName::mailbox(to)?;
        if *from == to && !to.is_user() {
            return Err(BusError::SelfSend(to));
        }
        self.permit(from, &to, Priority::Data).map(drop)
    }

    /// Sends a message; returns its id. After `Ok`, the message is delivered exactly once.
    pub fn send(&self, from: &AgentName, to: &str, outgoing: Outgoing) -> Result<String, BusError> {
        if EVERYBODY.contains(&to) {
            return Err(BusError::Everybody(to.into()));
        }
        let to = AgentName::mailbox(to)?;
        self.write(from, &to, outgoing, MailSeal::Own).and_then(synced)
    }

    /// Like [`Bus::send`], for a text of a file that anybody may have written: the message has no seal.
    pub(crate) fn send_unsealed(
        &self,
        from: &AgentName,
        to: &AgentName,
        outgoing: Outgoing,
    ) -> Result<String, BusError> {
        self.write(from, to, outgoing, MailSeal::None).and_then(synced)
    }

    /// Sends a control message: a request or an answer.
    pub fn control(
        &self,
        from: &AgentName,
        to: &AgentName,
        body: Body,
        correlation: Correlation,
    ) -> Result<String, BusError> {
        let outgoing = Outgoing { correlation: Some(correlation), ..Outgoing::of(body, "") };
        self.send(from, to.as_str(), outgoing)
    }

    /// Sends the same message to the lead and every reachable member, except the sender. Each message's id is that of
    /// `outgoing` with the recipient's name appended. On an error nothing was sent.
    pub fn broadcast(&self, from: &AgentName, outgoing: &Outgoing) -> Result<Vec<Sent>, BusError> {
        if is_blank(&outgoing.content) && outgoing.extra.is_empty() {
            return Err(BusError::Empty);
        }
        let id = outgoing.id.clone().unwrap_or_else(|| new_id(from));
        let mut recipients = self.reachable()?;
        recipients.retain(|to| to != from && !to.is_user());
        let write = |to: &AgentName| {
            let id = Some(format!("{id}:{to}"));
            let outgoing = Outgoing { id, ..outgoing.clone() };
            let outcome = self.write(from, to, outgoing, MailSeal::Own);
            (to.clone(), outcome)
        };
        let send =
            |some: &[AgentName]| sync_together(some.iter().map(write).collect(), self.limits.fsync);
        Ok(recipients.chunks(INBOXES_AT_ONCE).flat_map(send).collect())
    }

    /// Returns all agents that can get mail now, including the lead and the user.
    pub fn reachable(&self) -> Result<Vec<AgentName>, BusError> {
        Ok(lock(&self.reachability).all()?)
    }

    fn write(
        &self,
        from: &AgentName,
        to: &AgentName,
        outgoing: Outgoing,
        seal: MailSeal,
    ) -> Result<(String, Stored), BusError> {
        // A person may leave a note for the next lead to show.
        if from == to && !to.is_user() {
            return Err(BusError::SelfSend(to.clone()));
        }
        let Outgoing { body, content, id, correlation, extra } = outgoing;
        let is_text = matches!(body, Body::Message { .. } | Body::Broadcast {});
        if is_text && is_blank(&content) && extra.is_empty() {
            return Err(BusError::Empty);
        }
        let (size, limit) = (content.len(), self.limits.max_message_bytes);
        if size > limit {
            return Err(BusError::TooLong(size, limit));
        }
        let priority = if body.is_control() { Priority::Control } else { Priority::Data };
        let id = id.unwrap_or_else(|| new_id(from));
        let message = OutgoingMessage {
            id: id.clone(),
            from: from.clone(),
            to: to.clone(),
            content,
            timestamp: self.clock.now(),
            correlation,
            body,
            extra,
        };
        let inbox = self.inbox(from, to, priority)?;
        let policy = SendPolicy {
            priority,
            fsync: self.limits.fsync,
            capacity: self.limits.inbox_bytes,
            lock_limit: self.limits.lock_limit,
        };
        let permit = || self.permit(from, to, priority);
        let mut line = message.line()?;
        if seal == MailSeal::Own {
            self.keyring.seal(from, to, &mut line);
        }
        let stored = lock(&inbox).append(line.as_bytes(), &policy, permit)?;
        Ok((id, stored))
    }

    /// Returns the inbox of a recipient. The first access checks the name, so that an unknown one gets no lock
    /// file.
    fn inbox(
        &self,
        from: &AgentName,
        to: &AgentName,
        priority: Priority,
    ) -> Result<Arc<Mutex<Inbox>>, BusError> {
        if let Some(inbox) = lock(&self.inboxes).get(to) {
            return Ok(Arc::clone(inbox));
        }
        self.permit(from, to, priority)?;
        let inbox = Arc::new(Mutex::new(Inbox::in_folder(self.folder(), to)));
        let mut inboxes = lock(&self.inboxes);
        if inboxes.len() >= INBOXES_AT_ONCE {
            // A later access opens its own again.
            inboxes.clear();
        }
        inboxes.insert(to.clone(), Arc::clone(&inbox));
        Ok(inbox)
    }

    fn folder(&self) -> Arc<InboxFolder> {
        Arc::clone(self.folder.get_or_init(|| InboxFolder::of_senders(&self.dir)))
    }

    /// Checks that a recipient can get mail now; returns who reads its inbox.
    fn permit(
        &self,
        from: &AgentName,
        to: &AgentName,
        priority: Priority,
    ) -> Result<MailboxOwner, BusError> {
        let mut reachability = lock(&self.reachability);
        match reachability.state(to, priority)? {
            RecipientState::Reachable(owner) => Ok(owner),
            // A send is acknowledged only after this sync: without a durable entry the recipient does not exist.
            RecipientState::Starting => {
                roster::sync(&self.dir, self.limits.fsync)?;
                Ok(MailboxOwner::Agent)
            }
            RecipientState::Unreachable(why) => {
                let mut reachable = reachability.all()?;
                reachable.retain(|name| name != from);
                let names = || reachable.iter().map(AgentName::as_str);
                let near = nearest(to.as_str(), names()).filter(|_| why == NOT_ON_ROSTER);
                let why = near.map(|near| format!("{why} (did you mean {near}?)")).unwrap_or(why);
                Err(BusError::Unreachable { to: to.clone(), why, reachable })
            }
        }
    }
}

/// A line that the relay of another host has carried here.
#[derive(Debug, Clone, Copy)]
pub struct CarriedLine<'a> {
    /// The line, one JSON object without a newline.
    pub line: &'a str,
    /// Whether the sender's host has verified the sender.
    pub is_verified: bool,
    /// The rule for full inboxes.
    pub priority: Priority,
}

impl Bus {
    /// Returns the reason for which a message that was sent to `to` now waits on this host; `None` if nothing is in its way.
    pub(crate) fn delay_of(&self, to: &str) -> Option<String> {
        let (host, away) = lock(&self.reachability).place_elsewhere(to)?;
        if !relay::is_served(&self.dir).unwrap_or(true) {
            return Some(format!(
                "{to} is on {host}, and no relay runs on this host: it is delivered once `team lead` or `team-host run` does"
            ));
        }
        let Some(away) = away else {
            let known = relay::known_hosts(&self.dir).unwrap_or_default();
            let why = known.iter().find(|known| known.host.as_str() == host)?.other_protocol()?;
            return Some(format!("{why}; it is delivered then"));
        };
        let away = self.clock.now().since(away).as_secs();
        Some(format!("{host} has been away for {away} s: it is delivered when it is back"))
    }

    /// Returns the size of an inbox from which it refuses mail, in bytes.
    pub fn inbox_bytes(&self) -> u64 {
        self.limits.inbox_bytes
    }

    /// Decides whether a line from another host may be appended to the inbox of `to` now; returns the reason if it may not.
    ///
    /// # Errors
    /// The roster cannot be read.
    pub fn refuses_carried(
        &self,
        to: &AgentName,
        priority: Priority,
    ) -> Result<Option<String>, BusError> {
        match lock(&self.reachability).of_carried(to, priority)? {
            RecipientState::Reachable(_) | RecipientState::Starting => Ok(None),
            RecipientState::Unreachable(why) => Ok(Some(why)),
        }
    }

    /// Appends lines as `write_carried` does, and makes them durable.
    ///
    /// # Errors
    /// As there; after [`SendError::NotDurable`] they may have been appended.
    pub fn append_carried(
        &self,
        from: &AgentName,
        to: &AgentName,
        carried: &[CarriedLine<'_>],
    ) -> Result<(), BusError> {
        sync_carried(self.write_carried(from, to, carried)?.into_iter().collect())
    }

    /// Appends lines from another host to an inbox in one write. Verified ones get a seal of this process. All of them have the
    /// same priority. They are durable once they were passed to [`sync_carried`].
    ///
    /// # Errors
    /// The recipient may not get them ([`BusError::Unreachable`]), its inbox is full, or they could not be stored.
    pub(crate) fn write_carried(
        &self,
        from: &AgentName,
        to: &AgentName,
        carried: &[CarriedLine<'_>],
    ) -> Result<Option<Stored>, BusError> {
        let Some(first) = carried.first() else { return Ok(None) };
        let priority = first.priority;
        let mut lines = String::new();
        for CarriedLine { line, is_verified, .. } in carried {
            let mut line = format!("{line}\n");
            if *is_verified {
                self.keyring.seal(from, to, &mut line);
            }
            lines.push_str(&line);
        }
        let policy = SendPolicy {
            priority,
            fsync: self.limits.fsync,
            capacity: self.limits.inbox_bytes,
            lock_limit: self.limits.lock_limit,
        };
        let permit = || match self.refuses_carried(to, priority)? {
            None => Ok(MailboxOwner::Agent),
            Some(why) => Err(BusError::Unreachable { to: to.clone(), why, reachable: Vec::new() }),
        };
        Inbox::in_folder(self.folder(), to).append(lines.as_bytes(), &policy, permit).map(Some)
    }
}

/// Makes carried lines durable, those of many inboxes at the same time.
///
/// # Errors
/// Some of them may not be durable.
pub(crate) fn sync_carried(stored: Vec<Stored>) -> Result<(), BusError> {
    let synced = each_at_once(stored, Stored::sync);
    Ok(synced.into_iter().collect::<Result<(), _>>()?)
}

/// Locks a mutex even if it is poisoned: the values are caches, consistent or renewed by the next read.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Written = (AgentName, Result<(String, Stored), BusError>);

/// Makes a message durable; returns its id.
fn synced((id, stored): (String, Stored)) -> Result<String, BusError> {
    stored.sync()?;
    Ok(id)
}

/// Syncs many inboxes on several threads, so that the disk can merge the syncs.
fn sync_together(written: Vec<Written>, fsync: Fsync) -> Vec<Sent> {
    let finish = |(to, outcome): Written| (to, outcome.and_then(synced));
    if fsync == Fsync::Never {
        return written.into_iter().map(finish).collect();
    }
    each_at_once(written, finish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_uuids_of_the_current_time() {
        let ids: BTreeSet<Uuid> = (0..10_000).map(|_| unique()).collect();
        assert_eq!(ids.len(), 10_000);
        let now = Timestamp::now(NoContext).to_unix().0;
        for id in ids {
            assert_eq!(id.get_version_num(), 7);
            assert!(id.get_timestamp().unwrap().to_unix().0.abs_diff(now) < 60);
        }
        assert!(new_id(&AgentName::lead()).starts_with("lead:0"));
    }
}
