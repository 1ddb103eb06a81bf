//! The pieces of work under way, each with an id.
//!
//! The end of a piece of work is an event that waits in a queue, so a piece of work can be cancelled after it
//! ended and before its end is handled. [`WorkSet::end`] detects such a late end.

use crate::os::spawn::spawn_local;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::task::JoinHandle;

/// The id of one piece of work of one [`WorkSet`]. An id is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkId(u64);

/// The pieces of work under way. Each reports its result, of type `R`, with its id.
pub(crate) struct WorkSet<R> {
    last: u64,
    running: BTreeMap<WorkId, JoinHandle<()>>,
    report: Rc<dyn Fn(WorkId, R)>,
}

impl<R: 'static> WorkSet<R> {
    /// Creates a set without work; `report` is called once for each piece of work that ends.
    pub(crate) fn new(report: impl Fn(WorkId, R) + 'static) -> Self {
        Self { last: 0, running: BTreeMap::new(), report: Rc::new(report) }
    }

    pub(crate) fn start(&mut self, work: impl Future<Output = R> + 'static) -> WorkId {
        self.last += 1;
        let (id, report) = (WorkId(self.last), Rc::clone(&self.report));
        let task = spawn_local(async move { report(id, work.await) });
        self.running.insert(id, task);
        id
    }

    /// Removes a piece of work that has reported its result. Returns false if it was cancelled before; its result
    /// must then be dropped.
    pub(crate) fn end(&mut self, id: WorkId) -> bool {
        self.running.remove(&id).is_some()
    }
}

impl<R> WorkSet<R> {
    /// Cancels one piece of work, and drops everything that its future owns.
    pub(crate) fn cancel(&mut self, id: WorkId) {
        if let Some(task) = self.running.remove(&id) {
            task.abort();
        }
    }

    pub(crate) fn cancel_all(&mut self) {
        while let Some((&id, _)) = self.running.first_key_value() {
            self.cancel(id);
        }
    }
}

impl<R> Drop for WorkSet<R> {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::future::pending;
    use std::rc::Weak;
    use tokio::task::yield_now;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(tokio::runtime::LocalOptions::default());
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn work_reports_once_and_its_late_end_is_not_that_of_its_successor() {
        run(async {
            let reports = Rc::new(RefCell::new(Vec::new()));
            let sink = Rc::clone(&reports);
            let mut work = WorkSet::new(move |id, result| sink.borrow_mut().push((id, result)));
            let slow = work.start(async {
                yield_now().await;
                yield_now().await;
                "slow"
            });
            let fast = work.start(async { "fast" });
            for _ in 0..4 {
                yield_now().await;
            }
            assert_eq!(*reports.borrow(), [(fast, "fast"), (slow, "slow")], "their ends wait");
            assert!(work.end(slow));
            assert!(!work.end(slow), "a result counts once");
            work.cancel(fast);
            let successor = work.start(async { "successor" });
            assert!(!work.end(fast), "it was cancelled after it had ended");
            yield_now().await;
            assert!(work.end(successor));
        });
    }

    #[test]
    fn cancelled_work_is_dropped_and_other_work_goes_on() {
        run(async {
            let mut work = WorkSet::new(|_, ()| {});
            // Each piece of work ends only when it is dropped, and owns a value that the test watches.
            let (ids, owned): (Vec<WorkId>, Vec<Weak<()>>) = (0..3)
                .map(|_| {
                    let owned = Rc::new(());
                    let seen = Rc::downgrade(&owned);
                    let id = work.start(async move {
                        pending::<()>().await;
                        drop(owned);
                    });
                    (id, seen)
                })
                .unzip();
            let living = || owned.iter().map(Weak::strong_count).collect::<Vec<_>>();
            yield_now().await;
            work.cancel(ids[1]);
            yield_now().await;
            assert_eq!(living(), [1, 0, 1]);
            drop(work);
            yield_now().await;
            assert_eq!(living(), [0, 0, 0]);
        });
    }
}
