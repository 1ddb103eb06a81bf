//! The live view: shows the team from its files, and runs the actions of the person's keys.

use super::context::{Context, repair};
use super::event_loop::{block_on, exit_of};
use super::host_copies::HostCopies;
use super::interrupt::{interrupt, interruptible};
use super::{names::member_name, output, requests, stop_members::stop_members};
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure, OrFail};
use crate::os::{Clock, SystemClock, signals::Signals};
use crate::protocol::ladder::Urgency;
use crate::store::change_watcher::ChangeWatcher;
use crate::supervise::stop::words;
use crate::ui::question::TypedAnswer;
use crate::ui::top::{Action, Input, Notice, Top, draw::draw, screen::Screen};
use crate::view::{Observer, pause_after};
use crate::wire::host_copy::CopyPart;
use crate::wire::{AgentName, permission::Question, roster::ExitCause};
use std::io::{self, IsTerminal};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The shortest time between two looks at the files, and the longest time until a change of them is seen.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which the view is drawn when only the time has changed.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(context: &Context) -> Result<Exit, Failure> {
    context.refuse_inside_agent("top")?;
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        let why = "standard input or output is not a terminal";
        let hint = "use `team ls --json`, `team log --follow` or `team inbox NAME --follow`";
        return Err(Failure::new(Exit::Usage, "the live view cannot be shown", why, hint));
    }
    let (lost, hint) = ("the terminal cannot be used", "open another terminal, or use `team ls`");
    let team = context.team_to_view()?;
    // They are kept up to date as long as the view is open.
    let shown = HostCopies::of(&team, &[], &[CopyPart::Transcripts])?;
    let (notices, received) = mpsc::channel();
    let mut actions =
        Actions { bus: context.bus(team.clone()), notices, received, running: Vec::new() };
    let signals = Signals::listen().or_fail(lost, hint)?;
    let top = Top::new(context.view());
    let mut screen = Screen::open().or_fail(lost, hint)?;
    let end = watch(&mut screen, &signals, &mut Observer::of(&team), &mut actions, top);
    drop(screen);
    drop(shown);
    match end {
        Ok(Exit::Ok) => actions.finish(),
        Ok(exit) => Ok(exit),
        // The terminal is gone.
        Err(_) => Ok(Exit::Terminated),
    }
}

/// Shows the team until the person leaves or a signal arrives.
fn watch(
    screen: &mut Screen,
    signals: &Signals,
    observer: &mut Observer,
    actions: &mut Actions,
    mut top: Top,
) -> io::Result<Exit> {
    let clock = SystemClock;
    // Without file events, changes are seen by the next look.
    let changes = ChangeWatcher::listen(&observer.team).ok();
    let has_changed = || changes.as_ref().is_some_and(|it| it.has_changed().unwrap_or(true));
    let (mut read_at, mut draw_at) = (clock.monotonic(), clock.monotonic());
    let mut may_read_at = read_at;
    loop {
        if let Some(signal) = signals.take() {
            return Ok(exit_of(signal));
        }
        let now = clock.monotonic();
        let mut is_news = false;
        if now >= read_at || now >= may_read_at && has_changed() {
            is_news |= observer.look();
            let done = clock.monotonic();
            read_at = done + pause_after(done.saturating_duration_since(now), READ_INTERVAL);
            may_read_at = done + READ_INTERVAL;
            top.update(&observer.snapshot);
        }
        if let Ok(notice) = actions.received.try_recv() {
            top.notify(notice);
            is_news = true;
        }
        observer.follow(&top.selected);
        observer.open(top.opened_message());
        if is_news || now >= draw_at {
            draw_at = now + DRAW_INTERVAL;
            screen.draw(|frame| draw(&mut top, &observer.snapshot, clock.now(), frame))?;
        }
        let until = read_at.saturating_duration_since(clock.monotonic());
        let timeout = until.min(READ_INTERVAL);
        for input in screen.next(signals, timeout)? {
            draw_at = now;
            let action = match input {
                Input::Resize(area) => {
                    top.resize(area, &observer.snapshot);
                    None
                }
                Input::Paste(text) => {
                    top.paste(&text, &observer.snapshot);
                    None
                }
                Input::Key(key) => top.press(key, &observer.snapshot),
            };
            match action {
                None => {}
                Some(Action::Quit) => return Ok(Exit::Ok),
                Some(Action::Send { to, text }) => top.notify(actions.send(to, text)),
                Some(Action::InterruptTurn { name }) => top.notify(actions.interrupt(name)),
                Some(Action::Stop { name }) => top.notify(actions.stop(name)),
                Some(Action::Answer { from, question, answer }) => {
                    top.notify(actions.answer(&from, &question, answer));
                }
            }
        }
    }
}

