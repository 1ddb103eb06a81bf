//! Sending mail by name: who can be written to, with which ids, and within which limits (SPEC 3.1).
//!
//! *Invariant:* whether the receiver may get mail is decided while its inbox is locked, so that nobody
//! is told "sent" after the receiver was told to stop. It does not know models, tools or processes.

mod id;
mod reachability;

use crate::store::inbox::{Inbox, Priority, SendError, SendPolicy, Stored};
use crate::store::{Fsync, SharedClock, StoreError, TeamDir, roster};
use crate::wire::limits;
use crate::wire::message::{Body, Correlation, OutgoingMessage};
use crate::wire::{AgentName, NameError};
pub use id::new_id;
use reachability::{Reachability, RecipientState};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many inboxes of a broadcast are synced at the same time.
const SYNCS_AT_ONCE: usize = 8;

/// What the settings say about mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest content in bytes.
    pub max_message_bytes: usize,
    /// Most bytes an inbox may have.
    pub inbox_bytes: u64,
    /// What an acknowledged send survives.
    pub fsync: Fsync,
    /// How long to wait for an inbox's lock.
    pub lock_limit: Duration,
}

impl Default for Limits {
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
    /// Its kind.
    pub body: Body,
    /// Its text.
    pub content: String,
    /// Its id, when the sender can derive one that a repetition would have again.
    pub id: Option<String>,
    /// Binds requests and answers.
    pub correlation: Option<Correlation>,
    /// Further fields.
    pub extra: Map<String, Value>,
}

impl Outgoing {
    /// Plain text.
    pub fn text(content: impl Into<String>) -> Self {
        Self::of(Body::text(), content)
    }

    /// A message of a kind.
    pub fn of(body: Body, content: impl Into<String>) -> Self {
        let content = content.into();
        Self { body, content, id: None, correlation: None, extra: Map::new() }
    }
}

/// The id of a message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentId(pub String);

impl fmt::Display for SentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

/// A receiver of a broadcast and what became of its message.
pub type Sent = (AgentName, Result<SentId, BusError>);

/// Why a message was not sent, or perhaps not.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No such name can exist.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A word for everybody was given as a name.
    #[error("{0:?} is nobody's name: use broadcast to write to everybody")]
    Everybody(String),
    /// The sender wrote to itself.
    #[error(
        "{0} cannot write to itself: what it knows is in its conversation already, and what it has to \
         say is the text that ends its turn"
    )]
    SelfSend(AgentName),
    /// The receiver cannot get mail now.
    #[error("{to} {why}; who can be written to: {}", names(reachable))]
    Unreachable {
        /// The receiver.
        to: AgentName,
        /// What is the matter with it.
        why: String,
        /// Who can.
        reachable: Vec<AgentName>,
    },
    /// The text is too long.
    #[error("the message has {size} bytes, more than {limit}: write a file and send its path")]
    TooLong {
        /// Its length.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// It could not be stored.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The roster or a life lock could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BusError {
    /// Somebody held a lock for too long.
    pub fn is_lock_timeout(&self) -> bool {
        self.of_the_store().is_some_and(StoreError::is_lock_timeout)
    }

    /// There is no room: trying again later may help.
    pub fn is_full(&self) -> bool {
        self.of_the_store().is_some_and(StoreError::is_full)
    }

    /// The team folder is gone: nothing can be sent any more.
    pub fn is_without_team(&self) -> bool {
        self.of_the_store().is_some_and(StoreError::is_without_team)
    }

    fn of_the_store(&self) -> Option<&StoreError> {
        match self {
            Self::Store(why) | Self::Send(SendError::Store(why)) => Some(why),
            Self::Name(_)
            | Self::Everybody(_)
            | Self::SelfSend(_)
            | Self::Unreachable { .. }
            | Self::TooLong { .. }
            | Self::Send(_) => None,
        }
    }

    /// What to do now.
    pub fn hint(&self) -> String {
        match self {
            Self::Name(why) => why.hint(),
            Self::Everybody(_) => "team broadcast TEXT".into(),
            Self::SelfSend(_) => "write to somebody else".into(),
            Self::Unreachable { .. } => "`team ls` shows who is there".into(),
            Self::TooLong { .. } | Self::Send(SendError::TooLong { .. }) => {
                "write the text to a file and send its path".into()
            }
            Self::Send(SendError::Full { name, .. }) => {
                format!("wait until {name} has taken mail in, then send it again")
            }
            Self::Send(SendError::NotDurable { .. }) => "check the disk, then send it again".into(),
            Self::Store(why) | Self::Send(SendError::Store(why)) => why.hint().into(),
        }
    }
}

