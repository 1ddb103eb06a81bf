//! The Agent Client Protocol, version 1: an agent of another vendor as a child process, and a conversation with it
//! over its standard input and output; and the messages of a client of ours.
//!
//! [`connection`] starts the process below the supervisor of commands; the messages are those of `crate::rpc`.
//! [`session`] makes the calls of the protocol. [`update`] reads what the agent reports, tolerantly: an unknown kind is
//! kept as its name, and a field of the wrong type counts as absent.
//!
//! [`served`] is the other side of the protocol: the messages of an editor that drives a lead, and the reports to it.

pub(crate) mod connection;
pub(crate) mod served;
pub(crate) mod session;
pub(crate) mod update;

/// The longest time that an agent takes from the end of its session to the end of its processes.
pub(crate) const END_WITHIN: std::time::Duration = session::CLOSE_WITHIN
    .saturating_add(connection::EXIT_AFTER_EOF)
    .saturating_add(crate::os::command::END_WITHIN);
