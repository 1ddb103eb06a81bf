//! The `teammate` program.

fn main() {}
