//! What the settings decide for the whole team: permissions and the limits of mail.

use crate::bus::{Bus, Limits};
use crate::error::{Exit, Failure, OrFail};
use crate::os::SystemClock;
use crate::protocol::permission::Policy;
use crate::settings::{Rules, Settings};
use crate::store::TeamDir;
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::permission::Permissions;
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

/// Opens the mail of a team.
pub(super) fn open_bus(team: TeamDir, rules: Rules) -> Bus {
    let limits = Limits {
        max_message_bytes: rules.max_message_bytes,
        inbox_bytes: rules.inbox_bytes,
        fsync: rules.fsync,
        lock_limit: LOCK_TIMEOUT,
    };
    Bus::new(team, limits, Arc::new(SystemClock))
}
