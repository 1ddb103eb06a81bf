//! `team top`: the live view; reads the files, and acts only when told to.

use super::build_agent::block_on;
use super::context::{Context, make_whole, member_name};
use super::requests::{self, Answer};
use super::stop;
use crate::bus::{Bus, Outgoing};
use crate::error::{Exit, Failure};
use crate::os::signals::{SignalEvent, Signals};
use crate::os::{Clock, SystemClock};
use crate::protocol::ladder::Urgency;
use crate::ui::top::draw::draw;
use crate::ui::top::screen::Screen;
use crate::ui::top::{Action, Input, Notice, RequestAnswer, Top};
use crate::ui::view::View;
use crate::view::Observer;
use crate::wire::AgentName;
use crate::wire::message::Scope;
use crate::wire::roster::ExitCause;
use std::io::{self, IsTerminal};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often the view is drawn when nothing but the time has changed.
const DRAW_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(context: &Context) -> Result<Exit, Failure> {
    context.refuse_inside("top")?;
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        let why = "standard input or output is no terminal";
        let hint = "use `team ls --json`, `team log --follow` or `team inbox NAME --follow`";
        return Err(Failure::new(Exit::Usage, "the live view cannot be shown", why, hint));
    }
    let team = context.seen_team()?;
    let mut hands = Hands::new(context.bus(team.clone())?);
    let signals = Signals::listen().map_err(|why| lost(&why))?;
    let view = context.view();
    let mut screen = Screen::open().map_err(|why| lost(&why))?;
    let end = watch(&mut screen, &signals, &mut Observer::of(&team), &mut hands, &view);
    drop(screen);
    match end {
        Ok(Exit::Ok) => hands.finish(),
        Ok(exit) => Ok(exit),
        // Nobody is left who could be told.
        Err(_) => Ok(Exit::Terminated),
    }
}

/// Shows the team until the person leaves or a signal comes.
fn watch(
    screen: &mut Screen,
    signals: &Signals,
    observer: &mut Observer,
    hands: &mut Hands,
    view: &View,
) -> io::Result<Exit> {
    let clock = SystemClock;
    let mut top = Top::default();
    let (mut look_at, mut draw_at) = (clock.monotonic(), clock.monotonic());
    loop {
        match signals.take() {
            None => {}
            Some(SignalEvent::Interrupt) => return Ok(Exit::Interrupted),
            Some(SignalEvent::Terminate | SignalEvent::Hangup) => return Ok(Exit::Terminated),
        }
        let now = clock.monotonic();
        let mut is_news = false;
        if now >= look_at {
            look_at = now + LOOK_EVERY;
            is_news |= observer.look();
            top.update(observer.snapshot());
        }
        if let Some(notice) = hands.done() {
            top.notify(notice);
            is_news = true;
        }
        observer.follow(top.selected());
        if is_news || now >= draw_at {
            draw_at = now + DRAW_EVERY;
            screen.draw(|frame| draw(&mut top, observer.snapshot(), clock.now(), view, frame))?;
        }
        let patience = look_at.saturating_duration_since(clock.monotonic());
        for input in screen.next(signals, patience)? {
            draw_at = now;
            let action = match input {
                Input::Resize => None,
                Input::Paste(text) => {
                    top.paste(&text);
                    None
                }
                Input::Key(key) => top.press(key, observer.snapshot()),
            };
            match action {
                None => {}
                Some(Action::Quit) => return Ok(Exit::Ok),
                Some(Action::Send { to, text }) => top.notify(hands.send(to, text)),
                Some(Action::Stop { name }) => top.notify(hands.stop(name)),
                Some(Action::Answer { id, answer }) => top.notify(hands.answer(id, answer)),
            }
        }
    }
}

/// Does what takes time beside the view, which goes on.
struct Hands {
    bus: Arc<Bus>,
    tell: mpsc::Sender<Notice>,
    told: mpsc::Receiver<Notice>,
    at_work: Vec<(String, JoinHandle<()>)>,
}

