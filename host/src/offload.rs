//! Work that waits for the disk, beside the tasks of the relay.

use tokio::task::spawn_blocking;

/// Runs work that waits for the disk on another thread.
///
/// # Panics
/// If the work panics.
pub(crate) async fn offload<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(why) => match why.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the end of the runtime cancels work, and it drops this future as well.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}
