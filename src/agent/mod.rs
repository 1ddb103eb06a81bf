//! One running agent.

mod event;
mod memory;
mod prompt;
pub(crate) mod progress;
mod step;
