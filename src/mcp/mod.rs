//! The client side of the Model Context Protocol: a connection to one server, its tools, and calls of them.
//!
//! The protocol is that of the official crate, `rmcp`. This layer knows no team, no permissions and no processes: it gets
//! two pipes or an address, and values of its own types leave it.

mod connection;
mod content;
mod line_watch;

pub(crate) use connection::{Connection, ConnectionError, Era, MAX_PROGRESS, RemoteTool};
pub(crate) use content::CallContent;
