//! Helpers that the integration tests and the score card share.

pub(crate) mod acp_agent;
pub(crate) mod approvals;
pub(crate) mod cgroup;
pub(crate) mod child_process;
pub(crate) mod contention;
pub(crate) mod crash_rounds;
pub(crate) mod editor;
pub(crate) mod events;
pub(crate) mod fake;
pub(crate) mod fake_models;
pub(crate) mod harness;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod machines;
pub(crate) mod mcp_client;
pub(crate) mod prompt_cost;
pub(crate) mod scripts;
pub(crate) mod skips;
pub(crate) mod terminal;
