//! Shell commands: each runs below a supervisor process of its own, which ends everything that it started.

pub(crate) mod command_supervisor;
mod containment;
mod process_limit;
mod running;

pub(crate) use running::{CommandSetup, SupervisorProgram, input, settle, start};
