//! Saves the work of an agent in a clone, on another thread.

use crate::store::asynchronous::offload;
use crate::work::error::WorkError;
use crate::work::save::{Saved, Saver};
use std::sync::Arc;

/// Saves the work in the clone; `None` without one.
pub(crate) async fn save(work: Option<Arc<Saver>>) -> Option<Result<Saved, WorkError>> {
    let saver = work?;
    Some(offload(move || saver.save()).await)
}
