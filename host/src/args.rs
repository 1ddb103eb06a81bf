//! The command line: a failure becomes a text of what, why and what to do, and an exit code.

use crate::failure::HostFailure;
use crate::run::{RunOptions, run};
use agent_team::store::{TeamDir, locate, relay};
use agent_team::wire::carried::HostName;
use clap::{Parser, Subcommand};
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of wrong arguments, as in the other programs.
const USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "team-host",
    version,
    about = "The relay of this host: carries the mail of a team between hosts."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the team folder of this host until it is ended.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The team folder; without it, the nearest `.team` upward.
    #[arg(long, value_name = "FOLDER", env = "TEAM_DIR")]
    dir: Option<PathBuf>,
    /// The name of this host. It is needed once, and remembered.
    #[arg(long, value_name = "HOST")]
    name: Option<String>,
    /// The id of the team, the same on all of its hosts. It is needed once, and remembered.
    #[arg(long, value_name = "ID")]
    team: Option<String>,
    /// The address of the NATS server, as nats://HOST:PORT; several times for a cluster. It is needed once, and remembered.
    #[arg(long, value_name = "URL")]
    nats: Vec<String>,
    /// Puts this folder in the place of a host of that name, whose folder is gone for good.
    #[arg(long)]
    replace: bool,
    #[arg(long, hide = true, env = agent_team::store::failpoint::VARIABLE)]
    failpoints: Option<String>,
}

/// Runs the program; returns its exit code.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) => {
            let code = u8::try_from(why.exit_code()).unwrap_or(USAGE);
            drop(why.print());
            return ExitCode::from(code);
        }
    };
    let Command::Run(args) = args.command;
    match options(args) {
        Err(why) => failed(&why, USAGE),
        Ok(options) => match run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&why, 1),
        },
    }
}

fn failed(why: &HostFailure, code: u8) -> ExitCode {
    // Nobody may read it.
    drop(writeln!(io::stderr(), "{why}"));
    ExitCode::from(code)
}

fn options(args: RunArgs) -> Result<RunOptions, HostFailure> {
    let here = env::current_dir().map_err(|why| {
        HostFailure::of("the current folder cannot be read", &why, "go to another folder")
    })?;
    let root = locate(args.dir.as_deref(), &here);
    let known = known_identity(&root)?;
    let hint = "team-host run --name HOST --team ID --nats nats://SERVER:4222";
    let missing = |what: &str| {
        HostFailure::usage(
            format!("this host has no {what}"),
            format!("{} is not one of several hosts yet", root.display()),
            format!("give it once: {hint}"),
        )
    };
    let name = args.name.or_else(|| known.as_ref().map(|known| known.host.to_string()));
    let host = HostName::parse(&name.ok_or_else(|| missing("name"))?).map_err(|why| {
        HostFailure::of("the name of the host cannot be used", &why, "for example: --name gpu1")
    })?;
    let team = args.team.or_else(|| known.as_ref().map(|known| known.team.clone()));
    let team = team.ok_or_else(|| missing("team"))?;
    // The id becomes a part of subjects and names of the server, as names of hosts do.
    HostName::parse(&team).map_err(|_| {
        let why = "an id is 1 to 32 characters: a lower-case letter first, then lower-case letters, digits or '-'";
        HostFailure::usage(format!("{team:?} is not an id of a team"), why, "for example: --team demo")
    })?;
    if let Some(known) = known.as_ref().filter(|known| known.team != team) {
        let why = format!("this folder belongs to team {}", known.team);
        let hint = "leave --team out, or use another folder";
        return Err(HostFailure::usage(format!("it cannot join team {team}"), why, hint));
    }
    let servers = match (args.nats.is_empty(), known) {
        (false, _) => args.nats,
        (true, Some(known)) if !known.servers.is_empty() => known.servers,
        (true, _) => return Err(missing("NATS server")),
    };
    Ok(RunOptions {
        root,
        host,
        team,
        servers,
        failpoints: args.failpoints,
        replaces: args.replace,
    })
}

/// Returns the identity of this host, if the folder is one of several hosts.
fn known_identity(root: &Path) -> Result<Option<relay::HostIdentity>, HostFailure> {
    let Ok(dir) = TeamDir::look(root) else { return Ok(None) };
    let hint = "check the file run/.state/relay/host.json below the team folder";
    relay::identity(&dir).map_err(|why| HostFailure::of("the host is unknown", &why, hint))
}