fn names(names: &[AgentName]) -> String {
    names.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}

/// The team's mail, for those who send.
pub struct Bus {
    dir: TeamDir,
    limits: Limits,
    clock: SharedClock,
    reach: Mutex<Reachability>,
    inboxes: Mutex<BTreeMap<AgentName, Arc<Mutex<Inbox>>>>,
}

impl Bus {
    /// The mail of a team.
    pub fn new(dir: TeamDir, limits: Limits, clock: SharedClock) -> Self {
        let reach = Mutex::new(Reachability::of(dir.clone()));
        Self { dir, limits, clock, reach, inboxes: Mutex::default() }
    }

    /// The team.
    pub fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// What an acknowledged send survives.
    pub fn fsync(&self) -> Fsync {
        self.limits.fsync
    }

    /// A text that fits into a message; the middle of a longer one is left out, and said so.
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
        // A limit too small for the note leaves room for the beginning only.
        short.get(..short.floor_char_boundary(most)).unwrap_or_default().to_owned()
    }

    /// Tells the lead something in the program's own name. Telling it again under the same id changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Bus::send`].
    pub fn notify_lead(&self, body: Body, content: String, id: String) -> Result<SentId, BusError> {
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(body, content) };
        self.send(&AgentName::system(), AgentName::lead().as_str(), outgoing)
    }

    /// Sends a message. When this returns an id, the message will be taken in exactly once.
    ///
    /// # Errors
    /// See [`BusError`]. Only after `NotDurable` may the message arrive nevertheless.
    pub fn send(&self, from: &AgentName, to: &str, outgoing: Outgoing) -> Result<SentId, BusError> {
        if matches!(to, "all" | "broadcast" | "team") {
            return Err(BusError::Everybody(to.into()));
        }
        let to = AgentName::mailbox(to)?;
        let (id, stored) = self.write(from, &to, outgoing)?;
        stored.sync()?;
        Ok(id)
    }

    /// Sends a request or an answer between programs.
    ///
    /// # Errors
    /// As [`Bus::send`].
    pub fn control(
        &self,
        from: &AgentName,
        to: &AgentName,
        body: Body,
        correlation: Correlation,
    ) -> Result<SentId, BusError> {
        let outgoing = Outgoing { correlation: Some(correlation), ..Outgoing::of(body, "") };
        self.send(from, to.as_str(), outgoing)
    }

    /// Sends the same text to every member that can be written to and the lead, except the sender. Each
    /// receiver's id is `id` with its name behind.
    ///
    /// # Errors
    /// Nobody was written to, since the roster cannot be read. Otherwise each receiver has its result.
    pub fn broadcast(
        &self,
        from: &AgentName,
        content: &str,
        id: Option<&str>,
    ) -> Result<Vec<Sent>, BusError> {
        let id = id.map_or_else(|| new_id(from), str::to_owned);
        let receivers = self.reachable()?.into_iter().filter(|to| to != from && !to.is_user());
        let written = receivers.map(|to| {
            let id = Some(format!("{id}:{to}"));
            let outgoing = Outgoing { id, ..Outgoing::of(Body::Broadcast {}, content) };
            let outcome = self.write(from, &to, outgoing);
            (to, outcome)
        });
        Ok(sync_together(written.collect(), self.limits.fsync))
    }

    /// Everybody who can be written to now, the lead and the person included.
    ///
    /// # Errors
    /// The roster or a life lock cannot be read.
    pub fn reachable(&self) -> Result<Vec<AgentName>, BusError> {
        Ok(lock(&self.reach).everybody()?)
    }

    fn write(
        &self,
        from: &AgentName,
        to: &AgentName,
        outgoing: Outgoing,
    ) -> Result<(SentId, Stored), BusError> {
        if from == to {
            return Err(BusError::SelfSend(to.clone()));
        }
        let Outgoing { body, content, id, correlation, extra } = outgoing;
        let (size, limit) = (content.len(), self.limits.max_message_bytes);
        if size > limit {
            return Err(BusError::TooLong { size, limit });
        }
        let lane = if body.is_control() { Priority::Control } else { Priority::Data };
        let id = id.unwrap_or_else(|| new_id(from));
        let draft = OutgoingMessage {
            id: id.clone(),
            from: from.clone(),
            to: to.clone(),
            content,
            timestamp: self.clock.now(),
            correlation,
            body,
            extra,
        };
        let inbox = self.inbox(from, to, lane)?;
        let policy = SendPolicy {
            lane,
            fsync: self.limits.fsync,
            capacity: self.limits.inbox_bytes,
            lock_limit: self.limits.lock_limit,
        };
        let permit = || self.permit(from, to, lane);
        let stored = lock(&inbox).append(draft.line().as_bytes(), &policy, permit)?;
        Ok((SentId(id), stored))
    }

    /// The inbox of a receiver. The first time it is asked for, the receiver is checked before: not even
    /// a lock file is made for somebody who does not exist.
    fn inbox(
        &self,
        from: &AgentName,
        to: &AgentName,
        lane: Priority,
    ) -> Result<Arc<Mutex<Inbox>>, BusError> {
        if let Some(inbox) = lock(&self.inboxes).get(to) {
            return Ok(Arc::clone(inbox));
        }
        self.permit(from, to, lane)?;
        let inbox = Arc::new(Mutex::new(Inbox::of(&self.dir, to)));
        lock(&self.inboxes).insert(to.clone(), Arc::clone(&inbox));
        Ok(inbox)
    }

    fn permit(&self, from: &AgentName, to: &AgentName, lane: Priority) -> Result<(), BusError> {
        let mut reach = lock(&self.reach);
        match reach.standing(to, lane)? {
            RecipientState::Reachable => Ok(()),
            // Who is told "stored" relies on the entry as well: without it the receiver is nobody.
            RecipientState::Starting => Ok(roster::sync(&self.dir, self.limits.fsync)?),
            RecipientState::Unreachable(why) => {
                let mut reachable = reach.everybody()?;
                reachable.retain(|name| name != from);
                Err(BusError::Unreachable { to: to.clone(), why, reachable })
            }
        }
    }
}

/// A panic elsewhere leaves caches behind, nothing that could be half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Written = (AgentName, Result<(SentId, Stored), BusError>);

/// Syncs many inboxes: the disk takes them together.
fn sync_together(written: Vec<Written>, fsync: Fsync) -> Vec<Sent> {
    let finish = |(to, outcome): Written| {
        let sent = outcome.and_then(|(id, stored)| {
            stored.sync()?;
            Ok(id)
        });
        (to, sent)
    };
    if fsync == Fsync::Never {
        return written.into_iter().map(finish).collect();
    }
    let share = written.len().div_ceil(SYNCS_AT_ONCE).max(1);
    let mut written = written.into_iter();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        loop {
            let share: Vec<_> = written.by_ref().take(share).collect();
            if share.is_empty() {
                break;
            }
            let finish = &finish;
            threads.push(scope.spawn(move || share.into_iter().map(finish).collect::<Vec<_>>()));
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
