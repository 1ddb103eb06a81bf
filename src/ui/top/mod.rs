//! The full-screen live view: selection, scroll position and typed text, and their changes by keys.
//!
//! Pure: [`Top::press`] turns a key into at most one [`Action`], [`draw::draw`] turns the state and a
//! [`Snapshot`] into a frame. Neither uses a file, a clock or a terminal; only [`screen`] uses the terminal.

pub(crate) mod draw;
mod keys;
mod panes;
pub(crate) mod screen;
#[cfg(test)]
mod tests;

pub(crate) use keys::{Input, Key};

use super::sanitize::sanitize;
use crate::view::change::PendingQuestion;
use crate::view::requests::counted;
use crate::view::{MemberView, Snapshot};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Pane {
    #[default]
    Members,
    Messages,
    Conversation,
    Tasks,
    Requests,
}

/// All panes, in their order, which is that of the tab key.
const PANES: [Pane; 5] =
    [Pane::Members, Pane::Messages, Pane::Conversation, Pane::Tasks, Pane::Requests];

/// An action outside of the view. An answer approves the request of this id once, or denies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Send { to: String, text: String },
    Stop { name: String },
    Answer { id: String, approve: bool },
}

/// The modes in which keys do something other than move and select.
#[derive(Debug, PartialEq)]
enum Mode {
    /// Any key closes the help.
    Help,
    /// Keys edit the filter; Esc restores the filter `before`.
    Filter {
        before: String,
    },
    Write {
        to: String,
        text: String,
    },
    /// `y` confirms an action, which `what` names.
    Confirm {
        what: String,
        action: Action,
    },
    /// The content of a request is shown instead of the panes; `y` answers it.
    Review(Box<Review>),
}

#[derive(Debug, PartialEq)]
struct Review {
    asked: PendingQuestion,
    approve: bool,
    /// Whether all rows are shown, so that they scroll, or only the first and the last ones.
    is_whole: bool,
    /// The first row that is shown, if all of them are.
    first: usize,
    /// The number of rows that were left out when it was drawn last; `None` before it is drawn.
    omitted: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Top {
    focus: Pane,
    /// The last pane with the focus below the members; it is shown if not all panes fit.
    below: Option<Pane>,
    /// The selected agent, whose conversation is followed and shown.
    pub(crate) selected: String,
    filter: String,
    mode: Option<Mode>,
    /// The scroll positions in rows: in [`Pane::Tasks`] from the top, in [`Pane::Requests`] the selected row,
    /// else from the newest.
    scrolled: BTreeMap<Pane, usize>,
    /// The result of the last action, until the next key.
    notice: Option<Notice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The action has begun or succeeded.
    Fine(String),
    Failed(String),
}

/// The number of rows that a page key moves.
const PAGE: isize = 10;

impl Top {
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

    pub(crate) fn press(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        self.notice = None;
        if key == Key::Interrupt {
            return Some(Action::Quit);
        }
        let action = match self.mode.take() {
            None => self.browse(key, snapshot),
            Some(Mode::Help) => None,
            Some(Mode::Filter { before }) => {
                self.type_filter(key, before);
                None
            }
            Some(Mode::Write { to, text }) => self.write(key, to, text),
            Some(Mode::Confirm { action, .. }) => (key == Key::Char('y')).then_some(action),
            Some(Mode::Review(review)) => self.review(key, review),
        };
        self.update(snapshot);
        action
    }

    /// Adds pasted text to the line being typed; it is never read as keys.
    pub(crate) fn paste(&mut self, pasted: &str) {
        let pasted = sanitize(pasted);
        match &mut self.mode {
            Some(Mode::Filter { .. }) => self.filter.push_str(&pasted.replace(['\n', '\t'], " ")),
            Some(Mode::Write { text, .. }) => text.push_str(&pasted),
            None | Some(Mode::Help | Mode::Confirm { .. } | Mode::Review(_)) => {}
        }
    }

    fn browse(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        match key {
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('?') => self.mode = Some(Mode::Help),
            Key::Char('/') => self.mode = Some(Mode::Filter { before: self.filter.clone() }),
            Key::Char(key @ ('m' | 's')) => match snapshot.member(&self.selected) {
                None => self.fail("no member is selected"),
                Some(MemberView { name, .. }) if key == 'm' => {
                    self.mode = Some(Mode::Write { to: name.clone(), text: String::new() });
                }
                Some(member) => self.ask_to_stop(member),
            },
            Key::Char('a') => self.ask_to_decide(true, snapshot),
            Key::Char('d') => self.ask_to_decide(false, snapshot),
            Key::Tab => self.focus_on_nth(self.focus as usize + 1),
            Key::BackTab => self.focus_on_nth(self.focus as usize + PANES.len() - 1),
            Key::Char(digit @ '1'..='5') => self.focus_on_nth(digit as usize - '1' as usize),
            Key::Enter if self.focus == Pane::Members => self.focus_on(Pane::Conversation),
            Key::Esc if self.filter.is_empty() => self.focus_on(Pane::Members),
            Key::Esc => self.filter.clear(),
            Key::Up | Key::Char('k') => self.go(-1, snapshot),
            Key::Down | Key::Char('j') => self.go(1, snapshot),
            Key::PageUp => self.go(-PAGE, snapshot),
            Key::PageDown => self.go(PAGE, snapshot),
            Key::Home | Key::Char('g') => self.go(isize::MIN, snapshot),
            Key::End | Key::Char('G') => self.go(isize::MAX, snapshot),
            Key::Char(_) | Key::Enter | Key::Backspace | Key::EraseLine | Key::Interrupt => {}
        }
        None
    }

