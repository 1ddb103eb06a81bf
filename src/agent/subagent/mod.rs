//! Subagents: helpers that an agent starts for one task each. A subagent is a conversation of its own in the process of
//! its caller, without a mailbox, a roster entry or a life lock.
//!
//! ```text
//!   run_subagent ──> Subagents::run ──> Runner: drives a TurnMachine, performs its actions
//!                                          │  ▲
//!                        SubagentRequest   ▼  │  answers
//!                                        the member: permissions, questions, budget, status
//! ```
//!
//! A call first becomes a line of the caller's transcript, which numbers the subagent; then its own transcript begins.
//! A killed process therefore goes on with the same subagent, and a subagent that has ended gives its result again.
//!
//! *Invariant:* a subagent does nothing without its caller: a call is judged by the caller's rules as well, a question is
//! asked by the caller, and a model call is counted by the caller before the next one starts.

mod ending;
mod link;
mod prompt;
mod request;
mod runner;
mod subagents;
mod watch;

pub(in crate::agent) use ending::EndReason;
pub(crate) use link::{ModelOpener, OpenedModel, SubagentParts};
pub(crate) use prompt::SubagentBriefing;
pub(crate) use request::{Asker, SubagentRequest};
pub(crate) use subagents::Subagents;
pub(in crate::agent) use watch::{AskedBySubagent, SubagentWatch};
