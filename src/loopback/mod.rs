//! Servers on loopback, for programs of this computer that have a token: the page of `team web`, and the tools of a member.
//!
//! *Invariants:* such a server listens on loopback only, answers a bounded number of connections at once, and waits for
//! a request for a bounded time. [`access`] has the checks that every request must pass.

pub(crate) mod access;
pub(crate) mod server;