/// The actions that take time. Each one runs on a thread of its own.
struct Actions {
    bus: Arc<Bus>,
    notices: mpsc::Sender<Notice>,
    received: mpsc::Receiver<Notice>,
    running: Vec<(String, JoinHandle<()>)>,
}

impl Actions {
    fn send(&mut self, to: String, text: String) -> Notice {
        let what = format!("Writing to {to}");
        self.begin(what, move |bus| {
            let sent = bus.send(&AgentName::user(), &to, Outgoing::text(text));
            let failed = |why| format!("Nothing was sent to {to}: {why}");
            sent.map(|_| format!("Sent to {to}")).map_err(failed)
        })
    }

    fn interrupt(&mut self, name: String) -> Notice {
        self.begin(format!("Interrupting {name}"), move |bus| {
            let interrupted = interruptible(bus.dir(), &name)
                .and_then(|name| block_on(interrupt(bus, &name, None)).flatten());
            interrupted.map(|it| format!("{name} {}", it.words())).map_err(|why| in_short(&why))
        })
    }

    fn stop(&mut self, name: String) -> Notice {
        self.begin(format!("Stopping {name}"), move |bus| match stop_one(bus, &name) {
            Ok(how) => Ok(format!("{name} {how}")),
            Err(why) => Err(format!("{name} was not stopped: {}", why.why)),
        })
    }

    fn answer(&mut self, from: &str, question: &Question, answer: TypedAnswer) -> Notice {
        let Some(answer) = requests::decision_of(question, answer) else {
            return Notice::Failed("This is not an answer to this question".into());
        };
        let (id, from) = (question.request_id.clone(), from.to_owned());
        self.begin(format!("Answering {from}"), move |bus| {
            let outcome = block_on(requests::decide(bus, &id, answer)).flatten();
            // The id is long, and the person has seen the question.
            let named = |text: &str| {
                let name = format!("Question of {from}");
                text.replace(&format!("{id:?}"), &name).replace(&id, &name)
            };
            outcome.map(|word| format!("{from}: {word}")).map_err(|why| named(&in_short(&why)))
        })
    }

    fn begin(
        &mut self,
        what: String,
        work: impl FnOnce(&Arc<Bus>) -> Result<String, String> + Send + 'static,
    ) -> Notice {
        self.running.retain(|(_, work)| !work.is_finished());
        let (bus, notices) = (Arc::clone(&self.bus), self.notices.clone());
        let work = move || {
            let done = repair(bus.dir()).map_err(|failure| in_short(&failure));
            let notice = done.and_then(|()| work(&bus)).map_or_else(Notice::Failed, Notice::Fine);
            // A closed view reads no notice.
            notices.send(notice).unwrap_or_default();
        };
        match std::thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let notice = Notice::Fine(format!("{what} …"));
                self.running.push((what, thread));
                notice
            }
            Err(why) => Notice::Failed(format!("{what}: {why}")),
        }
    }

    /// Waits for the running actions, so that no stop is left unfinished.
    fn finish(self) -> Result<Exit, Failure> {
        for (what, work) in self.running {
            if !work.is_finished() {
                output::warn(&format!("{what} …"));
            }
            if work.join().is_err() {
                let hint = "see `team ls`, and try again";
                return Err(Failure::new(Exit::Failure, what, "it ended unexpectedly", hint));
            }
        }
        for notice in self.received.try_iter() {
            if let Notice::Failed(why) = notice {
                let what = "not everything was done";
                return Err(Failure::new(Exit::Failure, what, why, "see `team ls`"));
            }
        }
        Ok(Exit::Ok)
    }
}

fn stop_one(bus: &Arc<Bus>, name: &str) -> Result<&'static str, Failure> {
    let names = vec![member_name(name)?];
    let outcomes = block_on(stop_members(bus, ExitCause::Stopped, Urgency::Polite, names))?;
    Ok(words(outcomes.first().and_then(|outcome| outcome.rung)))
}

fn in_short(failure: &Failure) -> String {
    format!("{}: {}", failure.what, failure.why)
}
