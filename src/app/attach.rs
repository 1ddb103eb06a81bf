//! A view of an agent's conversation, with an input line for messages to it. Closing it does not affect the agent.

use super::event_loop::{SignalStream, block_on};
use super::host_copies::HostCopies;
use super::{context::Context, names::unknown_name, stop_members::is_alive};
use crate::bus::Outgoing;
use crate::error::{Exit, Failure, OrFail};
use crate::os::terminal::TerminalGuard;
use crate::store::relay::copies;
use crate::store::{StoreError, asynchronous::offload, roster, tail::Tail};
use crate::ui::console::{Console, ConsoleOptions, Input};
use crate::ui::transcript::Conversation;
use crate::wire::host_copy::CopyPart;
use crate::wire::{AgentName, transcript::Line};
use std::sync::Arc;
use std::time::Duration;

const READ_INTERVAL: Duration = Duration::from_millis(100);

const FIRST_LINES: usize = 20;

pub(crate) fn run(context: &Context, name: &AgentName) -> Result<Exit, Failure> {
    context.refuse_inside_agent("attach")?;
    let team = context.team_to_view()?;
    if !team.inbox(name).exists() {
        let what = format!("cannot attach to {name}");
        return Err(unknown_name(&team, name, what, "no agent of that name belongs to this team"));
    }
    // They are kept up to date as long as the person looks.
    let shown = HostCopies::of(&team, std::slice::from_ref(name), &[CopyPart::Transcripts])?;
    shown.wait();
    let folder = copies::folder_of(&team, &*roster::read(&team)?, name);
    let bus = context.bus(team.clone());
    // Restores the terminal on every exit path, including a panic.
    let terminal = TerminalGuard::save();
    let left = block_on(async {
        let mut signals = SignalStream::begin()?;
        let hint = "use `team transcript NAME --follow` and `team send` instead";
        let (console, mut inputs) = Console::start(ConsoleOptions {
            palette: context.palette(),
            prompt: format!("{name}> "),
            history_file: None,
            commands: &[],
            files: None,
            external_editor: context.external_editor(),
            is_plain: context.environment.get("TERM").is_none_or(|term| term == "dumb"),
            notifies: false,
        })
        .or_fail("the terminal cannot be used", hint)?;
        let mut tail = Tail::last(folder.transcript(name), FIRST_LINES)?;
        let mut conversation = Conversation::new(false);
        let mut was_alive = is_alive(&team, name);
        let state = if was_alive { "is running" } else { "is not running" };
        console.print(&format!(
            "{name} {state}. What you type is sent to {name}; Ctrl-D or Ctrl-C leaves."
        ));
        let mut look = tokio::time::interval(READ_INTERVAL);
        loop {
            let is_left = tokio::select! {
                _ = look.tick() => false,
                _ = signals.next() => true,
                input = inputs.recv() => match input {
                    Some(Input::Line(text)) if !text.trim().is_empty() => {
                        let (bus, to) = (Arc::clone(&bus), name.to_string());
                        let send = move || bus.send(&AgentName::user(), &to, Outgoing::text(text));
                        if let Err(why) = offload(send).await {
                            console.print(&format!("error: {why}\n  now: {}", why.hint()));
                        }
                        continue;
                    }
                    // No question is shown here.
                    Some(
                        Input::Line(_)
                        | Input::Reply { .. }
                        | Input::Answer { .. }
                        | Input::PutOff(_)
                        | Input::Escape
                        | Input::Edited { .. },
                    ) => continue,
                    Some(Input::Interrupt | Input::EndOfInput | Input::Closed) | None => true,
                },
            };
            // Show the new lines, and the start or exit of the process.
            let view = context.view();
            let mut shown = String::new();
            let mut fresh = tail.fresh()?;
            while let Some(bytes) = fresh.next_line().map_err(StoreError::from)? {
                if let Some(line) = Line::read(bytes) {
                    shown.push_str(&conversation.line(&line, &view));
                }
            }
            shown.push_str(&conversation.pause(&view));
            if !shown.is_empty() {
                console.print(&shown);
            }
            let alive = is_alive(&team, name);
            if std::mem::replace(&mut was_alive, alive) != alive {
                let what = if alive { "is running" } else { "has ended" };
                console.print(&view.palette.warn(&format!("── {name} {what}")));
            }
            if is_left {
                break;
            }
        }
        console.print(&format!("left; {name} is not affected"));
        drop(console);
        Ok::<_, Failure>(Exit::Ok)
    })?;
    drop(terminal);
    left
}
