//! `--follow`: printing what is new until the reader has gone.

use crate::app::{event_loop::block_on, output::exit_after};
use crate::error::{Exit, Failure};
use std::time::Duration;

/// Calls `print_new` once, and with `follow` again at intervals. `print_new` returns `false` when stdout
/// has no reader any more, which is the orderly end of following.
pub(super) fn print(
    follow: bool,
    interval: Duration,
    mut print_new: impl FnMut() -> Result<bool, Failure>,
) -> Result<Exit, Failure> {
    let printed = print_new()?;
    if !follow || !printed {
        return Ok(exit_after(printed));
    }
    block_on(async {
        while print_new()? {
            tokio::time::sleep(interval).await;
        }
        Ok(Exit::Ok)
    })?
}
