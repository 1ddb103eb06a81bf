//! The `team` program.

fn main() {}
