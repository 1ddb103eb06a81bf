//! Reads the team folder from outside: nothing here locks, takes or changes mail.

pub(crate) mod change_watcher;
pub mod diagnose;
pub mod mail_search;
pub(crate) mod mail_tracker;
pub mod read_cursor;
pub mod unread;
