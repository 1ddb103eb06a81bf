//! The full-screen live view: what is selected, scrolled and typed, and how keys change that.
//!
//! Pure: [`Top::press`] turns a key into at most one [`Action`], [`draw::draw`] turns the state and a
//! [`Snapshot`] into a frame. Neither knows a file, a clock or a terminal; [`screen`] alone does the last.

pub(crate) mod draw;
mod help;
mod keys;
mod paint;
mod panes;
pub(crate) mod screen;
#[cfg(test)]
mod tests;

pub(crate) use keys::{Input, Key};

use super::sanitize::clean;
use crate::view::{MemberView, Snapshot};
use std::collections::BTreeMap;

/// The parts of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pane {
    /// Who is there.
    Members,
    /// What they say to each other.
    Messages,
    /// What the selected one is told, says and does.
    Conversation,
    /// What is to be done.
    Tasks,
    /// What waits for an answer.
    Requests,
}

/// All panes, in the order of the tab key.
const PANES: [Pane; 5] =
    [Pane::Members, Pane::Messages, Pane::Conversation, Pane::Tasks, Pane::Requests];

/// What the person wants to be done outside of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leave.
    Quit,
    /// Write to a member.
    Send {
        /// Who gets it.
        to: String,
        /// The text.
        text: String,
    },
    /// End a member.
    Stop {
        /// Who.
        name: String,
    },
    /// Answer a request.
    Answer {
        /// Which.
        id: String,
        /// How.
        verdict: Verdict,
    },
}

/// What a person says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes, this once.
    Approve,
    /// No.
    Deny,
}

/// What keys mean at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// Moving around.
    Browse,
    /// Reading the help.
    Help,
    /// Typing what to look for; what was looked for before comes back with Esc.
    Filter { before: String },
    /// Typing a message.
    Write { to: String, text: String },
    /// Being asked whether somebody is really to be stopped.
    Confirm { name: String },
    /// Being asked whether a request is really to be answered so.
    Decide { id: String, what: String, verdict: Verdict },
}

/// The state of the view.
#[derive(Debug)]
pub(crate) struct Top {
    focus: Pane,
    /// The pane below the members where there is no room for all.
    below: Pane,
    /// Whose conversation is shown.
    selected: String,
    filter: String,
    mode: Mode,
    /// Rows scrolled: in [`Pane::Tasks`] from the top, in [`Pane::Requests`] the selected one, else from
    /// the newest.
    scrolled: BTreeMap<Pane, usize>,
    /// What came of the last action, until the next key.
    notice: Option<Notice>,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It is under way or done.
    Fine(String),
    /// It failed.
    Failed(String),
}

/// Rows of a page key.
const PAGE: usize = 10;

impl Default for Top {
    fn default() -> Self {
        Self {
            focus: Pane::Members,
            below: Pane::Messages,
            selected: String::new(),
            filter: String::new(),
            mode: Mode::Browse,
            scrolled: BTreeMap::new(),
            notice: None,
        }
    }
}

impl Top {
    /// Whose conversation is to be followed.
    pub(crate) fn selected(&self) -> &str {
        &self.selected
    }

    /// Tells the person something.
    pub(crate) fn tell(&mut self, notice: Notice) {
        self.notice = Some(notice);
    }

    /// Takes note of a changed snapshot: somebody is always selected, if anybody is there. A filter that
    /// lets nobody through is for the other panes.
    pub(crate) fn update(&mut self, snapshot: &Snapshot) {
        let members = self.members(snapshot);
        let is_shown = members.iter().any(|member| member.name == self.selected);
        let is_there = members.is_empty() && snapshot.member(&self.selected).is_some();
        if !is_shown && !is_there {
            self.selected = members.first().map(|member| member.name.clone()).unwrap_or_default();
        }
    }

    /// The agents that the filter lets through.
    fn members<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a MemberView> {
        let passes = |member: &&MemberView| {
            let activity = member.activity.as_deref().unwrap_or_default();
            let words = [&member.name, &member.role, &member.model, member.status.word(), activity];
            self.lets_through(&words)
        };
        snapshot.members.iter().filter(passes).collect()
    }

