//! The client side of the Model Context Protocol: a connection to one server, its tools, and calls of them.
//!
//! [`connection`] makes the calls of the protocol; [`pipes`] and [`http`] carry them, and [`from_server`] handles what a
//! server sends by itself. This layer knows no team, no permissions and no processes: it gets two pipes or an address,
//! and values of its own types leave it. Readers are tolerant: a block, a tool or a message of an unknown kind makes no
//! other one unreadable.

mod connection;
mod content;
mod error;
mod from_server;
mod http;
mod pipes;
pub(crate) mod protocol;
mod remote_tool;
#[cfg(test)]
mod tests;

pub(crate) use connection::{Connection, MAX_PROGRESS};
pub(crate) use content::CallContent;
pub(crate) use error::ConnectionError;
pub(crate) use protocol::Era;
pub(crate) use remote_tool::RemoteTool;
