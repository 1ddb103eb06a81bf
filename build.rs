//! Has the programs of a Linux machine linked for a fixed address. So their tables of addresses are ready in the file. Otherwise
//! the loader writes them anew at every start, and each process has its own copy in memory.

#![expect(clippy::disallowed_methods, reason = "Cargo tells a build script all by its environment")]

use std::env;

fn main() {
    // It depends on no file: Cargo runs it again if it has changed itself, and needs a line here to know that.
    println!("cargo::rerun-if-env-changed=TARGET");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|it| it == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
