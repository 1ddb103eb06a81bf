//! Streams of messages that are read until they end.

use std::time::Duration;

/// Two missed heartbeats end a request for messages.
pub(super) const IDLE_HEARTBEAT: Duration = Duration::from_secs(5);

/// The reason for which a stream of messages is no longer read.
pub(super) enum ReadEnd {
    /// The connection was lost, or there is another bucket.
    Replaced,
    /// The stream failed while the connection stood.
    Failed,
    ReceiverDropped,
}
