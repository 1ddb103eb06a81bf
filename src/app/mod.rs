//! The application: what the commands do, between the command line and the layers that do the work.
//!
//! [`lead`] and [`teammate`] are the programs of agents. The other modules are shared by them or carry out
//! the commands of a person. Nothing here parses a command line.

mod agent_process;
pub(crate) mod attach;
mod build_agent;
pub(crate) mod calling_agent;
pub(crate) mod clean;
mod clones;
pub(crate) mod context;
pub(crate) mod doctor;
pub(crate) mod event_loop;
pub(crate) mod export;
mod fallbacks;
mod file_list;
pub(crate) mod host_copies;
pub(crate) mod host_give_up;
pub(crate) mod host_relay;
pub(crate) mod host_supervisor;
pub(crate) mod host_view;
pub(crate) mod inbox_view;
pub(crate) mod interrupt;
pub(crate) mod lead;
pub(crate) mod lease_view;
pub(crate) mod mcp_member;
pub(crate) mod mcp_servers;
pub(crate) mod merged_log;
mod model;
pub(crate) mod models;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod own_mailbox;
pub(crate) mod permission_rules;
pub(crate) mod permissions;
mod progress_line;
mod question_file;
pub(crate) mod remind;
pub(crate) mod replay;
pub(crate) mod requests;
pub(crate) mod roster_view;
pub(crate) mod send;
pub(crate) mod sessions;
pub(crate) mod shared_task_list;
mod skills;
pub(crate) mod spawn;
mod stdio;
pub(crate) mod stop_members;
mod subagent_models;
mod supervisor_parts;
pub(crate) mod task_view;
pub(crate) mod teammate;
pub(crate) mod top;
pub(crate) mod undo;
mod wall_probe;
mod walls;
pub(crate) mod web_control;
pub(crate) mod work;
