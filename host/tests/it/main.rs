//! The tests of the relay: one binary.

// Clippy's exemptions for tests then cover the helpers, too.
#![cfg(test)]

#[path = "../../../tests/support/skips.rs"]
mod skips;

#[path = "../../../tests/torture/disk.rs"]
mod disk;

#[path = "../../../tests/torture/mount.rs"]
mod mount;

mod attachments;
mod carrier;
mod clocks;
mod cluster;
mod conformance;
mod demo;
mod failpoints;
mod faults;
mod figures;
mod foreign_server;
mod full_lengths;
mod keys;
mod lead;
mod lost_files;
mod machines;
mod member_process;
mod members;
mod naive;
mod names;
mod orders;
mod other_protocol;
mod pair;
mod played_host;
mod power_cuts;
mod rig;
mod server_limits;
mod slow_link;
mod ssh;
mod tasks;
mod told_again;
mod traffic;
mod trust;
mod views;
mod workspaces;
