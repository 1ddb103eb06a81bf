//! Giving memory back that was needed for a moment only: at the start of a program, or in a turn.

use nix::libc::c_void;
use nix::sys::mman::{MmapAdvise, madvise};
use std::ptr::NonNull;

// Set by the linker: the program's read-only data and code lie between them, nothing that is written to.
#[expect(unsafe_code, reason = "symbols of the linker")]
unsafe extern "C" {
    static __executable_start: u8;
    static etext: u8;
}

/// One heap for all threads: each other one would keep what its thread once needed. To be said before there
/// are threads.
pub(crate) fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number that the allocator reads when it would make another heap.
    #[expect(unsafe_code, reason = "only the C library can be told")]
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

/// Gives the heap's free pages back: a turn needs many for a moment, such as for the roster of a large team.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the heap's own locks and moves nothing that is in use.
    #[expect(unsafe_code, reason = "only the C library knows what is free")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Gives the heap's free pages back, and maps the program's code anew, as it is used: parsing a command line,
/// settings and a roster is most of what was, and an agent that waits does none of it.
pub(crate) fn forget_the_start() {
    give_back();
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
    fn what_was_freed_is_given_back() {
        super::use_one_heap();
        // What comes last keeps the end of the heap from being given back by itself.
        let many: Vec<Vec<u8>> = (0..4000).map(|_| vec![1; 4000]).collect();
        let last = std::hint::black_box(vec![1_u8; 4000]);
        let full = resident();
        drop(many);
        super::give_back();
        let (now, freed) = (resident(), 8 << 20);
        assert!(now + freed < full, "{full} bytes, then {now}");
        drop(last);
    }

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn the_program_goes_on() {
        let before = std::hint::black_box(super::forget_the_start as fn());
        before();
        assert_eq!("a b".split(' ').collect::<Vec<_>>(), ["a", "b"]);
    }
}
