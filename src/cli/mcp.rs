//! `team mcp`.

use super::args::ModelArgs;
use crate::app::context::Context;
use crate::app::lead::run_for_program;
use crate::app::mcp_member::install::{self, ClientProgram};
use crate::app::mcp_member::{self, McpRequest, mail_hook};
use crate::error::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    /// Name of the member (default: that of the program, such as claude)
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Role of the member
    #[arg(long, value_name = "TEXT", default_value = "teammate")]
    role: String,
    /// Lead a team in this folder: spawn and stop teammates, decide about plans
    #[arg(long, conflicts_with_all = ["name", "role"])]
    lead: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// Serve HTTP on loopback instead of standard input and output; the first line says where
    #[arg(long, hide = true)]
    http: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

impl Args {
    /// Returns the name under which the failpoints of this process are armed.
    pub(super) fn agent(&self) -> &str {
        match &self.name {
            Some(name) => name,
            None if self.lead => "lead",
            None => "team",
        }
    }
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the entry for the settings of a program, or write it there
    Install(InstallArgs),
    /// Give unread mail to a session of Claude Code, as the command of a hook; `install` sets it up
    MailHook,
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    /// The program
    #[arg(value_enum)]
    program: ClientProgram,
    /// Write the entry into the program's settings for this folder; what is there stays
    #[arg(long)]
    write: bool,
    /// Name of the member
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Let the program lead a team in this folder
    #[arg(long, conflicts_with = "name")]
    lead: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    let Args { name, role, lead, model, http, verb } = args;
    match verb {
        None if lead => run_for_program(context, &model.flags(), http),
        None if model.is_given() => {
            let why = "the model of a member is that of the program which starts `team mcp`";
            let hint = "with --lead it is that of the teammates";
            Err(Failure::new(Exit::Usage, "--model and --mode need --lead", why, hint))
        }
        None => mcp_member::run(context, McpRequest { name, role, http }),
        Some(Verb::Install(InstallArgs { program, write, name, lead })) => {
            install::run(context, program, name.as_deref(), lead, write)
        }
        Some(Verb::MailHook) => Ok(mail_hook::run(context)),
    }
}
