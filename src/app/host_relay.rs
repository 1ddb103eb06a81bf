//! The program of the relay of this host, `team-host`: it is a program of its own, so that this one has no line of network
//! code for other hosts.

use super::context::Context;
use crate::error::{Exit, Failure};
use crate::settings::environment::{Environment, PassedNames};
use crate::supervise::relay_process::RelayProgram;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const NAME: &str = "team-host";

/// The variables that the relay gets beside those that are always passed on.
const VARIABLES: [&str; 3] = ["SSH_AUTH_SOCK", "TEAM_SSH", "TEAM_NATS_SERVER"];

/// Returns the program of the relay, as a lead starts it: beside this program, else in PATH.
pub(crate) fn program(environment: &Environment) -> RelayProgram {
    let own = std::env::current_exe().ok().map(|own| own.with_file_name(NAME));
    let folders = environment.get("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(folders).map(|folder| folder.join(NAME));
    let path = own.into_iter().chain(in_path).find(|path| path.is_file());
    let mut variables = environment.passed_on(&PassedNames::default());
    let further = VARIABLES.into_iter().filter_map(|name| Some((name, environment.get(name)?)));
    variables.extend(further.map(|(name, value)| (name.to_owned(), value.to_owned())));
    RelayProgram { path, environment: variables, keys: environment.model_keys() }
}

/// Becomes `team-host`, with these arguments, for the team folder of the context. Returns only if that fails.
pub(crate) fn become_team_host(context: &Context, verb: &str, args: &[OsString]) -> Failure {
    if let Err(why) = context.refuse_inside_agent(&format!("host {verb}")) {
        return why;
    }
    let RelayProgram { path, environment, .. } = program(&context.environment);
    let Some(path) = path else {
        let hint = "install it beside team: cargo install --path host, in a checkout";
        return Failure::new(
            Exit::Failure,
            "team-host is missing",
            "it is neither beside team nor in PATH",
            hint,
        );
    };
    let mut command = Command::new(&path);
    // Its usage names the command that was given.
    command.arg0("team host").arg(verb).arg("--dir").arg(&context.team_path).args(args);
    let why = command.env_clear().envs(environment).exec();
    let what = format!("{} cannot be run", path.display());
    Failure::new(
        Exit::Failure,
        what,
        why.to_string(),
        "install it again: cargo install --path host",
    )
}
