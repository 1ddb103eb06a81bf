//! The lead's processes: it spawns teammates, watches them, restarts crashed ones and stops them.
//!
//! *Invariants:* a teammate is on the roster before its process exists, and only its own process reports
//! that it is ready. Nothing here talks to a model. The roster is written beside the event loop: the
//! holder of its lock may be a stopped process, and the team goes on.

pub(crate) mod handshake;
mod members;
mod reap;
pub(crate) mod recover;
mod roster_updates;
mod start;
pub(crate) mod stop;
pub(crate) mod supervisor;
mod watch;
