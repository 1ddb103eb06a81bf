//! The status of a member whose model runs in another program, whose turns are not seen: it works from a call until a
//! minute after it.

use crate::agent::heartbeat::until;
use crate::agent::status::StatusReporter;
use crate::wire::activity::Activity;
use crate::wire::roster::Status;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// The time after the last call in which the model counts as working.
const WORKS_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum ServedStatus {
    /// The model has called this tool.
    Works(String),
    /// The model waits for mail.
    Waits,
}

#[derive(Debug, Clone)]
pub(super) struct StatusSender(pub(super) UnboundedSender<ServedStatus>);

impl StatusSender {
    pub(super) fn send(&self, status: ServedStatus) {
        // A member that has left has no status.
        let _left = self.0.send(status);
    }
}

/// Publishes the status until all senders are dropped or a stop is asked. Returns the reporter for the last status.
pub(super) async fn publish(
    mut changes: UnboundedReceiver<ServedStatus>,
    mut reporter: StatusReporter,
    stop: impl Future<Output = ()>,
) -> StatusReporter {
    reporter.publish(Status::Idle, None).await;
    let mut stop = std::pin::pin!(stop);
    let mut idle_at = None;
    loop {
        tokio::select! {
            () = &mut stop => return reporter,
            change = changes.recv() => match change {
                None => return reporter,
                Some(ServedStatus::Works(tool)) => {
                    idle_at = Instant::now().checked_add(WORKS_FOR);
                    reporter.publish(Status::Working, Some(Activity::Tool(tool))).await;
                }
                Some(ServedStatus::Waits) => {
                    idle_at = None;
                    reporter.publish(Status::Idle, None).await;
                }
            },
            () = until(idle_at) => {
                idle_at = None;
                reporter.publish(Status::Idle, None).await;
            }
            () = until(reporter.due()) => reporter.write().await,
        }
    }
}
