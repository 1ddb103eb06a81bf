//! The children this process started on purpose.
//!
//! An agent adopts what its commands leave behind, so "child of mine" does not mean "started by me".
//! This register tells the two apart.
//!
//! *Invariant:* every child of an agent process is started by [`spawn`] and reaped by
//! [`Pidfd::wait`]; any other child counts as a stray and is ended.

use super::pidfd::Pidfd;
use std::collections::BTreeSet;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The register, locked: nobody is started or forgotten while it is held.
pub(super) fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child and enters it in the register, so that it is never taken for a stray.
///
/// # Errors
/// It cannot be started, or no descriptor is left to hold it.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Pidfd> {
    let mut own = own();
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    match Pidfd::open(pid) {
        Ok(held) => {
            own.insert(pid);
            Ok(held)
        }
        Err(why) => {
            child.kill()?;
            child.wait()?;
            Err(why)
        }
    }
}

/// Strikes out a child that has been reaped.
pub(super) fn forget(pid: i32) {
    own().remove(&pid);
}
