//! Undo: the changes of files by agents are recorded turn by turn, and taken back.
//!
//! [`recorder`] and [`look`] record changes of file tools and of commands. [`history`] puts the journals together: it
//! finds the turns of an agent and the causes of changes. [`unreadable`] has the files that neither copies. [`plan`] says what an undo would do, and [`apply`] does it.
//!
//! *Invariant:* an undo changes a file only if its content is what the agent left, and all its files or none. A change
//! that may be of somebody else is never undone.

pub(crate) mod apply;
pub(crate) mod history;
pub(crate) mod look;
pub(crate) mod plan;
pub(crate) mod recorder;
pub(crate) mod session_diff;
#[cfg(test)]
mod tests;
pub(crate) mod unreadable;
