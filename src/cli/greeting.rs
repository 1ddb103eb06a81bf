//! A lead's first words to a teammate, for a program that starts one without being a lead: the benchmark.
//! They are made of the same parts as a real lead's, so that they never lag behind what teammates need.

use super::context::permissions;
use crate::error::{Exit, Failure};
use crate::settings::environment::Environment;
use crate::settings::model::{Credentials, ModelChoice};
use crate::settings::{Flags, Settings};
use crate::store::TeamDir;
use crate::supervise::handshake::{self, Hello, StartReason};
use crate::wire::permission::PermissionMode;
use std::io::Write;

/// Greets a teammate over its control socket as a lead of this team would whose person has set nothing:
/// it is on the rehearsal model, and nothing it does asks.
///
/// # Errors
/// The team's settings are not understood, or nobody listens.
pub fn greet(
    socket: impl Write,
    team: &TeamDir,
    incarnation: &str,
    role: &str,
) -> Result<(), Failure> {
    let model = ModelChoice::Rehearsal.to_string();
    let mode = PermissionMode::Bypass.word();
    let flags = Flags::of([("--model", Some(model.as_str())), ("--mode", Some(mode))]);
    let file = TeamDir::settings_in(team.root());
    let settings = Settings::load(&Environment::default(), &file, &flags)?;
    let hello = Hello {
        incarnation: incarnation.to_owned(),
        role: role.to_owned(),
        model,
        credentials: Credentials::default(),
        price: None,
        rules: settings.rules(),
        permissions: permissions(&settings)?,
        hooks: settings.hooks.value,
        start_reason: StartReason::Spawned,
    };
    handshake::send(socket, &hello).map_err(|why| {
        let hint = "look at what the teammate printed";
        Failure::new(Exit::Failure, "the teammate hears nothing", why.to_string(), hint)
    })
}
