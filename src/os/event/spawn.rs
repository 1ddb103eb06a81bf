//! The start of tasks whose types are erased: the runtime has much code for each type of a task, which every build makes and
//! every program holds.

use std::any::Any;
use std::pin::Pin;
use tokio::task::JoinHandle;

/// A future of any type on this thread.
pub(crate) type LocalFuture<R> = Pin<Box<dyn Future<Output = R>>>;

/// Erases the type of a future.
pub(crate) fn erased<R>(future: impl Future<Output = R> + 'static) -> LocalFuture<R> {
    Box::pin(future)
}

/// Starts a task on this thread.
///
/// # Panics
/// Without an event loop for local tasks.
#[track_caller]
pub(crate) fn spawn_local<R: 'static>(future: impl Future<Output = R> + 'static) -> JoinHandle<R> {
    tokio::task::spawn_local(erased(future))
}

/// Starts blocking work on another thread.
///
/// # Panics
/// Without an event loop.
#[track_caller]
pub(crate) fn spawn_blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    let work: Box<dyn FnOnce() -> R + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}

/// Runs blocking work on a separate thread. Dropping the future discards the result; the work still runs to its
/// end.
///
/// # Panics
/// If the work panics.
pub(crate) async fn offload<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let done = offload_any(Box::new(|| Box::new(work()))).await;
    match done.downcast() {
        Ok(done) => *done,
        // It is what was boxed above.
        Err(_) => std::future::pending().await,
    }
}

async fn offload_any(work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>) -> Box<dyn Any + Send> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(why) => match why.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the shutdown of the runtime cancels work, and it drops this future as well.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}
