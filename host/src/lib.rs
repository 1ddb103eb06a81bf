//! The relay of a host: carries mail between the members of a team on several hosts, and shows them in each other's roster.
//!
//! ```text
//!   args        the command line
//!   run         the process: lock, log, tasks, end
//!   outbound    inbound      presence     mail out | mail in | rosters and signs of life
//!   carrier                               NATS JetStream; the only part that knows it
//! ```
//!
//! The files, and the rules by which no line is lost or repeated, are in the library (`agent_team::relay`). The carrier may
//! forget everything at any time: that costs time, and no mail (docs/machines.md).

mod args;
pub mod carrier;
mod failure;
mod inbound;
mod outbound;
mod presence;
mod run;
mod signals;

pub use args::main;

/// The version of this program, which the other hosts see.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
