//! Has the relocations of the programs packed if the loader of this machine reads the packed form (glibc 2.36 and later). They
//! are a tenth of a program otherwise, all of which is read at every start.

#![expect(clippy::disallowed_methods, reason = "Cargo tells a build script all by its environment")]

use std::env;
use std::process::Command;

/// The first version of glibc whose loader reads packed relocations.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    // It depends on no file: Cargo runs it again if it has changed itself, and needs a line here to know that.
    println!("cargo::rerun-if-env-changed=TARGET");
    if is_for_this_machine() && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the programs are built for a machine like this one. On others, linkers do not all know the option.
fn is_for_this_machine() -> bool {
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|it| it == value);
    env::var("HOST") == env::var("TARGET")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
}

/// Returns the version of glibc on this machine; `None` if it is not known.
fn glibc() -> Option<(u32, u32)> {
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
