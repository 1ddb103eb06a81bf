//! The application: what the commands do, between the command line and the layers that do the work.
//!
//! [`lead`] and [`teammate`] are the programs of agents. The other modules are shared by them or carry out
//! the commands of a person. Nothing here parses a command line.

mod agent_process;
pub(crate) mod attach;
mod build_agent;
pub(crate) mod clean;
pub(crate) mod context;
pub(crate) mod doctor;
pub(crate) mod event_loop;
pub(crate) mod failpoints;
pub(crate) mod failures;
pub(crate) mod greeting;
pub(crate) mod inbox_drain;
pub(crate) mod inbox_follow;
pub(crate) mod inbox_view;
pub(crate) mod lead;
mod log_file;
pub(crate) mod merged_log;
mod model_discovery;
mod model_selection;
pub(crate) mod names;
pub(crate) mod output;
mod own_mailbox;
pub(crate) mod progress_line;
mod provider;
pub(crate) mod requests;
pub(crate) mod roster_view;
pub(crate) mod send;
pub(crate) mod signal_stream;
pub(crate) mod stop_members;
pub(crate) mod task_view;
mod team_backoff;
mod team_rules;
pub(crate) mod teammate;
pub(crate) mod top;
pub(crate) mod web_control;
