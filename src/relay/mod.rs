//! The relay's work on the files of a team: it takes the mail of members of other hosts out of their local inboxes, appends
//! what has come from other hosts, and shows the members of all hosts in the roster.
//!
//! This layer knows no network: the program `team-host` carries the frames (docs/machines.md).
//!
//! *Invariants:* a line leaves this host only from an outbox, where it is durable, and is kept until the home of its recipient
//! has it. A line that has come is appended once: its number moves with it, and the line itself tells after a crash.

#[cfg(test)]
mod attachment_tests;
mod attachments;
mod displaced;
mod given_up;
mod host_supervisor;
mod inbound;
mod link;
#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod name_tests;
mod names;
mod outbound;
mod own_entries;
mod placements;
mod roster;
mod take_in;
mod task_orders;
#[cfg(test)]
mod tests;
mod waiting;
mod watcher;

pub use attachments::AttachmentOutcome;
pub use displaced::end_displaced;
pub use given_up::{GiveUp, GiveUpStep, GiveUps, HostState, give_up_key, parse_give_up_key};
pub use host_supervisor::{HostSupervisorProcess, hand_keys};
pub use inbound::{Arrived, Inbound, InboundFrame};
pub use link::Recipient;
pub use names::{Displaced, NamePlaces, NameStep, TakeBack, name_key, parse_name_key};
pub use outbound::{Outbound, OutboundFrame};
pub use own_entries::{HostEntry, runs_lead};
pub use placements::{KnownPlacements, Placement};
pub use roster::{RosterMirror, member_key, parse_member_key};
pub use take_in::TakenIn;
pub use task_orders::{TaskOrderRefusal, refusal_of_task_order};
pub use waiting::WaitingLines;
pub use watcher::{ChangedInboxes, ExitWatcher, TeamWatcher};

pub use crate::os::child::{ask_to_end, ask_to_reload, end_with_parent};
pub use crate::os::memory::RestWatch;
pub use crate::os::program::{forbid_inspection, raise_descriptors};

use crate::bus::BusError;
use crate::store::liveness::LifeError;
use crate::store::{FileError, StoreError};

/// The reason for which a step of a relay failed. What it was about stays where it is, and is tried again.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A file of the team cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A message could not be sent or appended.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A life lock cannot be taken.
    #[error(transparent)]
    Life(#[from] LifeError),
    /// The supervisor of this host cannot be started.
    #[error("the supervisor of this host cannot be started: {0}")]
    Supervisor(#[source] std::io::Error),
    /// A frame cannot be serialized.
    #[error("a frame cannot be serialized: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<FileError> for RelayError {
    fn from(why: FileError) -> Self {
        Self::Store(why.into())
    }
}
