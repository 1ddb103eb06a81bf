//! How many descriptors this process may hold: as many as it may take for itself, while its children get
//! what it was given (a program that uses `select` breaks above 1024).

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::OnceLock;

static GIVEN: OnceLock<(u64, u64)> = OnceLock::new();

/// Takes what may be taken; each teammate costs its lead a few descriptors.
pub(crate) fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && GIVEN.set((soft, hard)).is_ok()
    {
        // One that may not be raised is what there is.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap_or_default();
    }
}

/// Back to what this process was given. Only system calls, so that it may run between fork and exec.
pub(in crate::os) fn as_given() {
    if let Some((soft, hard)) = GIVEN.get() {
        setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard).unwrap_or_default();
    }
}
