//! The full-screen live view: selection, scroll position and typed text, and their changes by keys.
//!
//! Pure: [`Top::press`] turns a key into at most one [`Action`], [`draw::draw`] turns the state and a
//! [`Snapshot`] into a frame. Neither uses a file, a clock or a terminal; only [`screen`] uses the terminal.

mod answer;
mod bindings;
pub(crate) mod draw;
mod find;
mod items;
mod keys;
mod layout;
mod paint;
mod panes;
mod question;
#[cfg(test)]
mod question_tests;
pub(crate) mod screen;
mod search;
#[cfg(test)]
mod tests;
mod text;
mod text_rows;

pub(crate) use keys::{Input, Key};

use super::question::TypedAnswer;
use super::sanitize::sanitize;
use super::view::View;
use crate::view::{MemberView, Snapshot};
use crate::wire::permission::Question;
use bindings::{Command, Front, command};
use items::{Item, ItemKey, items};
use layout::{Frame, LEAST, PANES, Pane, Place, Shape, frame};
use ratatui::layout::Rect;
use search::Pattern;
use std::collections::BTreeMap;
use text::{Scroll, Source, Text};
use text_rows::ConversationForm;

/// An action outside of the view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Quit,
    Send { to: String, text: String },
    InterruptTurn { name: String },
    Stop { name: String },
    Answer { from: String, question: Box<Question>, answer: TypedAnswer },
}

/// The modes in which keys are typed text or confirm.
#[derive(Debug, PartialEq)]
enum Mode {
    /// Keys edit the pattern; Esc restores what was before.
    Search {
        before: Box<Before>,
    },
    Write {
        to: String,
        text: String,
    },
    /// Keys edit the reason for a no to the open question.
    Reason {
        text: String,
    },
    /// A key says for whom and how long the call of the open question is allowed.
    Scope,
    /// `y` confirms an action, which `what` names.
    Confirm {
        what: String,
        action: Action,
    },
}

/// The state before a search.
#[derive(Debug, PartialEq)]
struct Before {
    pattern: Pattern,
    row: usize,
    scroll: Scroll,
}

/// A text that is shown instead of the panes.
#[derive(Debug)]
enum Opened {
    /// The keys, and the text to which the person goes back from them.
    Help(Option<Box<Opened>>),
    Conversation,
    Message(ItemKey),
    Task(ItemKey),
    Question(Box<question::OpenQuestion>),
}

#[derive(Debug)]
pub(crate) struct Top {
    view: View,
    /// The size of the last frame.
    area: Rect,
    focus: Pane,
    /// The last pane with the focus below the members; it is shown if not all panes fit.
    below: Pane,
    is_zoomed: bool,
    shows_protocol: bool,
    /// The selected agent or subagent, whose conversation is followed and shown.
    pub(crate) selected: String,
    /// The selected rows of the other lists. Without one the first row is selected; of the messages the last.
    chosen: BTreeMap<Pane, ItemKey>,
    /// The first visible row of each list.
    firsts: BTreeMap<Pane, usize>,
    conversation: Text,
    opened: Option<Opened>,
    /// The rows of the open text, unless it is the conversation.
    text: Text,
    pattern: Pattern,
    mode: Option<Mode>,
    /// The result of the last action, until the next key.
    notice: Option<Notice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The action has begun or succeeded.
    Fine(String),
    Failed(String),
}

impl Top {
    pub(crate) fn new(view: View) -> Self {
        Self {
            view,
            area: Rect::default(),
            focus: Pane::Members,
            below: Pane::Messages,
            is_zoomed: false,
            shows_protocol: false,
            selected: String::new(),
            chosen: BTreeMap::new(),
            firsts: BTreeMap::new(),
            conversation: Text::default(),
            opened: None,
            text: Text::default(),
            pattern: Pattern::default(),
            mode: None,
            notice: None,
        }
    }

