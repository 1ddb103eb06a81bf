//! `team mcp mail-hook`: a hook of Claude Code, by which a session gets its mail with the result of a tool, or is woken by
//! mail while it waits for its user.
//!
//! The session has started both this process and `team mcp`, which owns the mail: they have the same parent. A hook
//! that finds none prints nothing, and no failure of a hook disturbs the session.

use super::hook_server::{HookRequest, PRINTED};
use crate::app::context::Context;
use crate::app::output::{print, warn};
use crate::error::Exit;
use crate::os::deadline::deadline;
use crate::os::event_loop::check_blocking;
use crate::os::processes::Process;
use crate::os::unix_socket;
use crate::settings::environment::Environment;
use crate::store::liveness;
use serde::Deserialize;
use serde_json::json;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest time for which the result of a tool waits for its mail.
const TOOL_LIMIT: Duration = Duration::from_millis(500);

/// The most bytes that a hook is told: it has the result of the tool.
const LONGEST_INPUT: u64 = 256 * 1024 * 1024;

/// The exit code by which a hook wakes the model with its standard error.
const WAKE: Exit = Exit::Usage;

/// The part of a hook's input that is used.
#[derive(Deserialize)]
struct HookInput {
    hook_event_name: String,
    #[serde(default)]
    tool_name: String,
    /// A subagent, whose context ends with its work.
    agent_id: Option<String>,
}

/// Runs a hook.
pub(crate) fn run(context: &Context) -> Exit {
    hook(context).unwrap_or(Exit::Ok)
}

/// Returns the exit code of a hook that has printed mail.
fn hook(context: &Context) -> Option<Exit> {
    check_blocking("read");
    let input: HookInput =
        serde_json::from_reader(BufReader::new(io::stdin().lock().take(LONGEST_INPUT))).ok()?;
    if input.agent_id.is_some() {
        return None;
    }
    let request = match input.hook_event_name.as_str() {
        "PostToolUse" => HookRequest::ToolUsed(input.tool_name),
        "Stop" => HookRequest::TurnEnded { waits: is_in_background(&context.environment) },
        _ => return None,
    };
    let mut stream = find_member(context)?;
    let (mail, exit) = match &request {
        HookRequest::ToolUsed(_) => {
            stream.set_read_timeout(Some(deadline(TOOL_LIMIT))).ok()?;
            let mail = ask(&mut stream, &request)?;
            let output = json!({ "hookEventName": "PostToolUse", "additionalContext": mail });
            (json!({ "hookSpecificOutput": output }).to_string(), Exit::Ok)
        }
        HookRequest::TurnEnded { .. } => (ask(&mut stream, &request)?, WAKE),
    };
    if exit == WAKE {
        warn(&mail);
    } else if !print(&mail) {
        return None;
    }
    stream.write_all(PRINTED.as_bytes()).ok()?;
    Some(exit)
}

/// Whether the session goes on while the hook runs: it is in a terminal, and of a version that names itself. Others may run
/// the hook to its end first, so that it must not wait.
fn is_in_background(environment: &Environment) -> bool {
    environment.get("CLAUDE_CODE_ENTRYPOINT") == Some("cli")
        && environment.get("AI_AGENT").is_some_and(|name| name.starts_with("claude-code_"))
}

/// Connects to the process of the member that has the same parent as this one.
fn find_member(context: &Context) -> Option<UnixStream> {
    let team = context.team_to_view().ok()?;
    let parent = Process::read(std::process::id().cast_signed())?.parent;
    let is_meant = |process: Process| process.parent == parent && parent > 1;
    let found = liveness::find_alive(&team, |record| {
        let process = Process::read(record.pid).filter(|it| it.start == record.start_time);
        process.is_some_and(is_meant)
    });
    unix_socket::connect(&team.hook_socket(&found.ok()??)).ok()
}

/// Returns the mail for a request, as text for the model.
fn ask(stream: &mut UnixStream, request: &HookRequest) -> Option<String> {
    let line = serde_json::to_string(request).ok()? + "\n";
    stream.write_all(line.as_bytes()).ok()?;
    let mut answer = String::new();
    BufReader::new(&*stream).read_line(&mut answer).ok()?;
    let mail: Option<String> = serde_json::from_str(&answer).ok()?;
    Some(format!("You have mail from your team. Answer with the tools of the team.\n{}", mail?))
}
