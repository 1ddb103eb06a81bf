//! The agent's side of the protocol: what a client, such as an editor, sends, and what it is told.
//!
//! [`incoming`] reads its messages and writes the answers. [`params`] reads the parameters of its requests. [`updates`]
//! builds the reports of a session.

pub(crate) mod incoming;
pub(crate) mod params;
pub(crate) mod updates;

/// The version of the protocol that is spoken, whatever version a client offers.
pub(crate) const PROTOCOL_VERSION: u16 = 1;
