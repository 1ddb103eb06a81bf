//! The lead's child processes: the supervisor spawns teammates, checks them, restarts crashed ones and stops them.
//!
//! *Invariants:* a teammate is on the roster before its process exists, and only its own process reports
//! that it is ready. Nothing here calls a model. The roster is written outside the event loop, because the
//! holder of its lock may be a stopped process, which must not block the team.

pub(crate) mod clone_config;
mod clones;
pub(crate) mod clones_elsewhere;
mod collect;
pub(crate) mod commands;
pub(crate) mod handshake;
mod host_clones;
mod host_news;
mod host_orders;
mod members;
mod reap;
pub(crate) mod recover;
pub(crate) mod relay_process;
mod roster_updates;
mod spawn_elsewhere;
mod start;
pub(crate) mod stop;
pub(crate) mod stop_elsewhere;
pub(crate) mod supervisor;
mod teammate_models;
mod watch;
