//! Failpoints: a program of a test build arms those that its environment names, and hands them to the
//! teammates it spawns. In other builds the variable has no effect.

use crate::error::{Exit, Failure, OrFail};
use crate::os::failpoint::{self, ENABLED, VARIABLE};
use crate::settings::environment::Environment;

/// Arms the failpoints that the environment names for `agent`.
pub(crate) fn arm(agent: &str, environment: &Environment) -> Result<(), Failure> {
    let Some(points) = environment.get(VARIABLE).filter(|_| ENABLED) else { return Ok(()) };
    failpoint::arm(points, agent, None).or_exit(
        Exit::Usage,
        format!("{VARIABLE} is not usable"),
        "unset it, or name points of src/os/failpoint.rs",
    )
}

/// Returns the environment of a teammate.
pub(super) fn teammate_environment(environment: &Environment) -> Vec<(String, String)> {
    let mut variables = environment.passed_on();
    let points = environment.get(VARIABLE).filter(|_| ENABLED);
    variables.extend(points.map(|points| (VARIABLE.to_owned(), points.to_owned())));
    variables
}