impl Hands {
    fn new(bus: Arc<Bus>) -> Self {
        let (tell, told) = mpsc::channel();
        Self { bus, tell, told, at_work: Vec::new() }
    }

    /// What came of something that was begun.
    fn done(&mut self) -> Option<Notice> {
        self.told.try_recv().ok()
    }

    fn send(&mut self, to: String, text: String) -> Notice {
        let bus = Arc::clone(&self.bus);
        let what = format!("writing to {to}");
        self.begin(what, move || match bus.send(&AgentName::user(), &to, Outgoing::text(text)) {
            Ok(_) => Notice::Fine(format!("sent to {to}")),
            Err(why) => Notice::Failed(format!("nothing was sent to {to}: {why}")),
        })
    }

    fn stop(&mut self, name: String) -> Notice {
        let bus = Arc::clone(&self.bus);
        self.begin(format!("stopping {name}"), move || match stop_one(bus, &name) {
            Ok(how) => Notice::Fine(format!("{name} {how}")),
            Err(why) => Notice::Failed(format!("{name} was not stopped: {}", why.why)),
        })
    }

    fn answer(&mut self, id: String, answer: RequestAnswer) -> Notice {
        let bus = Arc::clone(&self.bus);
        let answer = match answer {
            RequestAnswer::Approve => Answer::Approve(Scope::Once),
            RequestAnswer::Deny => Answer::Deny,
        };
        let work = move || match block_on(requests::decide(&bus, &id, answer, None)).flatten() {
            Ok(outcome) => Notice::Fine(outcome.into()),
            Err(failure) => Notice::Failed(format!("{}: {}", failure.what, failure.why)),
        };
        self.begin("answering".into(), work)
    }

    fn begin(&mut self, what: String, work: impl FnOnce() -> Notice + Send + 'static) -> Notice {
        self.at_work.retain(|(_, work)| !work.is_finished());
        let (bus, tell) = (Arc::clone(&self.bus), self.tell.clone());
        let work = move || {
            let notice = match make_whole(bus.dir()) {
                Ok(()) => work(),
                Err(failure) => Notice::Failed(format!("{}: {}", failure.what, failure.why)),
            };
            // Nobody listens any more once the view is closed.
            tell.send(notice).unwrap_or_default();
        };
        match std::thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let notice = Notice::Fine(format!("{what} …"));
                self.at_work.push((what, thread));
                notice
            }
            Err(why) => Notice::Failed(format!("{what}: {why}")),
        }
    }

    /// Sees to its end what was begun: a member half stopped would be nobody's.
    fn finish(self) -> Result<Exit, Failure> {
        for (what, work) in self.at_work {
            if !work.is_finished() {
                super::out::complain(&format!("{what} …"));
            }
            if work.join().is_err() {
                let hint = "see `team ls`, and try again";
                return Err(Failure::new(Exit::Failure, what, "it broke off", hint));
            }
        }
        let failed = self.told.try_iter().find_map(|notice| match notice {
            Notice::Failed(why) => Some(why),
            Notice::Fine(_) => None,
        });
        match failed {
            None => Ok(Exit::Ok),
            Some(why) => Err(Failure::new(Exit::Failure, "not all was done", why, "see `team ls`")),
        }
    }
}

fn stop_one(bus: Arc<Bus>, name: &str) -> Result<&'static str, Failure> {
    let name = member_name(name)?;
    let end = stop::end_members(bus, ExitCause::Stopped, Urgency::Polite, vec![name]);
    let departures = block_on(end)?;
    Ok(departures.first().map_or("was not running", |departure| departure.result.words()))
}

fn lost(why: &io::Error) -> Failure {
    let hint = "open another terminal, or use `team ls`";
    Failure::new(Exit::Failure, "the terminal cannot be used", why.to_string(), hint)
}
