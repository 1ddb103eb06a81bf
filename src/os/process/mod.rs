//! Processes: starts, identifies, holds and ends them, and configures this one.

pub(super) mod cgroup;
pub(crate) mod child;
pub(crate) mod identity;
pub(crate) mod memory;
pub(crate) mod pidfd;
pub(crate) mod process_tree;
pub(crate) mod processes;
pub(crate) mod program;