    fn lets_through(&self, words: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&wanted))
    }

    /// A key was pressed.
    pub(crate) fn press(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        self.notice = None;
        if key == Key::Interrupt {
            return Some(Action::Quit);
        }
        let action = match self.mode.clone() {
            Mode::Browse => self.browse(key, snapshot),
            Mode::Help => {
                self.mode = Mode::Browse;
                None
            }
            Mode::Filter { before } => {
                self.type_filter(key, before);
                None
            }
            Mode::Write { to, text } => self.write(key, to, text),
            Mode::Confirm { name } => {
                self.mode = Mode::Browse;
                (key == Key::Char('y')).then_some(Action::Stop { name })
            }
            Mode::Decide { id, verdict, .. } => {
                self.mode = Mode::Browse;
                (key == Key::Char('y')).then_some(Action::Answer { id, verdict })
            }
        };
        self.update(snapshot);
        action
    }

    /// Text came at once, as from the clipboard: it is typed, never taken for keys.
    pub(crate) fn paste(&mut self, pasted: &str) {
        let pasted = clean(pasted);
        match &mut self.mode {
            Mode::Filter { .. } => self.filter.push_str(&pasted.replace(['\n', '\t'], " ")),
            Mode::Write { text, .. } => text.push_str(&pasted),
            Mode::Browse | Mode::Help | Mode::Confirm { .. } | Mode::Decide { .. } => {}
        }
    }

    fn browse(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        match key {
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter { before: self.filter.clone() },
            Key::Char('m') => self.begin_to_write(snapshot),
            Key::Char('s') => self.ask_to_stop(snapshot),
            Key::Char('a') => self.ask_to_decide(Verdict::Approve, snapshot),
            Key::Char('d') => self.ask_to_decide(Verdict::Deny, snapshot),
            Key::Tab => self.turn_to(1),
            Key::BackTab => self.turn_to(PANES.len() - 1),
            Key::Char(digit @ '1'..='5') => {
                let at = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                let pane = PANES.get(at.unwrap_or_default().saturating_sub(1)).copied();
                self.focus_on(pane.unwrap_or(Pane::Members));
            }
            Key::Enter if self.focus == Pane::Members => self.focus_on(Pane::Conversation),
            Key::Esc if self.filter.is_empty() => self.focus_on(Pane::Members),
            Key::Esc => self.filter.clear(),
            Key::Up | Key::Char('k') => self.go(Step::Up(1), snapshot),
            Key::Down | Key::Char('j') => self.go(Step::Down(1), snapshot),
            Key::PageUp => self.go(Step::Up(PAGE), snapshot),
            Key::PageDown => self.go(Step::Down(PAGE), snapshot),
            Key::Home | Key::Char('g') => self.go(Step::Up(usize::MAX), snapshot),
            Key::End | Key::Char('G') => self.go(Step::Down(usize::MAX), snapshot),
            Key::Char(_) | Key::Enter | Key::Backspace | Key::EraseLine | Key::Interrupt => {}
        }
        None
    }

    fn turn_to(&mut self, steps: usize) {
        let at = PANES.iter().position(|pane| *pane == self.focus).unwrap_or_default();
        let next = PANES.iter().cycle().nth(at + steps).copied();
        self.focus_on(next.unwrap_or(Pane::Members));
    }

    fn focus_on(&mut self, pane: Pane) {
        self.focus = pane;
        if pane != Pane::Members {
            self.below = pane;
        }
    }

    fn go(&mut self, step: Step, snapshot: &Snapshot) {
        let step = match self.focus {
            Pane::Members => return self.select(step, snapshot),
            Pane::Messages | Pane::Conversation => step.seen_from_the_end(),
            Pane::Tasks | Pane::Requests => step,
        };
        let at = self.scrolled.entry(self.focus).or_default();
        *at = step.from(*at);
    }

    fn select(&mut self, step: Step, snapshot: &Snapshot) {
        let members = self.members(snapshot);
        let at = members.iter().position(|member| member.name == self.selected).unwrap_or_default();
        let at = step.from(at).min(members.len().saturating_sub(1));
        if let Some(member) = members.get(at).filter(|member| member.name != self.selected) {
            self.selected.clone_from(&member.name);
            self.scrolled.remove(&Pane::Conversation);
        }
    }

    /// Draws at most as far as there is something: what goes beyond is taken back.
    fn clamp(&mut self, pane: Pane, most: usize) -> usize {
        let at = self.scrolled.entry(pane).or_default();
        *at = (*at).min(most);
        *at
    }

    fn begin_to_write(&mut self, snapshot: &Snapshot) {
        match snapshot.member(&self.selected) {
            Some(member) => {
                self.mode = Mode::Write { to: member.name.clone(), text: String::new() };
            }
            None => self.tell(Notice::Failed("there is nobody to write to".into())),
        }
    }

    fn ask_to_stop(&mut self, snapshot: &Snapshot) {
        match snapshot.member(&self.selected) {
            None => self.tell(Notice::Failed("there is nobody to stop".into())),
            Some(member) if member.name == "lead" => {
                let why = "the lead ends with its team: type /quit there, or team stop --all";
                self.tell(Notice::Failed(why.into()));
            }
            Some(member) if !member.alive => {
                self.tell(Notice::Failed(format!("{} does not run", member.name)));
            }
            Some(member) => self.mode = Mode::Confirm { name: member.name.clone() },
        }
    }

    fn ask_to_decide(&mut self, verdict: Verdict, snapshot: &Snapshot) {
        let at = self.clamp(Pane::Requests, snapshot.requests.len().saturating_sub(1));
        match snapshot.requests.get(at) {
            None => self.tell(Notice::Failed("nothing waits for an answer".into())),
            // What is answered must have been seen.
            Some(_) if self.focus != Pane::Requests => self.focus_on(Pane::Requests),
            Some(asked) => {
                let (from, question) = (&asked.from, &asked.question);
                let what = format!("{from} {}: {}", question.tool, question.description);
                self.mode = Mode::Decide { id: question.request_id.clone(), what, verdict };
            }
        }
    }

    fn type_filter(&mut self, key: Key, before: String) {
        if key == Key::Enter || key == Key::Esc {
            self.mode = Mode::Browse;
        }
        if key == Key::Esc {
            self.filter = before;
        }
        key.edit(&mut self.filter);
    }

    fn write(&mut self, key: Key, to: String, mut text: String) -> Option<Action> {
        if key == Key::Enter || key == Key::Esc {
            self.mode = Mode::Browse;
            let is_sent = key == Key::Enter && !text.trim().is_empty();
            return is_sent.then_some(Action::Send { to, text });
        }
        key.edit(&mut text);
        self.mode = Mode::Write { to, text };
        None
    }
}

/// A way to go in a list.
#[derive(Debug, Clone, Copy)]
enum Step {
    Up(usize),
    Down(usize),
}

impl Step {
    /// What is scrolled from its end gets further away from it on the way up.
    fn seen_from_the_end(self) -> Self {
        match self {
            Self::Up(rows) => Self::Down(rows),
            Self::Down(rows) => Self::Up(rows),
        }
    }

    fn from(self, at: usize) -> usize {
        match self {
            Self::Up(rows) => at.saturating_sub(rows),
            Self::Down(rows) => at.saturating_add(rows),
        }
    }
}
