//! A team of LLM agents on one computer, made of plain processes and plain files.
//!
//! ```text
//!   bin/{team,lead,teammate}            the three programs
//!            cli                        the command line: one file per verb
//!            app                        the work of the verbs: the programs of the lead and of a teammate
//!      ui          supervise            the terminal | the lead's processes
//!            agent                      one running agent: events -> machine -> actions
//!            tool_server                 the team tools, served to a model of another program over MCP
//!            tools        settings      the tools of agents | flags, environment, files
//!            tasks        llm           the shared task list | model providers
//!              acp       mcp           the protocols with agents of other vendors | with servers of tools
//!             rpc        loopback       JSON-RPC, which they have in common | servers for programs of this computer
//!             bus         protocol      sending and broadcasting | decisions without I/O
//!   web       view                      the page on loopback | the team as its files show it
//!             timers                     timers of members, which send them reminders
//!             relay                      mail for other hosts and from them, for the program `team-host`
//!             work                      clones of the repository, in which teammates work
//!             undo                      the changes of files by agents, recorded and taken back
//!             store                     the disk: the only layer that knows .team/
//!             os          error         the machine | exit codes and failures
//!             wire                      data that crosses a process boundary, without I/O
//! ```
//!
//! Imports point down; `tests/it/tidy.rs` checks them. ARCHITECTURE.md describes the layers.

mod acp;
mod agent;
mod app;
pub mod bus;
pub mod cli;
pub mod error;
mod leases;
pub mod llm;
mod loopback;
mod mcp;
mod os;
mod protocol;
pub mod relay;
mod rpc;
mod settings;
pub mod store;
mod supervise;
mod tasks;
mod timers;
mod tool_server;
mod tools;
mod ui;
mod undo;
mod view;
mod web;
pub mod wire;
mod work;

pub use app::context::{host_limits, relay_mail_limits};
pub use app::shared_task_list::SharedTaskList;
pub use settings::environment::{check_key_variable, own_model_keys};
pub use settings::host_limits::HostLimits;

/// Runs the supervisor of a shell command if this process was started as one. `cli::main` calls it first and
/// returns the code if there is one.
pub use os::command_supervisor::intercept;
