//! Mailbox work beside the event loop.

use super::call::{ToolError, invalid_name};
use crate::bus::BusError;

/// Runs mailbox work on another thread: it may wait for a lock or the disk.
///
/// # Errors
/// The error of `work`, as the model is told it; fatal if the team folder is gone.
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BusError> + Send + 'static,
) -> Result<T, ToolError> {
    match crate::store::asynchronous::offload(work).await {
        Err(why) if why.is_without_team() => Err(ToolError::Fatal(why.to_string())),
        // The other hints name commands of a shell.
        Err(BusError::Name(why)) => Err(invalid_name(&why)),
        done => done.map_err(ToolError::reply),
    }
}
