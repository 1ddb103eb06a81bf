//! Wakes a relay when a file changes that it acts on, and when a child of it exits.

use crate::os::async_fd::ReadableFd;
use crate::os::pidfd::Pidfd;
use crate::os::watch::{Watch, Written};
use crate::store::TeamDir;
use crate::store::inbox::inbox_owner;
use crate::store::relay::{make_copy_folders, make_order_folders};
use crate::store::tasks::make_list;
use crate::wire::AgentName;
use crate::wire::host_order::OrderSide;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

/// Tells of changes of files, by file events.
#[derive(Debug)]
pub struct TeamWatcher {
    watch: Watch,
    wakes: ReadableFd,
}

impl TeamWatcher {
    /// Watches for mail in the inboxes of a team. Call it in an event loop.
    ///
    /// # Errors
    /// The user has no file events left; the caller then polls.
    pub fn of_mail(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        watch.add_folder(&dir.inboxes())?;
        Ok(Self { wakes: ReadableFd::to_read(&watch)?, watch })
    }

    /// Watches for a new roster, and for starts and ends of agents' processes. Call it in an event loop.
    ///
    /// # Errors
    /// The user has no file events left; the caller then polls.
    pub fn of_members(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        watch.add_folder(dir.root())?;
        watch.add_writers(&dir.life_locks())?;
        Ok(Self { wakes: ReadableFd::to_read(&watch)?, watch })
    }

    /// Watches for orders of this host to others. Call it in an event loop.
    ///
    /// # Errors
    /// The folder cannot be made, or the user has no file events left; the caller then polls.
    pub fn of_orders(dir: &TeamDir) -> io::Result<Self> {
        make_order_folders(dir).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add_folder(&dir.relay_orders(OrderSide::Out))?;
        Ok(Self { wakes: ReadableFd::to_read(&watch)?, watch })
    }

    /// Watches for changes of the list of tasks. Call it in an event loop.
    ///
    /// # Errors
    /// The list cannot be watched, or the user has no file events left; the caller then polls.
    pub fn of_tasks(dir: &TeamDir) -> io::Result<Self> {
        make_list(dir).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        // A writer touches it.
        watch.add(&dir.tasks_lock())?;
        Ok(Self { wakes: ReadableFd::to_read(&watch)?, watch })
    }

    /// Watches for wishes to see files of other hosts. Call it in an event loop.
    ///
    /// # Errors
    /// The folder cannot be made, or the user has no file events left; the caller then polls.
    pub fn of_wishes(dir: &TeamDir) -> io::Result<Self> {
        make_copy_folders(dir).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add_folder(&dir.relay_wishes())?;
        Ok(Self { wakes: ReadableFd::to_read(&watch)?, watch })
    }

    /// Waits for the next change of an inbox; returns the names of all that have changed.
    ///
    /// # Errors
    /// The events cannot be read.
    pub async fn changed_inboxes(&self) -> io::Result<ChangedInboxes> {
        self.wakes.woken().await?;
        let names = self.watch.changed_names()?;
        let name = |file: OsString| AgentName::mailbox(inbox_owner(file.to_str()?)?).ok();
        Ok(match names {
            Some(names) => ChangedInboxes::Of(names.into_iter().filter_map(name).collect()),
            None => ChangedInboxes::Any,
        })
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// The events cannot be read.
    pub async fn changed(&self) -> io::Result<()> {
        self.wakes.woken().await?;
        self.watch.acknowledge(&mut Written::default())
    }
}

/// The inboxes that have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedInboxes {
    /// Those of these names.
    Of(BTreeSet<AgentName>),
    /// Any.
    Any,
}

impl Default for ChangedInboxes {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl ChangedInboxes {
    /// Adds others.
    pub fn add(&mut self, more: Self) {
        match (&mut *self, more) {
            (Self::Of(names), Self::Of(more)) => names.extend(more),
            (Self::Any, _) => {}
            (Self::Of(_), Self::Any) => *self = Self::Any,
        }
    }
}

/// Tells of the exit of a child.
#[derive(Debug)]
pub struct ExitWatcher(ReadableFd);

impl ExitWatcher {
    /// Watches a child that was not waited for yet. Call it in an event loop.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(child: u32) -> io::Result<Self> {
        let pid = i32::try_from(child).map_err(io::Error::other)?;
        Ok(Self(ReadableFd::to_read(&Pidfd::open(pid)?)?))
    }

    /// Waits until the child has exited. Then it is to be waited for.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub async fn exited(&self) -> io::Result<()> {
        self.0.wait().await
    }
}
