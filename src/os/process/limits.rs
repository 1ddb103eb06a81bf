//! The limit of descriptors: this process raises its own, and its children get the original one, because
//! programs that use `select` break above 1024.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::OnceLock;

static GIVEN: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises the limit to the maximum; each teammate costs its lead a few descriptors.
pub(crate) fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && GIVEN.set((soft, hard)).is_ok()
    {
        // A limit that cannot be raised stays.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap_or_default();
    }
}

/// Restores the original limit. Makes only system calls, so that it may run between fork and exec.
pub(in crate::os) fn restore() {
    if let Some((soft, hard)) = GIVEN.get() {
        setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard).unwrap_or_default();
    }
}
