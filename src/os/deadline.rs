//! Short deadlines, which a test may lengthen, so that a loaded machine does not exceed them.
//!
//! *Invariant:* a build without debug assertions has the deadlines of the contract. This module does not read the
//! environment.

use std::sync::OnceLock;
use std::time::Duration;

/// The environment variable with the shortest deadline of a test, in milliseconds.
pub(crate) const VARIABLE: &str = "TEAM_SHORTEST_DEADLINE_MS";

static SHORTEST: OnceLock<Duration> = OnceLock::new();

/// Lengthens every shorter deadline of this process to `shortest`. Only the first call has an effect.
pub(crate) fn lengthen_to(shortest: Duration) {
    SHORTEST.set(shortest).unwrap_or_default();
}

/// Returns this deadline, or a longer one that a test has asked for.
pub(crate) fn deadline(deadline: Duration) -> Duration {
    let shortest = SHORTEST.get().filter(|_| cfg!(debug_assertions));
    shortest.map_or(deadline, |shortest| deadline.max(*shortest))
}
