//! A team of LLM agents on one computer, made of plain processes and plain files.
//!
//! ```text
//!   bin/{team,lead,teammate}            parse, trace, run, exit code
//!            cli                        one file per verb; knows everything below
//!      ui          supervise            the terminal      | the lead's processes
//!            agent                      one running agent: events -> step -> actions
//!   llm       tools        protocol     a model | what an agent can do | who may say what next
//!            tasks                      the shared task list at work
//!             bus                       send, broadcast, who can be reached
//!   web       view                      the page on loopback | the team as its files tell it
//!             store                     the disk: the only place that knows .team/
//!   settings  os           error        the machine; flags, environment, files; exit codes
//!             wire                      what crosses a process boundary: data, no I/O
//! ```
//!
//! Imports point down; `tests/it/tidy.rs` holds the table. ARCHITECTURE.md tells the rest.

mod agent;
pub mod bus;
pub mod cli;
pub mod error;
pub mod llm;
mod os;
mod protocol;
mod settings;
pub mod store;
mod supervise;
mod tasks;
mod tools;
mod ui;
mod view;
mod web;
pub mod wire;

/// Becomes the guard of a shell command when this process was started as one; every binary calls this
/// before anything else and returns the code it gets.
pub use os::command_supervisor::intercept;
