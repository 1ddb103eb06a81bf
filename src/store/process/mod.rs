//! The state that a process publishes for others: liveness, heartbeat, usage, and the shared back-off.

pub mod heartbeat;
pub mod liveness;
pub mod shared_backoff;
pub mod usage;
