//! The one integration-test binary. `tidy` fails when a file of this folder is not listed here.

// For clippy: helpers of tests count as tests.
#![cfg(test)]

mod bad_files;
mod bus;
mod by_hand;
mod cast;
mod chaos;
mod child;
mod choice;
mod crew;
mod docs;
mod escapes;
mod fake;
mod faults;
mod golden;
mod harness;
mod headless;
mod history;
mod hung;
mod inheritance;
mod innocents;
mod inside;
mod lead_killed;
mod leaving;
mod mailbox;
mod many;
mod names;
mod nine_prompts;
mod outsiders;
mod over_http;
mod provider;
mod races;
mod reliability;
mod restart;
mod resume;
mod roster;
mod sdk;
mod secrets;
mod spawn_faults;
mod spawning;
mod stopping;
mod storms;
mod talk;
mod task_work;
mod tasks;
mod terminal;
mod tidy;
mod top;
mod whole_team;
