//! Tells the log of messages that are not trusted, and does not let their number fill it.

use crate::trust::NotTrusted;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two lines of the log about one thing.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The most things that are told within that time.
const MOST_TOLD: usize = 32;

/// The messages that were not accepted.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// The things that they claimed to be, each with the time at which it was told.
    told: Mutex<BTreeMap<String, Instant>>,
}

impl RefusalLog {
    /// Notes a message that was not accepted; `context` says what it claimed to be.
    pub(super) fn note(&self, context: &str, why: &NotTrusted) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| at.elapsed() < TELL_EVERY);
        if told.len() >= MOST_TOLD || told.contains_key(context) {
            return;
        }
        told.insert(context.to_owned(), Instant::now());
        drop(told);
        tracing::warn!(%context, %why, "a message is not trusted: it is dropped");
    }
}
