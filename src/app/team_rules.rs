//! What of the settings the whole team keeps: the rules that teammates take over, permissions, mail limits.

use crate::bus::{Bus, Limits};
use crate::error::{Exit, Failure, OrFail};
use crate::os::SystemClock;
use crate::protocol::permission::Policy;
use crate::settings::{Fsync, Settings};
use crate::store::TeamDir;
use crate::store::lock::LOCK_LIMIT;
use crate::supervise::handshake::Rules;
use crate::wire::permission::Permissions;
use std::sync::Arc;
use std::time::Duration;

/// Shortest and longest interval between two heartbeats.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// Picks the settings that teammates take over.
pub(crate) fn rules(settings: &Settings) -> Rules {
    Rules {
        max_rounds: settings.max_rounds.value,
        max_message_bytes: settings.max_message_bytes.value,
        inbox_bytes: settings.inbox_bytes.value,
        fsync: settings.fsync.value,
        max_exchanges: settings.max_exchanges.value,
        max_sends: settings.max_sends.value,
        beat_every: heartbeat_interval(settings.hung_after.value),
        auto_claim: settings.auto_claim.value,
        context_tokens: settings.context_tokens.value,
        prompt_profile: settings.prompt_profile.value,
        budgets: settings.spending.budgets(),
        run: None,
    }
}

/// Returns the permissions of the settings after their rules were checked.
pub(super) fn permissions(settings: &Settings) -> Result<Permissions, Failure> {
    let permissions = settings.permissions.permissions();
    Policy::new(permissions.mode, &permissions.rules).or_exit(
        Exit::Usage,
        "a permission rule is not understood",
        "correct it under [permissions]; `team config` shows where the rules come from",
    )?;
    Ok(permissions)
}

/// Several heartbeats fit into `hung_after` seconds, so that a few missed ones are no reason to act.
fn heartbeat_interval(hung_after: u64) -> Duration {
    let interval = Duration::from_secs(hung_after) / 12;
    if hung_after == 0 {
        LONGEST_HEARTBEAT
    } else {
        interval.clamp(SHORTEST_HEARTBEAT, LONGEST_HEARTBEAT)
    }
}

/// Opens the mail of a team.
pub(super) fn open_bus(team: TeamDir, rules: Rules) -> Bus {
    let limits = Limits {
        max_message_bytes: rules.max_message_bytes,
        inbox_bytes: rules.inbox_bytes,
        fsync: durability(rules.fsync),
        lock_limit: LOCK_LIMIT,
    };
    Bus::new(team, limits, Arc::new(SystemClock))
}

/// Translates the setting into the store's own type.
pub(crate) fn durability(fsync: Fsync) -> crate::store::Fsync {
    match fsync {
        Fsync::Always => crate::store::Fsync::Always,
        Fsync::Never => crate::store::Fsync::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_frequent_enough_for_the_hang_limit() {
        assert_eq!(heartbeat_interval(0), LONGEST_HEARTBEAT);
        assert_eq!(heartbeat_interval(1), SHORTEST_HEARTBEAT);
        assert_eq!(heartbeat_interval(24), Duration::from_secs(2));
        assert_eq!(heartbeat_interval(3600), LONGEST_HEARTBEAT);
    }
}
