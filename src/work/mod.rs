//! Clones in which teammates work: made from the user's repository, saved into it, offered, taken and removed.
//!
//! All work of a clone is saved as one chain of commits, `refs/team/NAME/wip` of the user's repository: its tree is the
//! working tree at the last save, and each commit of the clone is reachable from it. `refs/team/NAME/base` keeps the
//! commit with which the clone began; the clone borrows the objects of the repository. For a clone on another host, `current` is
//! the commit with which a new clone would begin now, and `there` the last saved work that has come from that host.
//!
//! *Invariant:* an agent owns the configuration and the files of its clone, so git runs in a clone only as a command of
//! the agent, behind its walls. From outside, git runs in the user's repository and fetches; a look for undo lists the files
//! of the clone by it. It never changes the user's
//! index, stash or branches; only [`take`] changes files of the user, and only those without other changes.

mod bundle;
mod changes;
pub(crate) mod clone;
pub(crate) mod elsewhere;
pub(crate) mod error;
mod exchange;
mod left_takes;
pub(crate) mod mirror;
pub(crate) mod overview;
pub(crate) mod remove;
mod repository;
pub(crate) mod save;
pub(crate) mod take;
#[cfg(test)]
mod tests;
