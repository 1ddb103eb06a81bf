//! The one integration-test binary. `tidy` fails when a file of this folder is not listed here.

// For clippy: helpers of tests count as tests.
#![cfg(test)]

mod bad_files;
mod bus;
mod chaos;
mod child;
mod docs;
mod fake;
mod golden;
mod harness;
mod history;
mod mailbox;
mod nine_prompts;
mod outsiders;
mod provider;
mod roster;
mod sdk;
mod terminal;
mod tidy;
