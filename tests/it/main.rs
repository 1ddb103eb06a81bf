//! The one integration-test binary. `tidy` fails when a file of this folder is not listed here.

// For clippy: helpers of tests count as tests.
#![cfg(test)]

mod fake;
mod provider;
mod sdk;
mod tidy;
