//! Dying on purpose: a program of a test build arms its failpoints and hands them to the teammates it
//! spawns. In other builds the variable means nothing.

use super::args::Command;
use crate::error::{Exit, Failure};
use crate::os::failpoint::{self, ENABLED, VARIABLE};
use crate::settings::environment::Environment;

/// Arms what the environment asks for.
pub(super) fn arm(command: &Command, environment: &Environment) -> Result<(), Failure> {
    let Some(points) = environment.get(VARIABLE).filter(|_| ENABLED) else { return Ok(()) };
    let who = if let Command::Teammate(args) = command {
        &args.name
    } else if matches!(command, Command::Lead(_)) {
        "lead"
    } else {
        "team"
    };
    failpoint::arm(points, who, None).map_err(|why| {
        let hint = "unset it, or name points of src/os/failpoint.rs";
        Failure::new(Exit::Usage, format!("{VARIABLE} is not usable"), why, hint)
    })
}

/// The environment of a teammate.
pub(super) fn passed_on(environment: &Environment) -> Vec<(String, String)> {
    let mut variables = environment.passed_on();
    let points = environment.get(VARIABLE).filter(|_| ENABLED);
    variables.extend(points.map(|points| (VARIABLE.to_owned(), points.to_owned())));
    variables
}
