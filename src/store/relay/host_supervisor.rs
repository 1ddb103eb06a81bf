//! The lock and the log of the supervisor of this host: the process that carries out orders of other hosts.

use crate::os::event_loop::check_blocking;
use crate::store::{StoreError, TeamDir};
use std::fs::File;
use std::time::Duration;

/// The tries to take the lock, and the pause between two of them.
const TRIES: u32 = 5;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The lock of the supervisor of a host. While it is held, no other one serves the team folder.
#[derive(Debug)]
pub struct HostSupervisorLock {
    _file: File,
}

impl HostSupervisorLock {
    /// Acquires the lock; `None` if another supervisor holds it. A look whether one does holds the lock for a moment, so it is
    /// tried several times. It blocks meanwhile.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn take(dir: &TeamDir) -> Result<Option<Self>, StoreError> {
        super::orders::make_order_folders(dir)?;
        check_blocking("wait for a look at the lock");
        for _ in 1..TRIES {
            if let Some(file) = super::take_lock(&dir.host_supervisor_lock())? {
                return Ok(Some(Self { _file: file }));
            }
            std::thread::park_timeout(TRY_AGAIN_AFTER);
        }
        Ok(super::take_lock(&dir.host_supervisor_lock())?.map(|file| Self { _file: file }))
    }
}

/// Whether a supervisor of this host runs.
///
/// # Errors
/// The lock exists and cannot be opened.
pub fn is_supervised(dir: &TeamDir) -> Result<bool, StoreError> {
    super::is_held(&dir.host_supervisor_lock())
}

/// Creates the file for what the supervisor prints. What an earlier one has printed is gone.
///
/// # Errors
/// The file cannot be created.
pub fn open_host_supervisor_printed(dir: &TeamDir) -> Result<File, StoreError> {
    super::orders::make_order_folders(dir)?;
    super::open_emptied(&dir.host_supervisor_printed())
}

/// Opens the log of the supervisor for appending. One that is too large becomes `supervisor.old.jsonl`.
///
/// # Errors
/// The file cannot be opened.
pub fn open_host_supervisor_log(dir: &TeamDir) -> Result<File, StoreError> {
    super::orders::make_order_folders(dir)?;
    super::open_rotated(&dir.host_supervisor_log(), &dir.old_host_supervisor_log())
}
