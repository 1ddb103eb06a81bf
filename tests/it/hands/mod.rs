//! The tools that work with files, beside the programs that they stand in for.

mod calls;
mod patch;
mod search;
