//! What a process tells the others of itself: that it is alive, what it does, what it has used, and when an
//! endpoint may be called again.

pub mod heartbeat;
pub mod liveness;
pub mod shared_backoff;
pub mod usage;
