//! Members whose model runs in another program.

mod mcp_install;
mod mcp_member;
