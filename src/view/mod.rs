//! The team as its files show it: its state, its changes, the path of one message.
//!
//! *Invariants:* a view changes nothing below `.team/`, calls no model and starts no process. It returns
//! data; `ui` and `web` lay it out and make untrusted text harmless.

pub(crate) mod change;
mod feed;
mod line_diff;
mod members;
mod message_progress;
mod observer;
mod snapshot;
pub(crate) mod trace;

pub(crate) use change::Change;
pub(crate) use feed::Feed;
pub(crate) use members::{MemberView, members};
pub(crate) use message_progress::{MessageProgress, Stage};
pub(crate) use observer::Observer;
pub(crate) use snapshot::Snapshot;
