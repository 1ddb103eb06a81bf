//! Observes the team folder: no module here locks, claims or changes mail.

pub(crate) mod change_watcher;
pub(crate) mod diagnose;
pub(crate) mod mail_search;
pub(crate) mod mail_tracker;
pub(crate) mod read_cursor;
pub mod unread;
