//! The rules of the team as pure state machines.
//!
//! *Invariant:* no files, threads, processes or clocks here. `now` is an argument, and results are values.

pub(crate) mod budget;
pub(crate) mod ctrl_c;
pub(crate) mod hang_detector;
pub(crate) mod ladder;
pub(crate) mod leases;
pub(crate) mod lifecycle;
pub(crate) mod owner;
pub(crate) mod permission;
pub(crate) mod rate_limiter;
pub(crate) mod request;
pub(crate) mod restart;
pub(crate) mod tasks;
pub(crate) mod timers;
