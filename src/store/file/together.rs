//! Work on many files at the same time, so that the disk can merge their syncs.

use std::thread;

/// The most threads of one piece of work.
const AT_ONCE: usize = 8;

/// The least number of files for which a thread of its own is worth its start.
const LEAST_SHARE: usize = 8;

/// Does something with each item on several threads; returns the results in order.
///
/// # Panics
/// If the work panics.
pub(crate) fn each_at_once<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let share = items.len().div_ceil(AT_ONCE).max(LEAST_SHARE);
    if items.len() <= LEAST_SHARE {
        return items.into_iter().map(work).collect();
    }
    let (work, mut rest) = (&work, items.into_iter());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        while rest.len() > 0 {
            let share: Vec<_> = rest.by_ref().take(share).collect();
            threads.push(scope.spawn(move || share.into_iter().map(work).collect::<Vec<_>>()));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<R>>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 8, 9, 100] {
            let results = each_at_once((0..count).collect(), |item| item * 2);
            assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }
}
