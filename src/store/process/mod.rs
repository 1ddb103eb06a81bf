//! The state that a process publishes for others: liveness, heartbeat, usage, and the shared back-off.

pub(crate) mod agent_places;
pub(crate) mod heartbeat;
pub(crate) mod last_output;
pub mod liveness;
pub(crate) mod shared_backoff;
pub(crate) mod usage;
