//! The commands: one file per verb. Here the line is parsed and dispatched, and failures become text
//! and exit codes.

mod args;
mod attach;
mod backoff;
mod build_agent;
mod clean;
mod completions;
mod config;
mod context;
mod doctor;
mod failpoints;
mod greeting;
mod inbox;
mod init;
mod lead;
mod local;
mod log;
mod ls;
mod out;
mod progress_line;
mod provider;
mod requests;
mod roles;
mod send;
mod signal_stream;
mod since;
mod stop;
mod task;
mod teammate;
mod top;
mod trace;
mod transcript;
mod trust;
mod web;

use crate::error::{Exit, Failure};
use crate::settings::environment::Environment;
use args::{Arguments, Command};
use clap::Parser;
use context::Context;
pub use greeting::greet;
use std::ffi::OsString;
use std::process::ExitCode;

/// Which of the three programs this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `team`: all verbs.
    Team,
    /// `lead`: the same as `team lead`.
    Lead,
    /// `teammate`: the same as `team teammate`.
    Teammate,
}

/// Runs a program with the process's arguments and environment.
pub fn main(program: Program) -> ExitCode {
    if let Some(code) = crate::intercept() {
        return code;
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let verb = match program {
        Program::Team => None,
        Program::Lead => Some("lead"),
        Program::Teammate => Some("teammate"),
    };
    if let Some(verb) = verb {
        words.insert(words.len().min(1), verb.into());
    }
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(usage) => {
            let code = if usage.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A closed pipe while printing help is nobody's problem.
            let _printed = usage.print();
            return code.into();
        }
    };
    match run(arguments, Environment::read()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            out::complain(&failure.to_string());
            failure.exit.into()
        }
    }
}

fn run(arguments: Arguments, environment: Environment) -> Result<Exit, Failure> {
    failpoints::arm(&arguments.command, &environment)?;
    let context = Context::new(&arguments.common, environment)?;
    match arguments.command {
        Command::Lead(args) => lead::run(&context, &args),
        Command::Teammate(args) => teammate::run(&context, args),
        Command::Ls(args) => ls::run(&context, &args),
        Command::Send(args) => send::run(&context, args),
        Command::Broadcast(args) => send::broadcast(&context, args),
        Command::Inbox(args) => inbox::run(&context, &args),
        Command::Stop(args) => stop::run(&context, &args),
        Command::Requests(show) => requests::list(&context, &show),
        Command::Approve(args) => requests::approve(&context, args),
        Command::Deny(args) => requests::deny(&context, args),
        Command::Task(args) => task::run(&context, args),
        Command::Trust(args) => trust::run(&context, &args),
        Command::Roles(args) => roles::run(&context, &args),
        Command::Log(args) => log::run(&context, &args),
        Command::Trace(args) => trace::run(&context, &args),
        Command::Transcript(args) => transcript::run(&context, &args),
        Command::Top => top::run(&context),
        Command::Web(args) => web::run(&context, &args),
        Command::Attach(args) => attach::run(&context, &args),
        Command::Completions(args) => Ok(completions::completions(&args)),
        Command::Man(args) => completions::man(&context, &args),
        Command::Names => Ok(completions::names(&context)),
        Command::Doctor(args) => doctor::run(&context, &args),
        Command::Clean(args) => clean::run(&context, &args),
        Command::Config(args) => config::run(&context, &args),
        Command::Init(args) => init::run(&context, &args),
    }
}
