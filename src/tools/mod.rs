//! The tools of agents. Each tool is a type with its arguments, its spec and its behaviour, and is registered in
//! [`TOOLS`].
//!
//! *Invariant:* a tool never starts or stops a process of the team: it calls [`TeamOps`]. A failure is either sent
//! to the model or ends the agent; no other kind leaves this module. No other part of the program compares names
//! of tools: it gets the spec from [`find`].

pub(crate) mod approval_decision;
pub(crate) mod approval_queue;
mod call;
pub(crate) mod command;
mod command_turn;
mod fetch;
mod files;
pub(crate) mod hooks;
mod leased_paths;
mod leases;
mod mail;
mod mcp;
mod ops;
mod registry;
pub(crate) mod replay;
mod requests;
mod restorable;
pub(crate) mod rules;
mod search;
mod served;
pub(crate) mod skills;
mod subagent;
mod tasks;

pub(crate) mod team;
pub(crate) mod team_context;
#[cfg(test)]
mod tests;
mod timers;
mod work;

pub(crate) use call::{Call, ToolError, ToolFuture, ToolOutput};
pub(crate) use command_turn::CommandTurn;
pub(crate) use fetch::page_subject;
#[cfg(test)]
pub(crate) use files::file_tools;
pub(crate) use files::{
    FileAccess, NestedInstructions, NestedLimits, ReadLimits, changed_files, denied_files,
    edit_preview, files_in_words, guarded_files,
};
pub(crate) use mcp::{McpSetup, McpTools};
pub(crate) use ops::{
    CloneOf, CollectFuture, Ops, SpawnOrder, SubagentOps, SubagentOrder, TeamOps,
};
pub(crate) use registry::{Registry, TeamToolParts, ToolParts};
pub(crate) use restorable::may_restore;
pub(crate) use served::{Handout, HandoutFuture, MailHandout, ServedModel};

use crate::store::TeamDir;
use crate::wire::role::Role;
use crate::wire::tool::{Audience, Effect, Purpose, Signal, SubjectArgument, ToolSpec};
use registry::{Registration, Tool as _};

/// Lists the tools, and apart from what they do, their specs: a program that only looks names up, such as a relay, has no code of
/// the tools themselves.
macro_rules! tools {
    ($($tool:path),+ $(,)?) => {
        const TOOLS: &[Registration] = &[$(Registration::of::<$tool>()),+];
        const SPECS: &[&ToolSpec] = &[$(Registration::of::<$tool>().spec),+];
    };
}

tools! {
    command::Bash,
    command::background::tools::CommandOutput,
    command::background::tools::StopCommand,
    files::ReadFile,
    files::WriteFile,
    files::EditFile,
    files::ApplyPatch,
    search::Grep,
    search::ListFiles,
    fetch::FetchUrl,
    leases::ClaimFiles,
    leases::ReleaseFiles,
    mail::SendMessage,
    mail::Broadcast,
    mail::ReadInbox,
    mail::CheckInbox,
    timers::Remind,
    tasks::CreateTask,
    tasks::ListTasks,
    tasks::GetTask,
    tasks::ClaimTask,
    tasks::UpdateTask,
    tasks::CompleteTask,
    team::ListTeammates,
    team::SpawnTeammate,
    team::ShutdownTeammate,
    team::ShutdownResponse,
    team::SubmitPlan,
    team::ReviewPlan,
    team::Idle,
    requests::AnswerRequest,
    work::OfferWork,
    work::TakeWork,
    mcp::FindTools,
    skills::UseSkill,
    subagent::RunSubagent,
}

/// Returns the specs of all tools.
pub(crate) fn specs() -> impl Iterator<Item = &'static ToolSpec> {
    SPECS.iter().copied()
}

pub(crate) fn registry(parts: ToolParts) -> Registry {
    Registry::new(TOOLS.iter(), mcp::run, parts)
}

pub(crate) fn find(name: &str) -> Option<&'static ToolSpec> {
    specs().find(|spec| spec.name == name)
}

/// Returns a result without the line that only a small model gets.
pub(crate) fn without_next_step(result: &str) -> &str {
    let mut lines = specs().filter_map(|spec| spec.compact?.result_end());
    lines.find_map(|line| result.strip_suffix(&line)).unwrap_or(result)
}

/// Whether the calls of a tool change a list of the team that all members share, such as that of tasks. They are short,
/// and wait for nobody.
pub(crate) fn changes_shared_list(tool: &str) -> bool {
    find(tool).is_some_and(|spec| {
        let is_for_all = spec.audience != Audience::Lead && spec.signal == Signal::None;
        is_for_all && spec.effect == Effect::Talks && spec.purpose == Purpose::Work
    })
}

/// Returns the spec of the tool with this name or alias, as role files write it.
pub(crate) fn find_by_alias(name: &str) -> Option<&'static ToolSpec> {
    specs().find(|spec| spec.is_called(name))
}

/// Returns the other tools that change files, if this one does: what a rule forbids to one, it forbids to a foreign agent,
/// whose tools are not told apart.
pub(crate) fn find_similar(tool: &ToolSpec) -> impl Iterator<Item = &'static ToolSpec> {
    let changes_files = |it: &ToolSpec| {
        it.effect == Effect::Changes && matches!(it.subject, SubjectArgument::File(_))
    };
    let (name, is_one) = (tool.name, changes_files(tool));
    specs().filter(move |it| is_one && it.name != name && changes_files(it))
}

/// Whether an agent in this role can complete tasks. A role without a file has every tool.
pub(crate) fn can_complete_tasks(team: &TeamDir, role: &str) -> bool {
    team.find_role(role, find_by_alias).limits().has(&tasks::CompleteTask::SPEC)
}

/// Whether an agent in this role has the tool for skills.
pub(crate) fn can_use_skills(role: &Role) -> bool {
    role.has(&skills::UseSkill::SPEC)
}

/// Returns the signal of a call to the agent's loop.
pub(crate) fn signal(call: &Call) -> Signal {
    find(&call.name).map_or(Signal::None, |spec| spec.signal)
}
