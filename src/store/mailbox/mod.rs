//! Mailboxes: senders append to an inbox ([`inbox`]); the owner claims the file, delivers its lines into
//! the transcript and acknowledges them ([`Mailbox`]). RELIABILITY.md 3 is the specification.

mod attempts;
pub(super) mod claim;
pub mod dead;
mod dedup;
mod drained;
pub mod inbox;
mod ingest;
mod owner;
mod parse_line;
mod rotation;
mod wake;

pub use drained::{Drained, Mail, MailNotice, MailPolicy, SettleResult};
pub use owner::Mailbox;
pub use wake::WakeMode;
