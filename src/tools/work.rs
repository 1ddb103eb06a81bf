//! Tools for the work in clones: a teammate offers its work, and the lead takes it into the workspace.

use super::call::{Call, ToolError};
use super::command::undo_guard::UndoGuard;
use super::registry::{TALKS, Tool, ToolParts, parameters};
use crate::bus::{Bus, Outgoing};
use crate::store::asynchronous::offload;
use crate::store::roster;
use crate::wire::AgentName;
use crate::wire::tool::ParameterType::Text;
use crate::wire::tool::{AfterCrash, Audience, Effect, RoleAccess, ToolSpec};
use crate::work::take::{self, Merged, Taker, WorkToTake};
use std::sync::Arc;

parameters!(OfferWork { summary: String = required(Text, "the work, in a sentence or two") });

impl Tool for OfferWork {
    const SPEC: ToolSpec = ToolSpec {
        name: "offer_work",
        description: "Offer the files of your clone to the lead, as they are now; commits are not needed. \
                      The lead gets mail with the list of changes and can take them into the workspace. \
                      Answers with the files that conflict with the workspace, if there are any: then \
                      `git fetch origin`, merge or repeat the change, and offer it again.",
        audience: Audience::Teammate,
        role_access: RoleAccess::Granted,
        after_crash: AfterCrash::Repeat,
        ..TALKS
    };

    fn is_available(parts: &ToolParts) -> bool {
        parts.work.is_some()
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let team = &parts.team;
        let Some(saver) = parts.work.clone() else {
            return Err(ToolError::reply(
                "you work in the workspace itself; there is nothing to offer",
            ));
        };
        let dir = team.bus.dir().clone();
        let offered = offload(move || take::offer(&saver, &dir)).await;
        let offered = offered.map_err(ToolError::reply)?;
        let (me, summary) = (&team.me, &self.summary);
        let (content, answer) = match offered {
            Merged::Clean { stat } => (
                format!("{me} offers work: {summary}\n{stat}\nTake it with take_work."),
                format!("Offered; the lead has mail with this list:\n{stat}"),
            ),
            Merged::Conflict { files } => {
                let files = files.join(", ");
                (
                    format!(
                        "{me} offers work that cannot be taken: {summary}\nIn conflict with the workspace: {files}"
                    ),
                    format!(
                        "Offered, but it cannot be taken: these files conflict with the workspace: {files}"
                    ),
                )
            }
        };
        let outgoing = Outgoing { id: Some(team.message_id(call)), ..Outgoing::text(content) };
        send(&team.bus, &team.me, "lead", outgoing).await?;
        Ok(answer)
    }
}

parameters!(TakeWork { name: String = required(Text, "the teammate that has offered work") });

impl Tool for TakeWork {
    const SPEC: ToolSpec = ToolSpec {
        name: "take_work",
        description: "Take the work that a teammate offered from its clone into the files of the workspace, \
                      without a commit. Only files without changes of their own are changed; otherwise the \
                      answer says which are not. A conflict is never resolved: the teammate is told the files.",
        audience: Audience::Lead,
        effect: Effect::Changes,
        ..ToolSpec::STRICT
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (name, team) = (AgentName::member(&self.name)?, &parts.team);
        let dir = team.bus.dir().clone();
        let roster = roster::read(&dir).map_err(ToolError::reply)?;
        let member = roster.member(name.as_str());
        let (place, note) = match member.and_then(|member| member.work.clone()) {
            Some(place) => (place, None),
            None if member.is_some_and(|member| member.host.is_some()) => {
                parts.ops()?.team.collect_work(name.clone()).await?
            }
            None => {
                let why =
                    format!("{name} has no clone; what it changes is in the workspace already");
                return Err(ToolError::Reply(why));
            }
        };
        let note = note.map(|why| format!("\nNote: {why}")).unwrap_or_default();
        let is_elsewhere = !place.is_here();
        let environment = parts.commands.env.clone();
        let by = team.me.clone();
        let taker = Taker { team: dir, name: name.clone(), place, by, environment };
        // The changes in the workspace are undone like those of a command.
        let undo_guard = UndoGuard::before(parts).await;
        let taken = offload(move || taker.take(WorkToTake::Offer)).await;
        undo_guard.after().await;
        match taken.map_err(ToolError::reply)? {
            Merged::Clean { stat } => {
                Ok(format!("Taken into the workspace, not committed:\n{stat}{note}"))
            }
            Merged::Conflict { files } => {
                let files = files.join(", ");
                if is_elsewhere && let Err(why) = parts.ops()?.team.send_files(name.clone()).await {
                    tracing::warn!(%name, %why, "the files of the workspace do not reach a teammate");
                }
                let content = format!(
                    "Your work was not taken: these files conflict with the workspace: {files}. Run `git fetch \
                     origin`, merge or repeat the change, then offer it again."
                );
                let id = Some(team.message_id(call));
                let outgoing = Outgoing { id, ..Outgoing::text(content) };
                let told = match send(&team.bus, &team.me, name.as_str(), outgoing).await {
                    Ok(()) => format!("{name} was told"),
                    Err(why) => format!("{name} was not told ({why})"),
                };
                Err(ToolError::Reply(format!(
                    "nothing was taken: these files conflict with the workspace: {files}; {told}"
                )))
            }
        }
    }
}

async fn send(
    bus: &Arc<Bus>,
    from: &AgentName,
    to: &str,
    outgoing: Outgoing,
) -> Result<(), ToolError> {
    let (bus, from, to) = (Arc::clone(bus), from.clone(), to.to_owned());
    offload(move || bus.send(&from, &to, outgoing)).await?;
    Ok(())
}
