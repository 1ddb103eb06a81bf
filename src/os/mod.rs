//! The machine: clocks, signals, processes, file events, the terminal.
//!
//! *Invariant:* only this layer uses `nix`, `signal-hook` and `unsafe`. It does not refer to teams or messages.

pub(crate) mod blocking_output;
mod clock;
pub(crate) mod command;
pub(crate) mod deadline;
mod event;
pub mod failpoint;
pub(crate) mod file;
pub(crate) mod git;
pub(crate) mod git_folders;
pub(crate) mod http_client;
mod process;
#[cfg(test)]
#[path = "../../tests/support/skips.rs"]
pub(crate) mod skips;
pub(crate) mod terminal;
pub(crate) mod time_text;
pub(crate) mod unix_socket;
pub(crate) mod usage;
pub(crate) mod wall;

#[cfg(test)]
pub(crate) use clock::processor_time;
pub use clock::{Clock, SystemClock};
pub(crate) use clock::{formatted_time, local_time, uptime, uptime_with_sleep};
pub(crate) use command::command_supervisor;
pub(crate) use event::{
    aligned_interval, async_fd, event_loop, signals, spawn, syscall_timeout, wall_timer,
};
pub(crate) use file::{lease, safe_path, watch};
pub(crate) use process::{child, identity, memory, pidfd, process_tree, processes, program};
pub(crate) use terminal::{read_answer, terminal_size};

pub(crate) use nix::sys::signal::Signal;
