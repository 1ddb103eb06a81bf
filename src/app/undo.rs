//! Undo and the changes of the session, for the user: the turns of an agent, the plan of an undo, its execution.
//!
//! All functions here use the disk, and some wait for locks: an event loop calls them on another thread.

use super::context::Context;
use super::names::{mailbox_name, unknown_name};
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure};
use crate::store::undo::read_all;
use crate::store::{TeamDir, roster, transcript};
use crate::ui::undo::CloneFolders;
use crate::undo::apply::{self, UndoError, Undone};
use crate::undo::history::{self, Turn};
use crate::undo::plan::{self, PlanError, UndoPlan, shown};
use crate::undo::session_diff::{self, AgentDiff, DiffContent, unified};
use crate::wire::{AgentName, WallTime};
use serde_json::{Value, json};

/// The maximum number of files that the mail to an agent names.
const MOST_NAMED: usize = 50;

/// Returns the agent of a name that a person types. Fails for a name that the team does not know.
pub(crate) fn agent(team: &TeamDir, name: &str) -> Result<AgentName, Failure> {
    let name = mailbox_name(name)?;
    if name.is_lead() || team.agents()?.contains(&name) {
        return Ok(name);
    }
    let what = format!("there is no agent {name}");
    Err(unknown_name(team, &name, what, "no agent of that name belongs to this team"))
}

/// Returns the turns in which an agent changed files, oldest first.
pub(crate) fn turns(team: &TeamDir, agent: &AgentName) -> Result<Vec<Turn>, Failure> {
    let mut turns = history::turns(&read_all(team)?, agent);
    turns.retain(|turn| !turn.changes.is_empty());
    Ok(turns)
}

/// Plans the undo of the last turn of an agent, or of `to_turn` and all later ones. An undo that was cut off is completed
/// first; nothing else is changed.
pub(crate) fn plan(
    team: &TeamDir,
    agent: &AgentName,
    to_turn: Option<u64>,
) -> Result<UndoPlan, Failure> {
    apply::recover(team).map_err(|why| failure(agent, &why))?;
    plan::plan(team, agent, to_turn).map_err(|why| failure(agent, &why.into()))
}

/// Carries out a plan that a person has seen, and tells the agent. Files that the plan refuses make it fail, or stay as
/// they are with `leaves_refused`. Returns a text about the mail to the agent as well.
pub(crate) fn apply(
    bus: &Bus,
    plan: &UndoPlan,
    leaves_refused: bool,
) -> Result<(Undone, String), Failure> {
    let agent = &plan.agent;
    let undone =
        apply::apply(bus.dir(), plan, leaves_refused).map_err(|why| failure(agent, &why))?;
    let told =
        match bus.send(&AgentName::user(), agent.as_str(), Outgoing::text(mail(&undone, plan))) {
            Ok(_) => format!("{agent} was told"),
            Err(why) => format!("{agent} was not told: {why}"),
        };
    Ok((undone, told))
}

/// Returns the text of the mail to the agent whose changes were taken back.
fn mail(undone: &Undone, plan: &UndoPlan) -> String {
    let mut named: Vec<&str> = undone.files.iter().map(String::as_str).collect();
    let more = named.len().saturating_sub(MOST_NAMED);
    named.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "The user has taken back your changes since turn {} ({}). These files are as they were before: {}{more}. Read \
         such a file again before you change it, and do not repeat the change unless you are asked to.",
        plan.to_turn,
        plan.about,
        named.join(", ")
    )
}

fn failure(agent: &AgentName, why: &UndoError) -> Failure {
    let list = format!("`team undo {agent} --list` shows the turns");
    let (exit, hint) = match why {
        UndoError::Plan(PlanError::NothingRecorded(_) | PlanError::UnknownTurn(..)) => {
            (Exit::Failure, list)
        }
        UndoError::Nothing => (Exit::Failure, format!("{list}; name an earlier one with --to")),
        UndoError::Refused(_) => (
            Exit::Failure,
            "with --partial the other files are taken back, and these stay as they are".into(),
        ),
        UndoError::Changed(_) | UndoError::Busy(_) => (
            Exit::Failure,
            "no file was changed: look at the plan again with the same command".into(),
        ),
        UndoError::File(..) => {
            (Exit::Failure, "no file was changed: check it, then try again".into())
        }
        UndoError::Mixed(_) => {
            (Exit::Failure, "look at these files; all others are as before".into())
        }
        UndoError::Plan(PlanError::Store(why)) | UndoError::Store(why) => {
            let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
            (exit, why.hint().to_owned())
        }
    };
    let what = format!("the changes of {agent} were not taken back");
    Failure::new(exit, what, why.to_string(), hint)
}

