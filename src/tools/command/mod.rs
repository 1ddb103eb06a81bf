//! Shell commands: the `bash` tool, the run of one command, its environment and its output.

pub(super) mod bash;
#[cfg(test)]
mod containment;
mod environment;
pub(super) mod output;
mod output_store;
pub(super) mod shell;

pub(crate) use environment::command_setup;
pub(crate) use output_store::OutputStore;
