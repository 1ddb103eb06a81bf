//! The deadlines of operations at the server.

use std::time::Duration;

/// The deadline of one operation.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The deadline of the client library: longer than ours, so that ours, which names the operation, is reported.
pub(super) const LIBRARY_TIMEOUT: Duration = Duration::from_secs(3);