    /// Shows a notice until the next key.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notice = Some(notice);
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.notify(Notice::Failed(why.into()));
    }

    /// Returns recipient and id of the message that is open.
    pub(crate) fn opened_message(&self) -> Option<(&str, &str)> {
        match &self.opened {
            Some(Opened::Message((to, id))) => Some((to, id)),
            _ => None,
        }
    }

    /// Adapts the texts to the size of the terminal, so that the next keys move by what fits there.
    pub(crate) fn resize(&mut self, area: Rect, snapshot: &Snapshot) {
        if area.width >= LEAST.0 && area.height >= LEAST.1 {
            self.area = area;
            self.update(snapshot);
        }
    }

    /// Adapts selection and texts to a changed snapshot: an agent is always selected if there is one.
    pub(crate) fn update(&mut self, snapshot: &Snapshot) {
        if snapshot.member(self.selected_agent()).is_none() {
            let first = snapshot.members.first().map(|member| member.name.clone());
            self.selected = first.unwrap_or_default();
        }
        let frame = self.frame(snapshot);
        if let Some(place) = frame.text {
            self.render_opened(snapshot, place);
        } else if let Some(place) = frame.place(Pane::Conversation) {
            let form = self.form(false, place);
            self.conversation.follow(snapshot, form, &self.view);
            self.conversation.fit(height(place));
        }
    }

    /// Returns the places of the parts for the size of the last frame.
    fn frame(&self, snapshot: &Snapshot) -> Frame {
        let shape = Shape {
            focus: self.focus,
            below: self.below,
            is_zoomed: self.is_zoomed,
            is_open: self.opened.is_some(),
            members: items(Pane::Members, snapshot, false).len(),
            questions: snapshot.requests.len(),
        };
        frame(self.area, &shape)
    }

    fn render_opened(&mut self, snapshot: &Snapshot, place: Place) {
        let (width, view) = (width(place), &self.view);
        let find =
            |pane, key: &ItemKey| items(pane, snapshot, true).into_iter().find(|item| item.is(key));
        let source = |name: &str, state| Source { name: name.to_owned(), state: (width, state) };
        match &self.opened {
            None => {}
            Some(Opened::Help(_)) => {
                self.text.show(source("keys", 0), || text_rows::help_rows(width, view));
            }
            Some(Opened::Conversation) => {
                let form = self.form(true, place);
                self.conversation.follow(snapshot, form, view);
            }
            Some(Opened::Message(key)) => {
                if let Some(Item::Message(message)) = find(Pane::Messages, key) {
                    let is_read = snapshot.opened.as_ref().is_some_and(|it| it.id == message.id);
                    let state = message.stage as usize * 2 + usize::from(is_read);
                    let source = source(&format!("message {key:?}"), state);
                    let render = || text_rows::message_rows(message, snapshot, width, view);
                    self.text.show(source, render);
                }
            }
            Some(Opened::Task(key)) => {
                if let Some(Item::Task(task, waits_for)) = find(Pane::Tasks, key) {
                    let source = source(&format!("task {}", key.1), task.history.len());
                    let render = || text_rows::task_rows(task, waits_for, width, view);
                    self.text.show(source, render);
                }
            }
            Some(Opened::Question(open)) => {
                let name = format!("question {}", open.asked.question.request_id);
                let render = || text_rows::question_rows(&open.asked, width, view);
                self.text.show(source(&name, 0), render);
            }
        }
        self.scrolled_text().fit(height(place));
    }

    fn form(&self, is_whole: bool, place: Place) -> ConversationForm {
        let (shows_protocol, width) = (self.shows_protocol, width(place));
        ConversationForm { is_whole, shows_protocol, width }
    }

    /// Returns the text that is open, or the conversation.
    fn scrolled_text(&mut self) -> &mut Text {
        match &self.opened {
            None | Some(Opened::Conversation) => &mut self.conversation,
            Some(_) => &mut self.text,
        }
    }

    fn front(&self) -> Front {
        match &self.opened {
            None => Front::Pane(self.focus),
            Some(Opened::Question(_)) => Front::Question,
            Some(Opened::Conversation) => Front::Conversation,
            Some(_) => Front::Text,
        }
    }

    /// Whether the front is a list with a selected row, and not a text that scrolls.
    fn is_list(&self) -> bool {
        self.opened.is_none() && self.focus != Pane::Conversation
    }

    /// Returns the selected agent; of a subagent its caller.
    fn selected_agent(&self) -> &str {
        self.selected.split_once(':').map_or(&*self.selected, |(caller, _)| caller)
    }

    /// Returns the index of the selected row of a list.
    fn at(&self, pane: Pane, rows: &[Item<'_>]) -> usize {
        let last = rows.len().saturating_sub(1);
        let of_key = |key: &ItemKey| rows.iter().position(|row| row.is(key));
        match pane {
            Pane::Members => of_key(&(self.selected.clone(), String::new())).unwrap_or(0),
            Pane::Messages => self.chosen.get(&pane).and_then(of_key).unwrap_or(last),
            Pane::Conversation => 0,
            Pane::Tasks | Pane::Questions => {
                self.chosen.get(&pane).and_then(of_key).unwrap_or_default()
            }
        }
    }

    fn choose(&mut self, pane: Pane, rows: &[Item<'_>], at: usize) {
        let at = at.min(rows.len().saturating_sub(1));
        // The newest message stays selected while further ones arrive.
        let follows = pane == Pane::Messages && at + 1 == rows.len();
        match rows.get(at) {
            Some(Item::Member(member)) => self.selected.clone_from(&member.name),
            Some(Item::Subagent(subagent)) => self.selected.clone_from(&subagent.id),
            Some(row) if !follows => {
                self.chosen.insert(pane, row.key());
            }
            Some(_) | None => {
                self.chosen.remove(&pane);
            }
        }
    }

    pub(crate) fn press(&mut self, key: Key, snapshot: &Snapshot) -> Option<Action> {
        self.notice = None;
        if key == Key::Interrupt {
            return Some(Action::Quit);
        }
        let action = match self.mode.take() {
            None => command(key, self.front()).and_then(|it| self.run(it, key, snapshot)),
            Some(Mode::Search { before }) => {
                self.type_pattern(key, before, snapshot);
                None
            }
            Some(Mode::Write { to, text }) => self.write(key, to, text),
            Some(Mode::Reason { text }) => self.type_reason(key, text, snapshot),
            Some(Mode::Scope) => self.choose_scope(key, snapshot),
            Some(Mode::Confirm { action, .. }) => (key == Key::Char('y')).then_some(action),
        };
        self.update(snapshot);
        action
    }

    /// Adds pasted text to the line being typed; it is never read as keys.
    pub(crate) fn paste(&mut self, pasted: &str, snapshot: &Snapshot) {
        let pasted = sanitize(pasted);
        let line = pasted.replace(['\n', '\t'], " ");
        match &mut self.mode {
            Some(Mode::Search { before }) => {
                let from = before.row;
                self.pattern = Pattern::of(&(self.pattern.text().to_owned() + &line));
                self.jump_from(from, snapshot);
            }
            Some(Mode::Write { text, .. }) => text.push_str(&pasted),
            Some(Mode::Reason { text }) => text.push_str(&line),
            None | Some(Mode::Scope | Mode::Confirm { .. }) => {}
        }
    }

    fn run(&mut self, command: Command, key: Key, snapshot: &Snapshot) -> Option<Action> {
        match command {
            Command::Yes => return self.approve(TypedAnswer::Yes, snapshot),
            Command::Always => self.ask_for_scope(snapshot),
            Command::No => self.refuse(snapshot),
            Command::Close if self.opened.is_none() => return Some(Action::Quit),
            Command::Leave => return Some(Action::Quit),
            Command::Close => self.close(),
            Command::Back => self.back(),
            Command::Help if matches!(self.opened, Some(Opened::Help(_))) => self.close(),
            Command::Help => {
                let behind = self.opened.take().map(Box::new);
                self.open_text(Opened::Help(behind));
            }
            Command::Open => self.open(snapshot),
            Command::NextQuestion => self.open_next_question(snapshot),
            Command::ToggleProtocol => self.shows_protocol = !self.shows_protocol,
            Command::Write => match self.correspondent(snapshot) {
                Some(to) => self.mode = Some(Mode::Write { to, text: String::new() }),
                None => self.fail("No members yet"),
            },
            Command::InterruptTurn => match snapshot.member(self.selected_agent()) {
                Some(member) => self.ask_to_interrupt(member),
                None => self.fail("No members yet"),
            },
            Command::Stop => match snapshot.member(self.selected_agent()) {
                Some(member) => self.ask_to_stop(member),
                None => self.fail("No members yet"),
            },
            Command::Search => self.begin_search(snapshot),
            Command::NextMatch => self.jump(true, snapshot),
            Command::PreviousMatch => self.jump(false, snapshot),
            Command::Zoom => self.is_zoomed = !self.is_zoomed,
            Command::GoTo => {
                let number = |pane: &Pane| char::from_digit(pane.number().try_into().ok()?, 10);
                let is_meant = |pane: &Pane| number(pane).map(Key::Char) == Some(key);
                self.focus_on(PANES.into_iter().find(is_meant).unwrap_or(self.focus));
            }
            Command::NextPane => self.focus_on_next(1),
            Command::PreviousPane => self.focus_on_next(PANES.len() - 1),
            Command::Up => self.go(-1, snapshot),
            Command::Down => self.go(1, snapshot),
            Command::PageUp => self.go(-self.page(snapshot), snapshot),
            Command::PageDown => self.go(self.page(snapshot), snapshot),
            Command::First => self.go(isize::MIN, snapshot),
            Command::Last => self.go(isize::MAX, snapshot),
        }
        None
    }

    fn focus_on_next(&mut self, steps: usize) {
        let next = PANES.into_iter().cycle().nth(self.focus as usize + steps);
        self.focus_on(next.unwrap_or_default());
    }

    /// Goes to a pane; an open text is closed.
    fn focus_on(&mut self, pane: Pane) {
        self.opened = None;
        self.focus = pane;
        if pane != Pane::Members {
            self.below = pane;
        }
    }

    /// Goes back by one step: closes the open text, ends the search, ends the zoom, or goes to the members.
    fn back(&mut self) {
        if !self.pattern.text().is_empty() {
            self.pattern = Pattern::default();
        } else if self.opened.is_some() {
            self.close();
        } else if self.is_zoomed {
            self.is_zoomed = false;
        } else {
            self.focus_on(Pane::Members);
        }
    }

    /// Closes the open text; behind the keys is the text that was open before.
    fn close(&mut self) {
        self.opened = match self.opened.take() {
            Some(Opened::Help(behind)) => behind.map(|behind| *behind),
            _ => None,
        };
    }

    /// Shows a text from its start; a conversation stays where it is.
    fn open_text(&mut self, opened: Opened) {
        self.text = Text::default();
        self.opened = Some(opened);
    }

    /// Opens the selected row in full.
    fn open(&mut self, snapshot: &Snapshot) {
        let rows = items(self.focus, snapshot, self.shows_protocol);
        match (self.focus, rows.get(self.at(self.focus, &rows))) {
            (Pane::Conversation, _) | (_, Some(Item::Member(_) | Item::Subagent(_))) => {
                self.open_text(Opened::Conversation);
            }
            (_, Some(row @ Item::Message(_))) => self.open_text(Opened::Message(row.key())),
            (_, Some(row @ Item::Task(..))) => self.open_text(Opened::Task(row.key())),
            (_, Some(Item::Question(asked))) => self.open_question(asked),
            (_, None) => {}
        }
    }

    /// Returns the agent to which a message would go: the sender or the recipient of the message in front, else the
    /// selected agent.
    fn correspondent(&self, snapshot: &Snapshot) -> Option<String> {
        let rows = items(Pane::Messages, snapshot, true);
        let shown = items(Pane::Messages, snapshot, self.shows_protocol);
        let message = match &self.opened {
            Some(Opened::Message(key)) => rows.iter().find(|row| row.is(key)),
            None if self.focus == Pane::Messages => shown.get(self.at(Pane::Messages, &shown)),
            _ => None,
        };
        let names = match message {
            Some(Item::Message(message)) => {
                [message.from.as_str(), &message.to, self.selected_agent()]
            }
            _ => [self.selected_agent(); 3],
        };
        names.into_iter().find(|name| snapshot.member(name).is_some()).map(str::to_owned)
    }

    /// Returns the height of the part in front, in rows.
    fn height(&self, snapshot: &Snapshot) -> usize {
        let frame = self.frame(snapshot);
        frame.text.or_else(|| frame.place(self.focus)).map_or(0, height)
    }

    /// Returns the number of rows that a page key moves: one row less than are visible.
    fn page(&self, snapshot: &Snapshot) -> isize {
        let head = usize::from(self.is_list());
        isize::try_from(self.height(snapshot).saturating_sub(1 + head).max(1)).unwrap_or(1)
    }

    /// Moves by `rows`, downwards if positive.
    fn go(&mut self, rows: isize, snapshot: &Snapshot) {
        if self.is_list() {
            let all = items(self.focus, snapshot, self.shows_protocol);
            let at = self.at(self.focus, &all).saturating_add_signed(rows);
            self.choose(self.focus, &all, at);
        } else {
            let height = self.height(snapshot);
            self.scrolled_text().go(rows, height);
        }
    }

    fn ask_to_stop(&mut self, member: &MemberView) {
        let for_lead = "The lead ends with its team: type /quit there, or run team stop --all";
        let name = member.name.clone();
        self.ask_about(member, for_lead, format!("Stop {name}"), Action::Stop { name });
    }

    fn ask_to_interrupt(&mut self, member: &MemberView) {
        let for_lead = "The turn of the lead is interrupted at its terminal: press Esc there";
        let name = member.name.clone();
        let what = format!("Interrupt the turn of {name}");
        self.ask_about(member, for_lead, what, Action::InterruptTurn { name });
    }

    /// Asks whether to do something to a running teammate; `for_lead` is the reason for which it is not done to the lead.
    fn ask_about(&mut self, member: &MemberView, for_lead: &str, what: String, action: Action) {
        if member.name == "lead" {
            self.fail(for_lead);
        } else if !member.alive {
            self.fail(format!("{} is not running", member.name));
        } else {
            self.mode = Some(Mode::Confirm { what, action });
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

fn height(place: Place) -> usize {
    place.inside.height.into()
}

fn width(place: Place) -> usize {
    place.inside.width.into()
}
