//! JSON-RPC 2.0, which the protocols with other programs have in common: the Agent Client Protocol and both sides of the
//! Model Context Protocol.
//!
//! [`message`] reads and writes messages. [`lines`] reads one message a line. [`peer`] makes calls over lines, and hands
//! on what the other side sends by itself.
//!
//! *Invariant:* a program on the other side cannot fill the memory: the length of a line and the size of the messages that
//! wait to be written are bounded, and a line is read only once the one before it was handled.

pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod peer;
