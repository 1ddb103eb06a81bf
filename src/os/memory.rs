//! Giving memory back that only the start of a program needed.

use nix::libc::c_void;
use nix::sys::mman::{MmapAdvise, madvise};
use std::ptr::NonNull;

// Set by the linker: the program's read-only data and code lie between them, nothing that is written to.
#[expect(unsafe_code, reason = "symbols of the linker")]
unsafe extern "C" {
    static __executable_start: u8;
    static etext: u8;
}

/// Gives the heap's free pages back, and maps the program's code anew, as it is used: parsing a command line,
/// settings and a roster is most of what was, and an agent that waits does none of it.
pub(crate) fn forget_the_start() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the heap's own locks and moves nothing that is in use.
    #[expect(unsafe_code, reason = "only the C library knows what is free")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
    let start = &raw const __executable_start;
    let length = (&raw const etext).addr().saturating_sub(start.addr());
    let Some(start) = NonNull::new(start.cast_mut().cast::<c_void>()) else { return };
    // SAFETY: these pages are never written to, so that the file has what they hold.
    #[expect(unsafe_code, reason = "unmapping pages")]
    let advised = unsafe { madvise(start, length, MmapAdvise::MADV_DONTNEED) };
    if let Err(why) = advised {
        tracing::debug!(%why, "the pages of the start stay");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_goes_on() {
        let before = std::hint::black_box(super::forget_the_start as fn());
        before();
        assert_eq!("a b".split(' ').collect::<Vec<_>>(), ["a", "b"]);
    }
}
