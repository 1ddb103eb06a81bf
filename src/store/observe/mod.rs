//! Reads the team folder from outside: nothing here locks, takes or changes mail.

pub(crate) mod change_watcher;
pub(crate) mod diagnose;
pub(crate) mod mail_search;
pub(crate) mod mail_tracker;
pub(crate) mod read_cursor;
pub mod unread;