/// Returns the folders of clones; none if the roster cannot be read.
pub(crate) fn clone_folders(team: &TeamDir) -> CloneFolders {
    roster::read(team).map(|roster| CloneFolders::of(&roster)).unwrap_or_default()
}

/// Returns the time at which the session began: the conversation of the lead. `None` if there is no lead.
pub(crate) fn session_start(team: &TeamDir) -> Result<Option<WallTime>, Failure> {
    Ok(transcript::began(team, &AgentName::lead())?)
}

/// Returns what these agents, or all, have changed since the session began.
pub(crate) fn session_diff(
    team: &TeamDir,
    agents: &[AgentName],
) -> Result<Vec<AgentDiff>, Failure> {
    Ok(session_diff::session_diff(team, session_start(team)?, agents)?)
}

/// Opens the team for an undo. Fails inside the command of an agent.
pub(crate) fn open(context: &Context) -> Result<std::sync::Arc<Bus>, Failure> {
    context.refuse_inside_agent("undo")?;
    context.team_bus()
}

pub(crate) fn turns_json(team: &TeamDir, agent: &AgentName, turns: &[Turn]) -> Value {
    let workspace = team.workspace().canonicalize().unwrap_or_else(|_| team.workspace().to_owned());
    let turns: Vec<Value> = turns
        .iter()
        .map(|turn| {
            let mut files: Vec<String> =
                turn.changes.iter().map(|it| shown(&workspace, &it.change.path)).collect();
            files.sort_unstable();
            files.dedup();
            json!({
                "turn": turn.number, "at": turn.at, "about": turn.about, "undoes": turn.undoes,
                "counts": turn.is_active, "files": files, "uncovered": turn.uncovered,
            })
        })
        .collect();
    json!({ "schema": 1, "agent": agent.as_str(), "turns": turns })
}

/// Returns a plan as JSON; `undone` is its result, if it was carried out.
pub(crate) fn plan_json(plan: &UndoPlan, undone: Option<&Undone>) -> Value {
    let files: Vec<Value> = plan
        .steps
        .iter()
        .map(|step| {
            let action = step.action.word();
            json!({ "path": step.shown, "action": action, "by_command": step.is_by_command })
        })
        .collect();
    let refused = plan.refusals.iter();
    let refused: Vec<Value> =
        refused.map(|it| json!({ "path": it.shown, "why": it.why.in_words() })).collect();
    json!({
        "schema": 1, "agent": plan.agent.as_str(), "to_turn": plan.to_turn, "about": plan.about,
        "files": files, "refused": refused, "uncovered": plan.uncovered,
        "undone": undone.is_some(), "turn": undone.map(|undone| undone.turn),
    })
}

pub(crate) fn diff_json(since: Option<WallTime>, diffs: &[AgentDiff]) -> Value {
    let agents: Vec<Value> = diffs
        .iter()
        .map(|diff| {
            let files: Vec<Value> = diff
                .files
                .iter()
                .map(|file| {
                    let kind = file.kind.word();
                    let (lines, note) = match &file.content {
                        DiffContent::Text { before, after } => (Some(unified(before, after)), None),
                        DiffContent::Mode(before, after) => {
                            (None, Some(format!("mode {before:04o} to {after:04o}")))
                        }
                        DiffContent::Binary => (None, Some("binary".into())),
                        DiffContent::Unknown(why) => (None, Some(why.clone())),
                    };
                    json!({
                        "path": file.shown, "kind": kind, "by_command": file.is_by_command,
                        "diff": lines, "note": note,
                    })
                })
                .collect();
            json!({ "agent": diff.agent.as_str(), "files": files, "uncovered": diff.uncovered })
        })
        .collect();
    json!({ "schema": 1, "since": since, "agents": agents })
}
