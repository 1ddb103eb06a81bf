//! A window on an agent's conversation as it grows, with a line to write to the agent. Closing the window
//! changes nothing for the agent.

use super::event_loop::{SignalStream, block_on};
use super::{context::Context, names::unknown_name, stop_members::is_alive};
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure, OrFail};
use crate::os::terminal::TerminalGuard;
use crate::store::{StoreError, TeamDir, tail::Tail};
use crate::ui::console::{Console, ConsoleOptions, Input};
use crate::ui::transcript;
use crate::wire::{AgentName, transcript::Line};
use std::time::Duration;

/// Interval at which the conversation is read.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// Lines of the conversation that are shown first.
const FIRST_LINES: usize = 20;

struct Window<'a> {
    context: &'a Context,
    team: TeamDir,
    bus: &'a Bus,
    name: AgentName,
    console: Console,
    tail: Tail,
    was_alive: bool,
}

/// Shows the window until the person leaves.
pub(crate) fn run(context: &Context, name: AgentName) -> Result<Exit, Failure> {
    context.refuse_inside_agent("attach")?;
    let team = context.team_to_view()?;
    if !team.inbox(&name).exists() {
        let what = format!("there is no {name} to attach to");
        return Err(unknown_name(what, "no agent of that name belongs to this team"));
    }
    let bus = context.bus(team.clone())?;
    // Restores the terminal on every way out, a panic included.
    let terminal = TerminalGuard::save();
    let left = block_on(async {
        let mut signals = SignalStream::begin()?;
        let (console, mut inputs) = Console::start(ConsoleOptions {
            palette: context.palette(),
            prompt: format!("{name}> "),
            history_file: None,
            completions: Vec::new(),
        })
        .or_fail(
            "the terminal cannot be used",
            "use `team transcript NAME --follow` and `team send` instead",
        )?;
        let tail = Tail::last(team.transcript(&name), FIRST_LINES)?;
        let was_alive = is_alive(&team, &name);
        let mut window = Window { context, team, bus: &bus, name, console, tail, was_alive };
        let state = if was_alive { "lives" } else { "is not running" };
        let name = &window.name;
        window.console.print(&format!(
            "{name} {state}. What you type is sent to {name}; Ctrl-D or Ctrl-C leaves."
        ));
        let mut look = tokio::time::interval(READ_INTERVAL);
        loop {
            tokio::select! {
                _ = look.tick() => window.show_new()?,
                _ = signals.next() => break,
                input = inputs.recv() => match input {
                    Some(Input::Line(text)) => window.send(&text),
                    // No question is shown here.
                    Some(Input::Answer(_)) => {}
                    Some(Input::Interrupt | Input::EndOfInput | Input::Closed) | None => break,
                },
            }
        }
        window.show_new()?;
        window.console.print(&format!("left; {} goes on as before", window.name));
        window.console.close();
        Ok::<_, Failure>(Exit::Ok)
    })?;
    drop(terminal);
    left
}

impl Window<'_> {
    /// Shows the new lines, and whether the process has started or exited.
    fn show_new(&mut self) -> Result<(), Failure> {
        let view = self.context.view();
        let mut fresh = self.tail.fresh()?;
        while let Some(bytes) = fresh.next_line().map_err(StoreError::from)? {
            if let Some(line) = Line::read(bytes) {
                self.console.print(&transcript::line(&line, &view));
            }
        }
        let lives = is_alive(&self.team, &self.name);
        if std::mem::replace(&mut self.was_alive, lives) != lives {
            let what = if lives { "is there" } else { "has ended" };
            self.console.print(&view.palette.warn(&format!("── {} {what}", self.name)));
        }
        Ok(())
    }

    /// Sends a line; a failure is shown.
    fn send(&self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let sent = self.bus.send(&AgentName::user(), self.name.as_str(), Outgoing::text(text));
        if let Err(why) = sent {
            self.console.print(&format!("error: {why}\n  now: {}", why.hint()));
        }
    }
}
