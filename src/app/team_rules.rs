//! What the settings decide for the whole team: permissions, and the limits of mail and tasks.

use crate::bus::{Bus, Limits};
use crate::error::{Exit, Failure, OrFail};
use crate::os::SystemClock;
use crate::protocol::permission::Policy;
use crate::settings::{Rules, Settings};
use crate::store::TeamDir;
use crate::tasks::Tasks;
use crate::tools::can_complete_tasks;
use crate::wire::{limits::LOCK_TIMEOUT, permission::Permissions};
use std::sync::Arc;

/// Returns the permissions of the settings after their rules were checked.
pub(super) fn permissions(settings: &Settings) -> Result<Permissions, Failure> {
    let permissions = settings.permissions();
    Policy::new(permissions.mode, &permissions.rules).or_exit(
        Exit::Usage,
        "a permission rule is not understood",
        "correct it under [permissions]; `team config` shows where the rules come from",
    )?;
    Ok(permissions)
}

pub(super) fn open_bus(team: TeamDir, rules: Rules) -> Arc<Bus> {
    let limits = Limits {
        max_message_bytes: rules.max_message_bytes,
        inbox_bytes: rules.inbox_bytes,
        fsync: rules.fsync,
        lock_limit: LOCK_TIMEOUT,
    };
    Arc::new(Bus::new(team, limits, Arc::new(SystemClock)))
}

pub(crate) fn open_tasks(bus: &Arc<Bus>) -> Arc<Tasks> {
    Arc::new(Tasks::new(Arc::clone(bus), Arc::new(SystemClock), can_complete_tasks))
}
