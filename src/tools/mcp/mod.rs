//! The tools of MCP servers: an agent's own servers, their tools under the names `mcp__SERVER__TOOL`, and calls of them.
//!
//! A server runs only while it is used: its tools are known from a list that is kept, it starts at its first call, and
//! it ends when it was not called for a while. It runs under the command supervisor and behind the walls of the agent's
//! commands, so it outlives neither a killed agent nor its own use.
//!
//! *Invariant:* a tool runs only as it was judged: one whose description or arguments differ from those that the user has
//! accepted is described to no model, and each call of it is asked about.

mod call;
mod catalog;
mod find_tools;
mod mcp_tools;
mod process;
mod server;
mod setup;

pub(in crate::tools) use call::run;
pub(in crate::tools) use catalog::FOUND;
pub(in crate::tools) use find_tools::FindTools;
pub(crate) use mcp_tools::McpTools;
pub(crate) use setup::McpSetup;
