//! The handshake of a lead, for a program that starts a teammate without being a lead: the benchmark. It
//! consists of the same parts as that of a real lead.

use super::team_rules::permissions;
use crate::error::{Failure, OrFail};
use crate::settings::environment::Environment;
use crate::settings::model::{Credentials, ModelChoice};
use crate::settings::{Flags, Settings};
use crate::store::TeamDir;
use crate::supervise::handshake::{self, Hello, StartReason};
use crate::wire::permission::PermissionMode;
use std::io::Write;

/// Greets a teammate over its control socket like a lead of this team without user settings. The teammate
/// uses the fallback model and asks for nothing.
///
/// # Errors
/// The team's settings are not understood, or the socket has no reader.
pub fn greet(
    socket: impl Write,
    team: &TeamDir,
    incarnation: &str,
    role: &str,
) -> Result<(), Failure> {
    let model = ModelChoice::fallback().to_string();
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
    handshake::send(socket, &hello)
        .or_fail("the teammate hears nothing", "look at what the teammate printed")
}
