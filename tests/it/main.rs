//! The integration tests: one binary, one folder per topic.
//!
//! `cargo test` leaves out the long ones, which are marked `#[ignore]`; `scripts/check --all` runs them too.

// Clippy's exemptions for tests then cover the helpers, too.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod docs;
mod doors;
mod fault;
mod hands;
mod import_graph;
mod lifecycle;
mod mail;
mod permission;
mod prompt;
mod provider;
mod reliability;
mod tidy;
mod ui;
mod walls;
mod work;
