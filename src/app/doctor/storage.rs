//! The check of what a team keeps: its sizes, and the setting that limits them.

use super::DoctorReport;
use crate::app::context::Context;
use crate::app::lead::retention_limits;
use crate::store::TeamDir;
use crate::store::retention::{RetentionLimits, StoredSizes, sizes};
use crate::wire::limits::MIB;

/// The size of all earlier sessions from which a person is told how to limit it: most teams never reach it.
const MUCH: u64 = 1024 * MIB;

impl DoctorReport {
    pub(super) fn storage(&mut self, context: &Context, team: &TeamDir) {
        const CHECK: &str = "storage";
        let limits = retention_limits(&context.settings_or_defaults());
        match sizes(team) {
            Ok(sizes) if is_much(&sizes) && limits == RetentionLimits::default() => {
                let remedy = "nothing to do, if there is room; retention.sessions_days or \
                              retention.sessions_mib in your settings lets each lead remove the \
                              oldest sessions when it starts; `team sessions` lists them";
                self.note(CHECK, words(&sizes, limits), remedy);
            }
            Ok(sizes) => self.fine(CHECK, words(&sizes, limits)),
            Err(why) => self.broken(CHECK, &why),
        }
    }
}

fn is_much(sizes: &StoredSizes) -> bool {
    sizes.earlier_bytes.saturating_add(sizes.subagent_bytes) > MUCH
}

fn words(sizes: &StoredSizes, limits: RetentionLimits) -> String {
    let StoredSizes {
        earlier,
        earlier_bytes,
        current_bytes,
        subagent_bytes,
        log_bytes,
        undo_bytes,
    } = *sizes;
    let sessions = if earlier == 1 { "session" } else { "sessions" };
    let mut kept = Vec::new();
    kept.extend(limits.age.map(|age| format!("for {} days", age.as_secs() / (24 * 3600))));
    kept.extend(limits.bytes.map(|bytes| format!("up to {}", size(bytes))));
    let kept = if kept.is_empty() { "without a limit".to_owned() } else { kept.join(" and ") };
    format!(
        "{earlier} earlier {sessions} ({}), kept {kept}; current sessions {}, subagents {}, logs {}, \
         versions for undo {}",
        size(earlier_bytes),
        size(current_bytes),
        size(subagent_bytes),
        size(log_bytes),
        size(undo_bytes)
    )
}

/// Returns a size in MiB.
fn size(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(MIB);
    match tenths {
        0..100 => format!("{}.{} MiB", tenths / 10, tenths % 10),
        _ => format!("{} MiB", bytes / MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_sizes_and_the_limits_are_told() {
        let sizes = StoredSizes {
            earlier: 1,
            earlier_bytes: 3 * MIB / 2,
            current_bytes: 1,
            subagent_bytes: MIB,
            log_bytes: 0,
            undo_bytes: 300 * MIB,
        };
        let told = words(&sizes, RetentionLimits::default());
        let wanted = "1 earlier session (1.5 MiB), kept without a limit; current sessions 0.1 MiB, \
                      subagents 1.0 MiB, logs 0.0 MiB, versions for undo 300 MiB";
        assert_eq!(told, wanted);
        let age = Some(Duration::from_secs(30 * 24 * 3600));
        let told = words(&sizes, RetentionLimits { age, bytes: Some(2048 * MIB) });
        assert!(told.contains("kept for 30 days and up to 2048 MiB;"), "{told}");
    }
}
