//! A foreign agent: a program of another vendor that does the work of a member, over the Agent Client Protocol. The
//! member keeps mail, transcript, permissions, budget and shutdown; the agent is its child.
//!
//! ```text
//!   agent ──> acp ──> ForeignHost ──> ForeignEvent ──> ForeignTurn::step ──> ForeignAction ──> ForeignHost
//! ```
//!
//! *Invariant:* a tool about which the agent asks runs only after the answer of this program. What the agent's own
//! settings allow it without a question, this program does not see.

mod adapt;
pub(crate) mod call;
mod calls;
pub(crate) mod event;
pub(crate) mod host;
mod messages;
mod past;
mod place;
mod plans;
pub(crate) mod process;
mod restarts;
mod served;
mod silence;
mod turn;
mod usage;

pub(crate) use turn::ForeignTurn;
