//! The full-screen live view: selection, scroll position and typed text, and their changes by keys.
//!
//! Pure: [`Top::press`] turns a key into at most one [`Action`], [`draw::draw`] turns the state and a
//! [`Snapshot`] into a frame. Neither uses a file, a clock or a terminal; only [`screen`] uses the terminal.

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

/// A part of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pane {
    /// The agents.
    Members,
    /// The messages between agents.
    Messages,
    /// The conversation of the selected agent.
    Conversation,
    /// The task list.
    Tasks,
    /// The open requests.
    Requests,
}

/// All panes, in the order of the tab key.
const PANES: [Pane; 5] =
    [Pane::Members, Pane::Messages, Pane::Conversation, Pane::Tasks, Pane::Requests];

/// An action outside of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leave.
    Quit,
    /// Send a message.
    Send {
        /// The recipient.
        to: String,
        /// The text.
        text: String,
    },
    /// Stop a member.
    Stop {
        /// The member.
        name: String,
    },
    /// Answer a request.
    Answer {
        /// The id of the request.
        id: String,
        /// The answer.
        answer: RequestAnswer,
    },
}

/// A person's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestAnswer {
    /// Yes, this once.
    Approve,
    /// No.
    Deny,
}

/// The meaning of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// Keys move and select.
    Browse,
    /// The help is shown.
    Help,
    /// Keys edit the filter; Esc restores the filter before.
    Filter { before: String },
    /// Keys edit a message.
    Write { to: String, text: String },
    /// `y` confirms that a member is stopped.
    Confirm { name: String },
    /// `y` confirms the answer to a request.
    Decide { id: String, what: String, answer: RequestAnswer },
}

/// The state of the view.
#[derive(Debug)]
pub(crate) struct Top {
    focus: Pane,
    /// The pane below the members if not all panes fit.
    below: Pane,
    /// The agent whose conversation is shown.
    selected: String,
    filter: String,
    mode: Mode,
    /// The scroll positions in rows: in [`Pane::Tasks`] from the top, in [`Pane::Requests`] the selected row,
    /// else from the newest.
    scrolled: BTreeMap<Pane, usize>,
    /// The result of the last action, until the next key.
    notice: Option<Notice>,
}

/// The result of an action, for the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It has begun or succeeded.
    Fine(String),
    /// It failed.
    Failed(String),
}

/// The rows that a page key moves.
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
    /// The agent whose conversation must be followed.
    pub(crate) fn selected(&self) -> &str {
        &self.selected
    }

    /// Shows a notice until the next key.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notice = Some(notice);
    }

    /// Adapts the selection to a changed snapshot: an agent is always selected if there is one. A filter that
    /// matches no agent applies to the other panes only.
    pub(crate) fn update(&mut self, snapshot: &Snapshot) {
        let members = self.members(snapshot);
        let is_shown = members.iter().any(|member| member.name == self.selected);
        let is_there = members.is_empty() && snapshot.member(&self.selected).is_some();
        if !is_shown && !is_there {
            self.selected = members.first().map(|member| member.name.clone()).unwrap_or_default();
        }
    }

    /// The agents that match the filter.
    fn members<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a MemberView> {
        let passes = |member: &&MemberView| {
            let activity = member.activity.as_deref().unwrap_or_default();
            let words = [&member.name, &member.role, &member.model, member.status.word(), activity];
            self.matches(&words)
        };
        snapshot.members.iter().filter(passes).collect()
    }

    fn matches(&self, words: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&wanted))
    }

    /// Handles a key.
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
            Mode::Decide { id, answer, .. } => {
                self.mode = Mode::Browse;
                (key == Key::Char('y')).then_some(Action::Answer { id, answer })
            }
        };
        self.update(snapshot);
        action
    }

    /// Adds pasted text to the line being typed; it is never read as keys.
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
            Key::Char('a') => self.ask_to_decide(RequestAnswer::Approve, snapshot),
            Key::Char('d') => self.ask_to_decide(RequestAnswer::Deny, snapshot),
            Key::Tab => self.focus_next(1),
            Key::BackTab => self.focus_next(PANES.len() - 1),
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

    fn focus_next(&mut self, steps: usize) {
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
            Pane::Messages | Pane::Conversation => step.reversed(),
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

    /// The scroll position of a pane, limited to `most`.
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
            None => self.notify(Notice::Failed("no member is selected".into())),
        }
    }

    fn ask_to_stop(&mut self, snapshot: &Snapshot) {
        match snapshot.member(&self.selected) {
            None => self.notify(Notice::Failed("no member is selected".into())),
            Some(member) if member.name == "lead" => {
                let why = "the lead ends with its team: type /quit there, or team stop --all";
                self.notify(Notice::Failed(why.into()));
            }
            Some(member) if !member.alive => {
                self.notify(Notice::Failed(format!("{} does not run", member.name)));
            }
            Some(member) => self.mode = Mode::Confirm { name: member.name.clone() },
        }
    }

    fn ask_to_decide(&mut self, answer: RequestAnswer, snapshot: &Snapshot) {
        let at = self.clamp(Pane::Requests, snapshot.requests.len().saturating_sub(1));
        match snapshot.requests.get(at) {
            None => self.notify(Notice::Failed("nothing waits for an answer".into())),
            // A request must be on the screen before it is answered.
            Some(_) if self.focus != Pane::Requests => self.focus_on(Pane::Requests),
            Some(asked) => {
                let (from, question) = (&asked.from, &asked.question);
                let what = format!("{from} {}: {}", question.tool, question.description);
                self.mode = Mode::Decide { id: question.request_id.clone(), what, answer };
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

/// A movement in a list.
#[derive(Debug, Clone, Copy)]
enum Step {
    Up(usize),
    Down(usize),
}

impl Step {
    /// The same movement in a list whose position counts from its end.
    fn reversed(self) -> Self {
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
