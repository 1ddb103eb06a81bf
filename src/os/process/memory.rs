//! Returns memory to the system that was needed only at the start of a program or during a turn.

use nix::libc::{PF_W, PT_LOAD, c_int, c_void, dl_iterate_phdr, dl_phdr_info};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::ptr::NonNull;
use std::time::Duration;

/// The size of the largest pages that Linux is built with, in bytes.
const PAGE: usize = 64 * 1024;

/// The processor time between two looks below which a process is at rest.
const REST: Duration = Duration::from_millis(20);

/// The processor time since the last rest from which it is worth while to give memory back.
const WORK: Duration = Duration::from_millis(100);

/// Gives memory back whenever this process comes to rest, for one that looks at itself every few seconds.
#[derive(Debug)]
pub struct RestWatch {
    /// The processor time at the last look.
    seen: Duration,
    /// The processor time since memory was given back; the start counts as much work.
    worked: Duration,
}

impl RestWatch {
    /// Watches from the start of the process on.
    pub fn new() -> Self {
        Self { seen: processor_time(), worked: WORK }
    }

    /// Gives memory back if the process has worked, and has rested since the last call. Returns whether it is to be called again
    /// soon, since the process has worked and did not rest yet.
    pub fn look(&mut self) -> bool {
        if self.is_due(processor_time()) {
            forget_the_start();
        }
        self.worked >= WORK
    }

    fn is_due(&mut self, now: Duration) -> bool {
        let used = now.saturating_sub(std::mem::replace(&mut self.seen, now));
        self.worked = self.worked.saturating_add(used);
        let is_due = used < REST && self.worked >= WORK;
        if is_due {
            self.worked = Duration::ZERO;
        }
        is_due
    }
}

impl Default for RestWatch {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the processor time of all threads of this process so far; zero if the system does not tell.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |time: TimeVal| {
        let micros = time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_usec());
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Makes all threads share one heap, because each further heap keeps the memory that its thread once used. Call
/// it before any thread starts.
pub(crate) fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number that the allocator reads when it would make another heap.
    #[expect(unsafe_code, reason = "only the C library can be told")]
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

/// Returns free pages of the heap to the system. A turn needs many for a moment, such as for the roster of a
/// large team.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the heap's own locks and moves nothing that is in use.
    #[expect(unsafe_code, reason = "only the C library knows what is free")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Returns free pages of the heap to the system, and unmaps the code of the program and its libraries until it is used again.
/// Most of that code parsed arguments, settings and the roster, which an idle agent does not do.
pub(crate) fn forget_the_start() {
    give_back();
    // SAFETY: the function gets what it expects, and does not use the pointer to data.
    #[expect(unsafe_code, reason = "only the loader knows what is mapped")]
    unsafe {
        dl_iterate_phdr(Some(unmap_code), std::ptr::null_mut());
    }
}

/// Unmaps the segments of a loaded program or library that nobody writes to: the file has what they hold.
#[expect(unsafe_code, reason = "called by the loader")]
unsafe extern "C" fn unmap_code(info: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object, whose table of segments has that many entries.
    let (base, segments) = unsafe {
        let info = &*info;
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    // A segment that is relocated at the start counts as writable.
    for segment in segments.iter().filter(|it| it.p_type == PT_LOAD && it.p_flags & PF_W == 0) {
        let begin = usize::try_from(base.wrapping_add(segment.p_vaddr)).unwrap_or_default();
        let end = begin.saturating_add(usize::try_from(segment.p_memsz).unwrap_or_default());
        // Its first and last pages may have something else in them.
        let (begin, end) = (begin.next_multiple_of(PAGE), end / PAGE * PAGE);
        let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut(begin)) else { break };
        if begin < end {
            // SAFETY: the pages are read again from their file, which has what they held.
            let advised = unsafe { madvise(start, end - begin, MmapAdvise::MADV_DONTNEED) };
            if let Err(why) = advised {
                tracing::debug!(%why, "the pages of the start stay");
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{RestWatch, WORK};
    use crate::os::program::{assert_passes, test_process};
    use std::hint::black_box;
    use std::time::Duration;

    /// The environment variable of the process that runs only this test, because other tests allocate memory, too.
    const ALONE: &str = "TEAM_TEST_MEMORY";

    #[test]
    fn memory_is_given_back_once_after_work_and_not_in_its_midst() {
        let ms = Duration::from_millis;
        let mut watch = RestWatch { seen: ms(0), worked: WORK };
        // The start, a rest, some work, a rest too early, more work, a rest.
        let looks = [80, 81, 82, 150, 151, 210, 211, 212];
        let due = looks.map(|at| watch.is_due(ms(at)));
        assert_eq!(due, [false, true, false, false, false, false, true, false]);
    }

    #[test]
    fn freed_memory_is_returned_to_the_system() {
        if std::env::vars().any(|(name, _)| name == ALONE) {
            return assert_given_back();
        }
        let name = "os::process::memory::tests::freed_memory_is_returned_to_the_system";
        assert_passes(test_process(name).env(ALONE, "1"));
    }

    fn assert_given_back() {
        super::use_one_heap();
        // The last allocation keeps the allocator from returning the end of the heap by itself.
        let many: Vec<Vec<u8>> = (0..4000).map(|_| vec![1; 4000]).collect();
        let last = black_box(vec![1_u8; 4000]);
        let full = resident();
        drop(many);
        super::give_back();
        let (now, freed) = (resident(), 8 << 20);
        assert!(now + freed < full, "{full} bytes, then {now}");
        drop(last);
    }

    /// Returns the resident memory of this process in bytes.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
}
