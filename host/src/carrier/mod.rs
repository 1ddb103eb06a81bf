//! The NATS side of the mail relay: one connection of one host of one team.
//!
//! The engine carries frames and holds the roster, and may forget everything at any time: the relays number and
//! acknowledge lines end to end. This module therefore promises no delivery. It reports each failure within two
//! seconds, on a slow link within some more, makes stream, consumer and bucket anew when they vanish, and never lets one operation hold up another.
//!
//! Every message that goes out is signed; one that comes in without the signature of its host is dropped (`trust`).
//!
//! It runs on a current-thread tokio runtime with I/O and time enabled.

mod backoff;
mod client;
mod config;
mod connection;
mod error;
mod freshness;
mod incoming;
mod join;
mod login;
mod reading;
mod receive;
mod refusal_log;
mod replicas;
mod storage;
mod timeouts;
mod values;

pub use client::Carrier;
pub use config::CarrierConfig;
pub use error::CarrierError;
pub(crate) use join::ask_to_join;
pub use login::{Login, LoginError, Security};

pub use incoming::{Frame, Incoming, Reply, StoredValue};
