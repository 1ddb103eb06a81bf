//! The terms of the names of this host, for the lines that its agents write.

use crate::wire::AgentName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The highest term of each name that this host has had. Its clones share them: one part of a relay learns the terms, and the
/// outboxes write them into lines.
#[derive(Debug, Clone, Default)]
pub struct OwnTerms(Arc<Mutex<BTreeMap<String, u64>>>);

impl OwnTerms {
    /// Notes a term of a name. A lower one than is known does not count.
    pub fn note(&self, name: &AgentName, term: u64) {
        let mut terms = self.lock();
        let known = terms.entry(name.to_string()).or_default();
        *known = term.max(*known);
    }

    /// Returns the term of a sender; 0 if this host never had such a name.
    pub fn of(&self, sender: &str) -> u64 {
        self.lock().get(sender).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
