//! Shell commands: each runs below its own supervisor process, which ends every process that it started.

pub(crate) mod command_supervisor;
mod containment;
mod process_limit;
mod running;

pub(crate) use running::{CommandSetup, input, settle, start};
