//! The program of a teammate: `team teammate`, spawned by a lead or started by hand.
//!
//! [`run`] goes through the stages in their order: `TeammateOptions::resolve` (from the lead's handshake or
//! from the command line), the life lock, the roster entry, the mailbox, the agent, `Ready`, the end.

pub(crate) mod options;
pub(crate) mod run;
mod terminal;