    fn focus_on_nth(&mut self, index: usize) {
        self.focus_on(PANES.into_iter().cycle().nth(index).unwrap_or_default());
    }

    fn focus_on(&mut self, pane: Pane) {
        self.focus = pane;
        if pane != Pane::Members {
            self.below = Some(pane);
        }
    }

    /// Moves by `rows`, downwards if positive.
    fn go(&mut self, rows: isize, snapshot: &Snapshot) {
        let rows = match self.focus {
            Pane::Members => return self.select(rows, snapshot),
            // The position in these panes counts from the end.
            Pane::Messages | Pane::Conversation => rows.saturating_neg(),
            Pane::Tasks | Pane::Requests => rows,
        };
        let at = self.scrolled.entry(self.focus).or_default();
        *at = at.saturating_add_signed(rows);
    }

    fn select(&mut self, rows: isize, snapshot: &Snapshot) {
        let members = self.members(snapshot);
        let at = members.iter().position(|member| member.name == self.selected).unwrap_or_default();
        let at = at.saturating_add_signed(rows).min(members.len().saturating_sub(1));
        if let Some(member) = members.get(at).filter(|member| member.name != self.selected) {
            self.selected.clone_from(&member.name);
            self.scrolled.remove(&Pane::Conversation);
        }
    }

    /// Limits the scroll position of a pane to `most`, and returns it.
    fn clamp(&mut self, pane: Pane, most: usize) -> usize {
        let at = self.scrolled.entry(pane).or_default();
        *at = (*at).min(most);
        *at
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.notify(Notice::Failed(why.into()));
    }

    fn ask_to_stop(&mut self, member: &MemberView) {
        let name = member.name.clone();
        if name == "lead" {
            self.fail("the lead ends with its team: type /quit there, or team stop --all");
        } else if !member.alive {
            self.fail(format!("{name} does not run"));
        } else {
            let what = format!("stop {name}");
            self.mode = Some(Mode::Confirm { what, action: Action::Stop { name } });
        }
    }

    fn ask_to_decide(&mut self, approve: bool, snapshot: &Snapshot) {
        let at = self.clamp(Pane::Requests, snapshot.requests.len().saturating_sub(1));
        match snapshot.requests.get(at) {
            None => self.fail("nothing waits for an answer"),
            // A request must be on the screen before it is answered.
            Some(_) if self.focus != Pane::Requests => self.focus_on(Pane::Requests),
            Some(asked) => {
                let asked = asked.clone();
                let review = Review { asked, approve, is_whole: false, first: 0, omitted: None };
                self.mode = Some(Mode::Review(Box::new(review)));
            }
        }
    }

    /// Handles a key while a request is shown. An approval counts only after all rows could be seen.
    fn review(&mut self, key: Key, mut review: Box<Review>) -> Option<Action> {
        let rows = match key {
            Key::Char('y') if !review.approve || review.omitted == Some(0) => {
                let id = review.asked.question.request_id;
                return Some(Action::Answer { id, approve: review.approve });
            }
            Key::Char('y') => {
                let why = review.omitted.map_or("not yet: look first".into(), |omitted| {
                    format!("not yet: v shows the {} in between; then y", counted(omitted))
                });
                self.fail(why);
                0
            }
            Key::Char('v') => {
                review.is_whole = true;
                0
            }
            Key::Up | Key::Char('k') => -1,
            Key::Down | Key::Char('j') => 1,
            Key::PageUp => -PAGE,
            Key::PageDown => PAGE,
            Key::Home | Key::Char('g') => isize::MIN,
            Key::End | Key::Char('G') => isize::MAX,
            Key::Char(_)
            | Key::Enter
            | Key::Esc
            | Key::Tab
            | Key::BackTab
            | Key::Backspace
            | Key::EraseLine
            | Key::Interrupt => return None,
        };
        review.first = review.first.saturating_add_signed(rows);
        self.mode = Some(Mode::Review(review));
        None
    }

    fn type_filter(&mut self, key: Key, before: String) {
        if key == Key::Esc {
            self.filter = before;
        } else if key != Key::Enter {
            key.edit(&mut self.filter);
            self.mode = Some(Mode::Filter { before });
        }
    }

    fn write(&mut self, key: Key, to: String, mut text: String) -> Option<Action> {
        if key == Key::Enter && !text.trim().is_empty() {
            return Some(Action::Send { to, text });
        }
        if key != Key::Enter && key != Key::Esc {
            key.edit(&mut text);
            self.mode = Some(Mode::Write { to, text });
        }
        None
    }
}
