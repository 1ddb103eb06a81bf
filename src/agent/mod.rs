//! One running agent.

pub(crate) mod progress;
