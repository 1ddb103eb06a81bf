//! The panes, and the places of all parts of the frame for a size of the terminal.

use ratatui::layout::{Constraint, Layout, Rect};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Pane {
    #[default]
    Members,
    Messages,
    Conversation,
    Tasks,
    Questions,
}

/// All panes, in the order of their numbers and of the tab key.
pub(super) const PANES: [Pane; 5] =
    [Pane::Members, Pane::Messages, Pane::Conversation, Pane::Tasks, Pane::Questions];

impl Pane {
    /// Returns the number of the pane, which is its key.
    pub(super) fn number(self) -> usize {
        self as usize + 1
    }

    /// Returns the name of the pane, and shorter forms of it for narrow terminals.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Members => ["Members", "Mem", "Me"],
            Self::Messages => ["Messages", "Msg", "Ms"],
            Self::Conversation => ["Conversation", "Conv", "Co"],
            Self::Tasks => ["Tasks", "Task", "Ta"],
            Self::Questions => ["Questions", "Quest", "Qu"],
        }
    }
}

/// The smallest terminal that can show the view, in columns and rows.
pub(super) const LEAST: (u16, u16) = (20, 5);

/// The smallest terminal that shows all panes, in columns and rows.
const ALL: (u16, u16) = (100, 24);

/// The smallest height that shows the members above another pane, in rows.
const TWO: u16 = 10;

/// The smallest height of a pane with a title, in rows.
const TITLED: u16 = 3;

/// The state on which the places depend, beside the size.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) focus: Pane,
    /// The pane below the members, if not all panes fit.
    pub(super) below: Pane,
    pub(super) is_zoomed: bool,
    /// Whether a text is open, which takes the place of the panes.
    pub(super) is_open: bool,
    /// The numbers of rows of members, with their subagents, and of questions.
    pub(super) members: usize,
    pub(super) questions: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    /// The row of the title; empty if there is no room for one.
    pub(super) title: Rect,
    pub(super) inside: Rect,
}

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: Rect,
    /// The row that names all panes; empty if all of them are shown.
    pub(super) tabs: Rect,
    /// The place of the open text, if one is open.
    pub(super) text: Option<Place>,
    pub(super) panes: Vec<(Pane, Place)>,
    pub(super) footer: Rect,
}

impl Frame {
    /// Returns the place of a pane that is shown.
    pub(super) fn place(&self, pane: Pane) -> Option<Place> {
        self.panes.iter().find(|(it, _)| *it == pane).map(|(_, place)| *place)
    }
}

pub(super) fn frame(area: Rect, shape: &Shape) -> Frame {
    let is_large = area.width >= ALL.0 && area.height >= ALL.1;
    let shows_all = is_large && !shape.is_zoomed && !shape.is_open;
    let (head, tabs) = (Constraint::Length(1), Constraint::Length(u16::from(!shows_all)));
    let rows = Layout::vertical([head, tabs, Constraint::Min(0), Constraint::Length(1)]);
    let [header, tabs, body, footer] = area.layout(&rows);
    let text = shape.is_open.then(|| place(body));
    let panes = if shape.is_open {
        Vec::new()
    } else if shows_all {
        all_panes(shape, body)
    } else if body.height >= TWO && !shape.is_zoomed {
        // Title, head of the table and all members, as long as enough rows are left for the other pane.
        let rows = u16::try_from(shape.members).unwrap_or(u16::MAX).max(1).saturating_add(2);
        let rows = rows.clamp(3, (body.height * 2 / 5).max(3));
        let rows = Layout::vertical([Constraint::Length(rows), Constraint::Min(0)]);
        let [members, below] = body.layout(&rows);
        vec![(Pane::Members, place(members)), (shape.below, place(below))]
    } else {
        vec![(shape.focus, place(body))]
    };
    Frame { header, tabs, text, panes, footer }
}

fn all_panes(shape: &Shape, body: Rect) -> Vec<(Pane, Place)> {
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let [left, right] = body.layout(&Layout::horizontal(halves).spacing(2));
    let quarter = left.height / 4;
    // Title, head of the table and a free row, or the rows that are needed.
    let rows = |count: usize, most| {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        Constraint::Length(count.saturating_add(3).min(most))
    };
    let members = rows(shape.members.max(1), left.height / 2);
    let rows = [members, Constraint::Min(0), rows(shape.questions.saturating_sub(1), quarter)];
    let [members, tasks, questions] = left.layout(&Layout::vertical(rows));
    let [messages, conversation] = right.layout(&Layout::vertical(halves));
    let places = [members, messages, conversation, tasks, questions].map(place);
    PANES.into_iter().zip(places).collect()
}

fn place(area: Rect) -> Place {
    let title = u16::from(area.height >= TITLED);
    let rows = Layout::vertical([Constraint::Length(title), Constraint::Min(0)]);
    let [title, inside] = area.layout(&rows);
    Place { title, inside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_shows_all_panes_or_names_them_in_tabs() {
        for (width, height, count) in
            [(160, 50, 5), (100, 24, 5), (99, 60, 2), (80, 24, 2), (40, 10, 1), (20, 5, 1)]
        {
            let shape = Shape { below: Pane::Messages, members: 3, ..Shape::default() };
            let made = frame(Rect::new(0, 0, width, height), &shape);
            assert_eq!(made.panes.len(), count, "{width}x{height}");
            assert_eq!(made.tabs.height, u16::from(count < 5), "{width}x{height}");
            assert!(made.panes.iter().all(|(_, place)| place.inside.height > 0));
            for shape in [
                Shape { is_zoomed: true, ..Shape::default() },
                Shape { is_open: true, ..Shape::default() },
            ] {
                let made = frame(Rect::new(0, 0, width, height), &shape);
                assert_eq!(made.tabs.height, 1);
                let place = made.text.or(made.place(Pane::Members)).unwrap();
                assert!(place.inside.height >= height.saturating_sub(4).max(1));
            }
        }
    }
}
