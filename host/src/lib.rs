//! The relay of a host: carries mail between the members of a team on several hosts, and shows them in each other's roster.
//!
//! ```text
//!   args        settings                 the command line | what is not given is remembered
//!   membership   sign_in                 this host becomes one of a team | and signs others in
//!   add         join         run         a host is added over ssh | by a code | the process: lock, log, end
//!   serve                                the tasks, and what each of them gets
//!   ssh         own_server               hosts that are reached over ssh | the server on loopback for them
//!   outbound    inbound      presence    mail out | mail in | rosters and signs of life
//!   withdrawals  give_ups                hosts that do not count any more: their keys, or for good
//!   name_claims                          each name is that of one agent on all hosts
//!   orders                               starts and stops of agents that one host orders on another
//!   trust                     tls        keys, certificates and signatures of hosts | the way to an own server
//!   carrier                              NATS JetStream; the only part that knows it
//! ```
//!
//! The files, and the rules by which no line is lost or repeated, are in the library (`agent_team::relay`). The carrier may
//! forget everything at any time: that costs time, and no mail (docs/machines.md).

mod add;
mod args;
pub mod carrier;
mod child;
mod copies;
mod failure;
mod give_ups;
mod inbound;
mod input;
mod invitation;
mod join;
mod membership;
mod name_claims;
mod offload;
mod orders;
mod outbound;
mod own_server;
mod parts;
mod presence;
mod retry_pause;
mod run;
mod serve;
mod settings;
mod sign_in;
mod signals;
mod ssh;
mod tls;
pub mod trust;
mod withdrawals;

pub use args::main;

/// The version of this program, which the other hosts see.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
