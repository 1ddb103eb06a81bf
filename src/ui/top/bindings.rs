//! The one table of keys: it decides about a pressed key, and the footer and the help are made from it.

use super::keys::Key;
use super::layout::Pane;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Yes,
    No,
    Always,
    Open,
    ToggleProtocol,
    Write,
    InterruptTurn,
    Stop,
    NextQuestion,
    Search,
    NextMatch,
    PreviousMatch,
    Zoom,
    /// Goes to the pane with the number of the key.
    GoTo,
    NextPane,
    PreviousPane,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Back,
    Help,
    /// Closes the open text; without one, leaves the view.
    Close,
    Leave,
}

/// The part of the view that gets the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    Pane(Pane),
    /// The open conversation.
    Conversation,
    /// Another open text that is not a question.
    Text,
    Question,
}

/// The parts of the view in which a key works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Anywhere,
    Panes,
    /// The messages and the conversation.
    Messages,
    /// Everywhere but in a question, where some keys are answers.
    NoQuestion,
    /// Open texts and questions.
    Texts,
    Question,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) keys: &'static [Key],
    /// The names of the keys, for the help; the first word is for the footer.
    pub(super) names: &'static str,
    /// The word in the footer; empty if the footer does not name the key.
    pub(super) word: &'static str,
    pub(super) help: &'static str,
    pub(super) scope: Scope,
    pub(super) command: Command,
}

const fn row(
    command: Command,
    scope: Scope,
    keys: &'static [Key],
    names: &'static str,
    word: &'static str,
    help: &'static str,
) -> Binding {
    Binding { keys, names, word, help, scope, command }
}

use Command as C;
use Key::{BackTab, Char, Down, End, EndOfInput, Enter, EraseLine, Esc, Home, Interrupt, Left};
use Key::{PageDown, PageUp, Right, Tab, Up};
use Scope::{Anywhere, Messages, NoQuestion, Panes, Question, Texts};

const DIGITS: &[Key] = &[Char('1'), Char('2'), Char('3'), Char('4'), Char('5')];

/// All keys, in the order of the footer.
#[rustfmt::skip]
pub(super) const BINDINGS: &[Binding] = &[
    row(C::Yes, Question, &[Char('y'), Char('Y')], "y", "yes", "Yes, once all of it was shown"),
    row(C::No, Question, &[Char('n'), Char('N')], "n", "no", "No; asks for a reason"),
    row(C::Always, Question, &[Char('a'), Char('A')], "a", "always", "Yes, from now on; asks for whom and how long"),
    row(C::Back, Anywhere, &[Esc], "esc", "back", "Back; end the search"),
    row(C::NextMatch, NoQuestion, &[Char('n')], "n", "next", "Next match"),
    row(C::PreviousMatch, NoQuestion, &[Char('N')], "N", "previous", "Previous match"),
    row(C::Open, Panes, &[Enter], "enter", "open", "Open the selected row in full"),
    row(C::NextQuestion, NoQuestion, &[Char('w')], "w", "answer", "Open the next question"),
    row(C::NextQuestion, Question, &[Char('w')], "w", "next question", "Postpone it; open the next one"),
    row(C::ToggleProtocol, Messages, &[Char('p')], "p", "protocol", "Show or hide protocol messages"),
    row(C::Search, NoQuestion, &[Char('/')], "/", "search", "Search the front pane"),
    row(C::Write, NoQuestion, &[Char('m')], "m", "write", "Write to the selected agent, or answer the message"),
    row(C::InterruptTurn, NoQuestion, &[Char('i')], "i", "interrupt", "End the turn of the selected teammate; asks first"),
    row(C::Stop, NoQuestion, &[Char('s')], "s", "stop", "Stop the selected teammate; asks first"),
    row(C::Close, Panes, &[Char('q')], "q", "quit", "Leave; the team keeps running"),
    row(C::Zoom, Panes, &[Char('z')], "z", "zoom", "Zoom the pane, or undo the zoom"),
    row(C::GoTo, Anywhere, DIGITS, "1-5", "panes", "Go to the pane of this number"),
    row(C::NextPane, Anywhere, &[Tab, Right, Char('l')], "tab, right, l", "", "Next pane"),
    row(C::PreviousPane, Anywhere, &[BackTab, Left, Char('h')], "shift-tab, left, h", "", "Previous pane"),
    row(C::Up, Anywhere, &[Up, Char('k')], "up, k", "", "Up by one"),
    row(C::Down, Anywhere, &[Down, Char('j')], "down, j", "", "Down by one"),
    row(C::PageUp, Anywhere, &[PageUp, Char('b'), EraseLine], "page up, b, ctrl-u", "", "Up by a page"),
    row(C::PageDown, Anywhere, &[PageDown, Char(' '), EndOfInput], "page down, space, ctrl-d", "", "Down by a page"),
    row(C::First, Anywhere, &[Home, Char('g')], "home, g", "", "To the start"),
    row(C::Last, Anywhere, &[End, Char('G')], "end, G", "", "To the end"),
    row(C::Close, Texts, &[Char('q')], "q", "", "Close this text"),
    row(C::Leave, Anywhere, &[Interrupt], "ctrl-c", "", "Leave at once"),
    row(C::Help, Anywhere, &[Char('?')], "?", "keys", "All keys"),
];

impl Scope {
    pub(super) fn includes(self, front: Front) -> bool {
        match self {
            Anywhere => true,
            Panes => matches!(front, Front::Pane(_)),
            Messages => {
                let panes = [Pane::Messages, Pane::Conversation].map(Front::Pane);
                panes.contains(&front) || front == Front::Conversation
            }
            NoQuestion => front != Front::Question,
            Texts => !matches!(front, Front::Pane(_)),
            Question => front == Front::Question,
        }
    }

    /// Returns the heading of the keys of this scope in the help.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Anywhere => "Everywhere",
            Panes => "In a pane",
            Messages => "In messages and conversation",
            NoQuestion => "Everywhere but in a question",
            Texts => "In an open text",
            Question => "In a question",
        }
    }
}

/// All scopes, in the order of the help.
pub(super) const SCOPES: [Scope; 6] = [Panes, NoQuestion, Messages, Question, Texts, Anywhere];

/// Returns the command of a key in this part of the view.
pub(super) fn command(key: Key, front: Front) -> Option<Command> {
    let is_meant = |row: &&Binding| row.keys.contains(&key) && row.scope.includes(front);
    BINDINGS.iter().find(is_meant).map(|row| row.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings_in_one_place() {
        let fronts = super::super::layout::PANES.map(Front::Pane);
        for front in fronts.into_iter().chain([Front::Conversation, Front::Text, Front::Question]) {
            let rows = BINDINGS.iter().filter(|row| row.scope.includes(front));
            let mut keys: Vec<String> =
                rows.flat_map(|row| row.keys).map(|key| format!("{key:?}")).collect();
            let count = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "{front:?}: {keys:?}");
        }
    }

    #[test]
    fn a_question_has_its_own_keys() {
        assert_eq!(command(Char('i'), Front::Text), Some(C::InterruptTurn));
        assert_eq!(command(Char('i'), Front::Question), None);
        assert_eq!(command(Char('n'), Front::Question), Some(C::No));
        assert_eq!(command(Char('n'), Front::Text), Some(C::NextMatch));
    }
}
