//! The turn of the commands of an agent and its subagents.

use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Held by the command that runs: those of an agent and its subagents run one after another, since a look at the changes
/// of files is for one command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandTurn(Arc<Mutex<()>>);

pub(in crate::tools) type OwnedTurn = OwnedMutexGuard<()>;

impl CommandTurn {
    /// Waits until no other command runs.
    pub(in crate::tools) async fn take(&self) -> OwnedTurn {
        Arc::clone(&self.0).lock_owned().await
    }
}
