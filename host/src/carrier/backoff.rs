//! Pauses between attempts that failed while the connection stood.

use super::connection::ConnectionState;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const SHORTEST: Duration = Duration::from_millis(50);
/// A server without `JetStream` is asked this often, so the pause must not burden it.
const LONGEST: Duration = Duration::from_secs(2);

/// A pause that doubles with each failure.
pub(super) struct Backoff {
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: SHORTEST, last: None }
    }

    /// Waits, but not longer than until the connection changes. After a while without failures the pauses are short
    /// again.
    pub(super) async fn wait(&mut self, connection: &mut watch::Receiver<ConnectionState>) {
        if self.last.is_some_and(|last| last.elapsed() > 3 * LONGEST) {
            self.next = SHORTEST;
        }
        tokio::select! {
            () = sleep(self.next) => {}
            changed = connection.changed() => if changed.is_err() { sleep(self.next).await },
        }
        self.next = (self.next * 2).min(LONGEST);
        self.last = Some(Instant::now());
    }
}
