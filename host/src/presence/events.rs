//! The events of the task for members and hosts, and the values that hosts tell each other of themselves.

use crate::carrier::StoredValue;
use crate::name_claims::{PlaceOutcome, ReceivedClaim};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Epoch, HostName, ValueVersion};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tokio::sync::oneshot;

/// An event for the task.
pub(crate) enum PresenceEvent {
    /// The carrier is connected.
    Connected,
    /// A value of the carrier.
    Value {
        /// The key.
        key: String,
        /// The value.
        value: StoredValue,
        /// Its revision.
        revision: u64,
    },
    /// All values are given, from now on.
    ValuesBegin,
    /// All values were given.
    AllValues,
    /// The carrier had lost the values. Those that it has follow.
    ValuesLost,
    /// A sign of life.
    Beat {
        /// The host.
        from: HostName,
        /// The sign.
        body: Bytes,
    },
    /// Another host asks this one, the authority, for the place of a name.
    Claim(ReceivedClaim),
    /// An agent is to start on a host.
    Place {
        /// Its name.
        name: AgentName,
        /// The host.
        host: HostName,
        /// Gets the outcome.
        outcome: oneshot::Sender<PlaceOutcome>,
    },
    /// An agent has not started on a host in time.
    TakeBack {
        /// Its name.
        name: AgentName,
        /// The host.
        from: HostName,
    },
    /// The list of tasks may have changed.
    Tasks,
    /// The process ends.
    End,
}

/// A sign of life.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Beat {
    pub(super) epoch: Epoch,
    /// Its place among all signs of life of this epoch: a server may repeat earlier ones.
    #[serde(default)]
    pub(super) number: BeatNumber,
    /// Whether it is the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leaves: bool,
    /// The version of its list of tasks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) tasks: String,
}

/// The place of a sign of life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct BeatNumber {
    /// The number of the start of the relay.
    pub(super) start: u64,
    /// The number of the sign since then.
    pub(super) count: u64,
}

/// The description that a host gives of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostValue {
    pub(super) epoch: Epoch,
    pub(super) version: String,
    pub(super) protocol: u32,
    /// The labels by which the host can be chosen for an agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<String>,
    /// The names of all its members.
    #[serde(default)]
    pub(super) members: BTreeSet<String>,
    /// The version of this description.
    #[serde(default)]
    pub(super) told: Option<ValueVersion>,
}

pub(super) struct HeardHost {
    pub(super) value: Option<HostValue>,
    /// The last sign of life.
    pub(super) last_beat: Option<(Epoch, BeatNumber)>,
    /// The number of own periods without one since. The time for which this process was stopped does not count.
    pub(super) missed: u32,
    pub(super) is_away: bool,
    /// Whether it was heard since the start of this relay.
    pub(super) is_heard: bool,
}

/// The reason for which the process must end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameLost {
    /// This host begins a team, and there is one of that id.
    #[error("there is a team {0} at this server already, whose hosts another one has signed in")]
    OtherTeam(String),
    /// The certificate of this host was withdrawn: it was removed, or another folder has its name now.
    #[error("the certificate of host {0} was withdrawn: it is no host of the team any more")]
    Withdrawn(HostName),
}
