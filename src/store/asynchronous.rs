//! Store operations for event loops: work that waits for a lock or the disk runs on a separate thread.

use super::{Drained, Fsync, Mailbox, StoreError, TeamDir, roster};
pub(crate) use crate::os::spawn::offload;
use crate::wire::WithUnknownFields;
use crate::wire::roster::Roster;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A mailbox that threads share with its owner.
pub(crate) type SharedMailbox = Arc<Mutex<Mailbox>>;

/// Ends work whose result nobody waits for, when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct EndWithCall(Arc<AtomicBool>);

impl EndWithCall {
    /// Returns the flag for the work, which is set once nobody waits.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for EndWithCall {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// [`offload`] for long work, which ends early once the flag is set: the future was dropped.
///
/// # Panics
/// If the work panics.
pub(crate) async fn offload_while_wanted<R: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> R + Send + 'static,
) -> R {
    let end = EndWithCall::default();
    let is_dropped = end.flag();
    offload(move || work(&is_dropped)).await
}

/// [`roster::update`] for an event loop.
pub(crate) async fn update_roster<R: Send + 'static>(
    dir: &TeamDir,
    fsync: Fsync,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
) -> Result<R, StoreError> {
    let dir = dir.clone();
    offload(move || roster::update(&dir, fsync, change)).await
}

/// [`Mailbox::drain`] for an event loop.
pub(crate) async fn drain(mailbox: &SharedMailbox) -> Result<Drained, StoreError> {
    with_mailbox(mailbox, Mailbox::drain).await
}

/// [`Transcript::sync`](super::Transcript::sync) for an event loop.
pub(crate) async fn sync_transcript(
    mailbox: &SharedMailbox,
    fsync: Fsync,
) -> Result<(), StoreError> {
    with_mailbox(mailbox, move |mailbox| mailbox.transcript().sync(fsync)).await
}

/// Runs work on a mailbox for an event loop.
pub(crate) async fn with_mailbox<R: Send + 'static>(
    mailbox: &SharedMailbox,
    work: impl FnOnce(&mut Mailbox) -> R + Send + 'static,
) -> R {
    let mailbox = Arc::clone(mailbox);
    offload(move || work(&mut mailbox.lock().unwrap_or_else(PoisonError::into_inner))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::event_loop::EventLoopMark;
    use crate::store::test_team;

    #[test]
    fn an_offloaded_update_does_not_block_the_event_loop() {
        let (_folder, dir) = test_team();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mark = EventLoopMark::set();
        runtime.block_on(async {
            let enter = |roster: &mut WithUnknownFields<Roster>| roster.enter("alice", 1.0).pid;
            update_roster(&dir, Fsync::Always, enter).await.unwrap();
        });
        let on_the_loop =
            || roster::update(&dir, Fsync::Always, |roster| roster.enter("bob", 1.0).pid);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(on_the_loop));
        assert!(refused.is_err(), "the same work on the loop's thread is refused");
        drop(mark);
        assert_eq!(roster::read(&dir).unwrap().members.len(), 1);
    }

    #[test]
    fn work_is_told_that_nobody_waits_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        let work = move |is_dropped: &AtomicBool| {
            while !is_dropped.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            sender.send(()).unwrap();
        };
        runtime.block_on(async {
            let mut work = Box::pin(offload_while_wanted(work));
            let mut begin = |context: &mut std::task::Context<'_>| {
                assert!(work.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            };
            std::future::poll_fn(&mut begin).await;
        });
        ended.recv().unwrap();
    }

    #[test]
    fn a_panic_of_offloaded_work_reaches_the_caller() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let work = || runtime.block_on(offload(|| panic!("broken")));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken"));
    }
}
