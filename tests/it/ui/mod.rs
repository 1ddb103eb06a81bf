//! User interfaces: terminal views, the page, commands for users, the demonstration.

mod accessibility;
mod attach;
mod browser;
mod command_line;
mod demo;
mod doctor_and_clean;
mod export;
mod live_changes;
mod log_and_trace;
mod page;
mod reading;
mod session;
mod top;
mod views;
mod web;
