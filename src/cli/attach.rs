//! `team attach NAME`: somebody's conversation as it grows, and a line to write to them. It is a window:
//! leaving it, however, changes nothing for whom it shows.

use super::args::AttachArgs;
use super::build_agent::block_on;
use super::context::{Context, mailbox_name, store_failure};
use super::signal_stream::SignalStream;
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure};
use crate::os::terminal::TerminalGuard;
use crate::store::tail::Tail;
use crate::store::{TeamDir, liveness};
use crate::ui;
use crate::ui::console::{Console, ConsoleOptions, Input};
use crate::wire::AgentName;
use crate::wire::transcript::Line;
use std::time::Duration;

/// How often the conversation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Lines of the conversation that are shown at the beginning.
const BEFORE: usize = 20;

/// The window.
struct Window<'a> {
    context: &'a Context,
    team: TeamDir,
    bus: &'a Bus,
    name: AgentName,
    console: Console,
    tail: Tail,
    was_alive: bool,
}

pub(super) fn run(context: &Context, args: &AttachArgs) -> Result<Exit, Failure> {
    context.refuse_inside("attach")?;
    let team = context.seen_team()?;
    let name = mailbox_name(&args.name)?;
    if !team.inbox(&name).exists() {
        let what = format!("there is no {name} to attach to");
        let why = "nobody of that name belongs to this team";
        return Err(Failure::new(Exit::Failure, what, why, "`team ls` shows who is there"));
    }
    let bus = context.bus(team.clone())?;
    // Restores the terminal on every way out.
    let terminal = TerminalGuard::save();
    let left = block_on(async {
        let mut signals = SignalStream::begin()?;
        let (console, mut inputs) = Console::start(ConsoleOptions {
            palette: context.palette(),
            prompt: format!("{name}> "),
            history_file: None,
            completions: Vec::new(),
        })
        .map_err(|why| {
            let hint = "use `team transcript NAME --follow` and `team send` instead";
            Failure::new(Exit::Failure, "the terminal cannot be used", why.to_string(), hint)
        })?;
        let tail = Tail::last(team.transcript(&name), BEFORE).map_err(store_failure)?;
        let was_alive = is_alive(&team, &name);
        let mut window = Window { context, team, bus: &bus, name, console, tail, was_alive };
        window.greet();
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                _ = look.tick() => window.show_new()?,
                _ = signals.next() => break,
                input = inputs.recv() => match input {
                    Some(Input::Line(text)) => window.send(&text),
                    // Nothing is asked here.
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

fn is_alive(team: &TeamDir, name: &AgentName) -> bool {
    liveness::probe(team, name).is_ok_and(|life| life.is_alive())
}

impl Window<'_> {
    fn greet(&self) {
        let state = if self.was_alive { "lives" } else { "is not running" };
        let name = &self.name;
        self.console.print(&format!(
            "{name} {state}. What you type is sent to {name}; Ctrl-D or Ctrl-C leaves."
        ));
    }

    /// Shows what was said since, and when its process has ended or come.
    fn show_new(&mut self) -> Result<(), Failure> {
        let view = self.context.view();
        let mut fresh = self.tail.fresh().map_err(store_failure)?;
        while let Some(bytes) = fresh.next_line().map_err(|why| store_failure(why.into()))? {
            if let Some(line) = Line::read(bytes) {
                self.console.print(&ui::transcript::line(&line, &view));
            }
        }
        let lives = is_alive(&self.team, &self.name);
        if std::mem::replace(&mut self.was_alive, lives) != lives {
            let what = if lives { "is there" } else { "has ended" };
            self.console.print(&view.palette.warn(&format!("── {} {what}", self.name)));
        }
        Ok(())
    }

    /// Says why it cannot be sent, and stays.
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
