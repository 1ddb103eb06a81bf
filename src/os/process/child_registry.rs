//! The children that this process started on purpose, by pid.
//!
//! An agent process is a subreaper, so it also becomes the parent of processes that its commands leave behind.
//! The register tells the two apart.
//!
//! *Invariant:* every child of an agent process is started by [`spawn`](super::child::spawn) and reaped by
//! [`Pidfd::wait`](super::pidfd::Pidfd::wait). Any other child counts as a stray and is killed.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Locks the register: no child is started or reaped while the guard is held.
pub(in crate::os) fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a child that has been reaped.
pub(super) fn forget(pid: i32) {
    own().remove(&pid);
}
