//! The start of a background command: the record of it, its guards, and the work after its end.

use super::list::{Ending, Place};
use crate::os::command::CommandSetup;
use crate::os::failpoint::hit;
use crate::os::wall::outbox::Outbox;
use crate::tools::call::{Call, ToolError};
use crate::tools::command::call_guard::BackgroundGuard;
use crate::tools::command::outbox;
use crate::tools::command::shell::StartedCommand;
use crate::tools::command::undo_guard::checkout;
use crate::tools::registry::ToolParts;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A command that is to run in the background.
pub(in crate::tools) struct NewCommand {
    pub(in crate::tools) command: String,
    pub(in crate::tools) limit: Option<Duration>,
    pub(in crate::tools) setup: CommandSetup,
    /// The file for its mail; dropped if it ends with its agent, so that it sends nothing then.
    pub(in crate::tools) outbox: Option<Outbox>,
}

/// Starts a command. Returns the text for the model, with the id of the command.
pub(in crate::tools) async fn start(
    new: NewCommand,
    call: &Call,
    parts: &ToolParts,
) -> Result<String, ToolError> {
    let NewCommand { command, limit, mut setup, outbox } = new;
    let background = &parts.background;
    background.load().await;
    background.check_room()?;
    let guard = BackgroundGuard::before(parts, setup.walls.as_deref()).await;
    setup.read_only = guard.read_only();
    let place = Place {
        recorder: Arc::clone(parts.files.recorder()),
        checkout: checkout(parts),
        folder: parts.files.workspace.path().to_owned(),
    };
    let id = background.record(&command, limit, call, place).await?;
    hit("background.recorded");
    let folder = parts.files.workspace.path();
    let mut started = match StartedCommand::start(&command, folder, &setup, None) {
        Ok(started) => started,
        Err(why) => {
            background.forget(&id).await;
            return Err(ToolError::Reply(format!(
                "the command could not be run in {}: {why}; try again, or tell the lead if it keeps failing",
                folder.display()
            )));
        }
    };
    started.leave_running();
    hit("background.started");
    let team = Rc::clone(&parts.team);
    let after = async move |ending: Ending| {
        let mut report = guard.after(&ending.output).await;
        if ending.is_sending
            && let Some(outbox) = outbox
        {
            match outbox::send_all(outbox, &team).await {
                Ok(sent) => report += &sent.below_output(),
                Err(why) => tracing::warn!(%why, "the mail of a background command was not sent"),
            }
        }
        report
    };
    background.attend(&id, started, limit, after).await;
    let end = if limit.is_some() { "" } else { ", at the latest with the team" };
    Ok(format!("{id} runs in the background; you get mail when it has ended{end}"))
}
