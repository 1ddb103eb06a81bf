//! Work on many things at the same time, such as files, so that the disk can merge their syncs.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The most threads of one piece of work. Most of them wait for the disk.
const AT_ONCE: usize = 32;

/// The least number of things for which a thread of their own is worth its start.
const LEAST_SHARE: usize = 8;

/// Does something that waits for the disk with each item, on many threads; returns the results in order.
///
/// # Panics
/// If the work panics.
pub fn each_at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    each_on(AT_ONCE, items, work)
}

/// Does something that takes processor time alone with each item, on a thread for each processor; returns the results in order.
///
/// # Panics
/// If the work panics.
pub(crate) fn each_on_processors<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    each_on(thread::available_parallelism().map_or(1, NonZero::get), items, work)
}

fn each_on<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let share = items.len().div_ceil(threads).max(LEAST_SHARE);
    if items.len() <= share {
        return items.into_iter().map(work).collect();
    }
    let (work, mut rest) = (&work, items.into_iter());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        while rest.len() > share {
            let share: Vec<_> = rest.by_ref().take(share).collect();
            let share = Arc::new(Mutex::new(Some(share)));
            let theirs = Arc::clone(&share);
            let do_share = move |share: &Mutex<Option<Vec<T>>>| {
                let items = share.lock().unwrap_or_else(PoisonError::into_inner).take();
                items.into_iter().flatten().map(work).collect::<Vec<R>>()
            };
            // If no thread can be started, the work is done here.
            let thread = thread::Builder::new().spawn_scoped(scope, move || do_share(&theirs));
            threads.push(thread.map_err(|_| do_share(&share)));
        }
        let last: Vec<R> = rest.map(work).collect();
        let join = |thread: Result<thread::ScopedJoinHandle<'_, Vec<R>>, Vec<R>>| match thread {
            Ok(thread) => match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Err(done) => done,
        };
        threads.into_iter().flat_map(join).chain(last).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 8, 9, 100] {
            let expected: Vec<_> = (0..count).map(|item| item * 2).collect();
            assert_eq!(each_at_once((0..count).collect(), |item| item * 2), expected);
            assert_eq!(each_on_processors((0..count).collect(), |item| item * 2), expected);
        }
    }
}
