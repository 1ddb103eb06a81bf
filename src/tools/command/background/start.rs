//! The start of a background command: the record of it, its guards, and the work after its end.

use super::list::{BackgroundCommands, Ending, Place};
use crate::os::command::CommandSetup;
use crate::os::failpoint::hit;
use crate::os::spawn::spawn_local;
use crate::os::wall::outbox::Outbox;
use crate::tools::call::{Call, ToolError};
use crate::tools::command::call_guard::BackgroundGuard;
use crate::tools::command::outbox;
use crate::tools::command::shell::StartedCommand;
use crate::tools::command::undo_guard::checkout;
use crate::tools::registry::ToolParts;
use crate::tools::team_context::TeamContext;
use std::path::Path;
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

/// Starts a command. Returns the text for the model, with the id of the command. Dropping the future does not stop a start
/// that has begun, so that no record is left of a command that nobody attends to.
pub(in crate::tools) async fn start(
    mut new: NewCommand,
    call: &Call,
    parts: &ToolParts,
) -> Result<String, ToolError> {
    parts.background.load().await;
    parts.background.check_room()?;
    let guard = BackgroundGuard::before(parts, new.setup.walls.as_deref()).await;
    new.setup.read_only = guard.read_only();
    let place = Place {
        recorder: Arc::clone(parts.files.recorder()),
        checkout: checkout(parts),
        folder: parts.files.workspace.path().to_owned(),
    };
    let (background, team) = (Rc::clone(&parts.background), Rc::clone(&parts.team));
    let (call, folder) = (call.clone(), place.folder.clone());
    let begun = spawn_local(async move {
        let id = background.record(&new.command, new.limit, &call, place).await?;
        hit("background.recorded");
        begin(id, new, &folder, guard, &background, team).await
    });
    begun.await.map_err(ToolError::reply)?
}

/// Starts a command that is recorded, and attends to it.
async fn begin(
    id: String,
    NewCommand { command, limit, setup, outbox }: NewCommand,
    folder: &Path,
    guard: BackgroundGuard,
    background: &Rc<BackgroundCommands>,
    team: Rc<TeamContext>,
) -> Result<String, ToolError> {
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
