//! Decides when a claim may be removed: no process can write to it any more, and all of it was read.
//!
//! The programs of a team write under the side lock and never to a claim. A shell that runs `echo >>` may
//! hold the file open, or may have resolved its old name and open it only now; the latter is impossible
//! after a second.

use super::claim::Claim;
use crate::os::lease::{OpenWriters, writers};
use crate::wire::limits::{LATE_WRITER_DELAY, LATE_WRITER_DELAY_WITHOUT_LEASES};
use std::fs::File;
use std::io;
use std::time::Duration;

/// Whether late writers can still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateWriters {
    /// Ask again after this time.
    Wait(Duration),
    /// A late writer came.
    Grown,
    /// No writer can come; the size in bytes is final.
    Over(u64),
}

/// Returns the time that is left of the delay before which an answer would prove nothing.
pub(crate) fn too_early(claim: &Claim) -> Option<Duration> {
    LATE_WRITER_DELAY.checked_sub(claim.since.elapsed()).filter(|left| !left.is_zero())
}

/// Checks a claim for late writers.
pub(crate) fn late_writers(claim: &mut Claim, file: &File) -> io::Result<LateWriters> {
    let pause = match writers(file) {
        OpenWriters::Absent => Duration::ZERO,
        OpenWriters::Present => next_pause(claim),
        OpenWriters::Unknown => {
            LATE_WRITER_DELAY_WITHOUT_LEASES.saturating_sub(claim.grown.elapsed())
        }
    };
    // The size comes after the check: bytes of the last writer must not be missed.
    let size = file.metadata()?.len();
    if size != claim.size {
        Ok(LateWriters::Grown)
    } else if pause.is_zero() {
        Ok(LateWriters::Over(size))
    } else {
        Ok(LateWriters::Wait(pause))
    }
}

/// 1, 10, 100 ms, then every second.
fn next_pause(claim: &mut Claim) -> Duration {
    let pause = claim.pause;
    claim.pause = (pause * 10).min(Duration::from_secs(1));
    pause
}
