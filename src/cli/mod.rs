//! The command line: one file per verb. Parses and dispatches; failures become text and exit codes.

#![expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "all verbs have the same signature"
)]

mod acp;
mod args;
mod attach;
mod broadcast;
mod clean;
mod completions;
mod config;
mod diff;
mod doctor;
mod export;
mod host;
mod inbox;
mod init;
mod interrupt;
mod lead;
mod leases;
mod log;
mod ls;
mod man;
mod mcp;
mod mcp_servers;
mod models;
mod names;
mod permissions;
mod program;
mod remind;
mod replay;
mod requests;
mod roles;
mod send;
mod sessions;
mod stop;
mod suggestion;
mod supervise;
mod task;
mod teammate;
mod top;
mod trace;
mod transcript;
mod trust;
mod undo;
mod web;
mod work;

pub use crate::app::teammate::options::{Greeting, greet};

use crate::app::context::Context;
use crate::error::{Exit, Failure};
use crate::settings::environment::Environment;
use args::PlaceArgs;
use clap::{CommandFactory, Parser, Subcommand};
use program::carry_out;
use requests::{approve, deny};
use std::ffi::OsString;
use std::process::ExitCode;

/// Defines the verbs; each module has `Args` and `run`, which also gets what stands in parentheses.
macro_rules! verbs {
    ($($(#[$attribute:meta])* $variant:ident = $module:ident $(($extra:expr))?,)*) => {
        #[derive(Debug, Subcommand)]
        enum Verb {
            $($(#[$attribute])* $variant($module::Args),)*
        }

        impl Verb {
            fn run(self, context: &Context) -> Result<Exit, Failure> {
                match self {
                    $(Self::$variant(args) => $module::run(context, args $(, $extra)?),)*
                }
            }
        }
    };
}

verbs! {
    /// Start the lead: the agent that talks to you and spawns teammates
    Lead = lead,
    /// Start one teammate in the foreground, joined to the team in this folder
    Teammate = teammate,
    /// Show the members: status, activity, unread mail, tokens
    #[command(visible_alias = "status")]
    Ls = ls,
    /// List, add and remove the hosts of a team on several machines (docs/machines.md)
    Host = host,
    /// Send one message
    Send = send,
    /// Send the same message to every member and the lead
    Broadcast = broadcast,
    /// Remind a member of something later; without arguments, list the open timers
    Remind = remind,
    /// Show an inbox: unread mail, and mail delivered since you last looked
    Inbox = inbox,
    /// Stop members, or the whole team; waits until the processes are gone
    Stop = stop,
    /// End the running turns of teammates; their processes and memories stay
    Interrupt = interrupt,
    /// Add, show and change tasks of the team's shared task list
    Task = task,
    /// Show the files and folders that agents have leased; `release` one
    Leases = leases,
    /// Show the work of teammates in clones; `diff`, `take` and `drop` one
    Work = work,
    /// Show what the agents have changed since the session began
    Diff = diff,
    /// Take back the changes of an agent: those of its last turn, or more
    Undo = undo,
    /// Show the requests that wait for a decision
    Requests = requests,
    /// Approve a request (`team requests` lists them)
    Approve = approve,
    /// Deny a request
    Deny = deny,
    /// Show the permission rules in force; `revoke` those of your answers
    Permissions = permissions,
    /// Trust this folder's settings, as they are now, to run code and loosen permissions
    Trust = trust,
    /// Show the MCP servers of agents: state, tools, memory; accept changed tools
    McpServers = mcp_servers,
    /// Show the models that are configured and reachable: context, price, abilities
    Models = models,
    /// Show the roles for agents, and errors in their files
    Roles = roles,
    /// Show the logs of all agents, merged by time
    Log = log,
    /// Show an agent's conversation
    Transcript = transcript,
    /// List the sessions of the lead, current and earlier ones; `show` one
    Sessions = sessions,
    /// Watch the team live, full-screen; `?` shows the keys
    Top = top,
    /// Serve a live page of the team to a browser on this computer
    Web = web,
    /// Trace one message: sent, stored, delivered, acted on, answered
    Trace = trace,
    /// Write the whole run to one file to share, with secrets redacted
    Export = export,
    /// Play a recorded team again in a new folder, and say where it first differs
    Replay = replay,
    /// Check the installation and the team, and suggest a fix for each problem
    Doctor = doctor,
    /// Remove what an ended team left: locks, claims of delivered mail, dead roster entries
    Clean = clean,
    /// Start the lead for an editor that speaks the Agent Client Protocol
    Acp = acp,
    /// Join the team with the agent of another program, such as Claude Code
    Mcp = mcp,
    /// Follow an agent's conversation and send it messages; leaving does not affect it
    Attach = attach,
    /// Print the completion script for a shell
    Completions = completions(Arguments::command()),
    /// Print the manual page, or write the pages of all commands
    Man = man(Arguments::command()),
    /// Carry out the orders of other hosts; the relay of this one starts it
    #[command(hide = true)]
    Supervise = supervise,
    /// Names of agents, for the completions
    #[command(name = "__names", hide = true)]
    Names = names,
    /// Show every setting, its value, and the source of the value
    Config = config,
    /// Create a team folder here, with commented settings and roles
    Init = init,
}

/// A team of LLM agents on your own computer, made of plain processes and plain files.
#[derive(Debug, Parser)]
#[command(name = "team", version, propagate_version = true)]
#[command(after_help = "Start with: team lead")]
struct Arguments {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(subcommand)]
    verb: Verb,
}

/// The first word of a teammate that a lead starts, and its name in `ps`.
const TEAMMATE: &str = "teammate";

/// Runs the program with the process's arguments and environment.
pub fn main() -> ExitCode {
    if let Some(code) = crate::intercept() {
        return code;
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if let Some(name) = words.first_mut().filter(|name| *name == TEAMMATE) {
        // The help and the errors name the command.
        *name = "team".into();
        words.insert(1, TEAMMATE.into());
    }
    carry_out(&words, |arguments| run(arguments, Environment::read()))
}

fn run(arguments: Arguments, environment: Environment) -> Result<Exit, Failure> {
    let Arguments { place, verb } = arguments;
    let agent = if let Verb::Teammate(args) = &verb {
        &args.name
    } else if let Verb::Lead(_) | Verb::Acp(_) = &verb {
        "lead"
    } else if let Verb::Mcp(args) = &verb {
        args.agent()
    } else {
        "team"
    };
    let context = place.context(agent, environment)?;
    verb.run(&context)
}
