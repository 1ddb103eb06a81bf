//! Ends the commands of dead agents, and keeps the mail that they have left.

use crate::os::process_tree;
use crate::store::{Fsync, TeamDir, unsent_mail};
use crate::wire::AgentName;

/// Kills the commands of the process of `name` with this run id. Mail in their outboxes is kept for the next process.
/// Returns the pids of the survivors.
pub(crate) fn end_commands(
    dir: &TeamDir,
    name: &AgentName,
    run_id: &str,
    fsync: Fsync,
) -> Vec<i32> {
    process_tree::end_run(run_id, |left| {
        let kept = unsent_mail::keep(dir, name, run_id, left, fsync);
        kept.inspect_err(|why| tracing::warn!(%name, %why, "unsent mail is not kept")).is_ok()
    })
}
