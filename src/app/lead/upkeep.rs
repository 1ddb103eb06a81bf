//! The work of a lead for the long life of its team folder, beside its session: tasks that ended long ago are archived, the
//! earlier conversations that the settings limit are removed, and the others get an index.
//!
//! *Invariant:* nobody waits for it. It ends with the session, between two files, and the next lead goes on with it.

use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::settings::Settings;
use crate::store::asynchronous::offload_while_wanted;
use crate::store::conversations::index;
use crate::store::retention::{RemovedConversation, RetentionLimits, remove_old_conversations};
use crate::store::tasks::TaskList;
use crate::store::{Fsync, StoreError, TeamDir};
use crate::view::trace::sends;
use crate::wire::limits::MIB;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Begins the upkeep of the team folder.
pub(super) fn begin(dir: &TeamDir, settings: &Settings) {
    let (dir, limits, fsync) = (dir.clone(), limits(settings), settings.fsync.value);
    // The task is dropped with the event loop, which ends the work.
    spawn_local(async move {
        offload_while_wanted(move |is_over| keep_up(&dir, limits, fsync, is_over)).await;
    });
}

/// Returns the limits of the settings for earlier conversations.
pub(crate) fn limits(settings: &Settings) -> RetentionLimits {
    let days = settings.retention_sessions_days.value.0;
    let mebibytes = settings.retention_sessions_mib.value.0;
    RetentionLimits {
        age: days.map(|days| Duration::from_secs(days.saturating_mul(24 * 3600))),
        bytes: mebibytes.map(|mebibytes| mebibytes.saturating_mul(MIB)),
    }
}

fn keep_up(dir: &TeamDir, limits: RetentionLimits, fsync: Fsync, is_over: &AtomicBool) {
    let is_over = || is_over.load(Ordering::Relaxed);
    if let Err(why) = archive_tasks(dir, fsync, &is_over) {
        tracing::warn!(%why, "tasks that ended long ago are archived by the next lead");
    }
    if let Err(why) = keep_conversations(dir, limits, &is_over) {
        tracing::warn!(%why, "the archive of conversations is put in order by the next lead");
    }
}

fn archive_tasks(
    dir: &TeamDir,
    fsync: Fsync,
    is_over: &dyn Fn() -> bool,
) -> Result<(), StoreError> {
    // A list of its own: nobody waits for the one that the lead looks at.
    let (mut tasks, mut archived) = (TaskList::of(dir, fsync), 0);
    while !is_over() {
        match tasks.archive_ended()? {
            0 => break,
            moved => archived += moved,
        }
    }
    if archived > 0 {
        tracing::info!(archived, "tasks that ended long ago were archived");
    }
    Ok(())
}

fn keep_conversations(
    dir: &TeamDir,
    limits: RetentionLimits,
    is_over: &dyn Fn() -> bool,
) -> Result<(), StoreError> {
    let began = SystemClock.monotonic();
    let made = index::refresh(dir, &sends, is_over)?;
    if made > 0 {
        let ms = began.elapsed().as_millis();
        tracing::info!(made, ms, "earlier conversations were indexed");
    }
    let removed = remove_old_conversations(dir, limits, SystemClock.now(), is_over)?;
    for RemovedConversation { file, bytes } in &removed {
        tracing::info!(file, bytes, "an earlier conversation was removed, as the settings say");
    }
    if !removed.is_empty() {
        // Their indexes go, too.
        index::refresh(dir, &sends, is_over)?;
    }
    Ok(())
}
