//! The table of the lead's conversations, and their titles.

use super::roster::{age, short};
use super::sanitize::one_line;
use super::style::Palette;
use super::tables::table;
use crate::wire::money::Money;
use std::time::Duration;

/// The maximum width of a title, in columns.
const TITLE_WIDTH: usize = 60;

/// The minimum width of a title, in columns.
const LEAST_TITLE_WIDTH: usize = 12;

/// The width of all columns but the title, if no number is longer than usual.
const OTHER_WIDTH: usize = 56;

/// A row of the table.
#[derive(Debug, Clone)]
pub(crate) struct SessionRow<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) is_last: bool,
    /// The time since it was last used.
    pub(crate) unused_for: Duration,
    /// The time since it began.
    pub(crate) age: Duration,
    pub(crate) turns: u64,
    pub(crate) tokens: u64,
    pub(crate) cost: Option<Money>,
    /// Whether turns, tokens and cost were counted. Estimates get a mark.
    pub(crate) is_exact: bool,
}

/// Renders the sessions for a terminal of this width. The one that `team lead --resume` goes on with has a
/// mark.
pub(crate) fn session_table(
    rows: &[SessionRow<'_>],
    palette: Palette,
    width: Option<usize>,
) -> String {
    if rows.is_empty() {
        let start = palette.bold("team lead");
        return format!("There are no sessions here yet. Start one:\n  {start}\n");
    }
    let room = width.map_or(TITLE_WIDTH, |width| width.saturating_sub(OTHER_WIDTH));
    let room = room.clamp(LEAST_TITLE_WIDTH, TITLE_WIDTH);
    let cells = rows.iter().map(|row| {
        let mark = if row.is_exact { "" } else { "~" };
        let cost = row.cost.map_or_else(|| "-".into(), |cost| format!("{mark}{cost}"));
        [
            if row.is_last { "*" } else { "" }.into(),
            one_line(row.id, 32),
            ago(row.unused_for),
            age(row.age),
            format!("{mark}{}", row.turns),
            format!("{mark}{}", short(row.tokens)),
            cost,
            title(row.title, room),
        ]
    });
    table(["", "ID", "LAST USED", "AGE", "TURNS", "TOKENS", "COST", "TITLE"], cells, palette)
}

/// Renders a title on one line.
pub(crate) fn title(title: &str, width: usize) -> String {
    let title = one_line(title, width);
    if title.is_empty() { "(no prompt)".into() } else { title }
}

/// Says how long ago something was.
pub(crate) fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..60 => "just now".into(),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds @ 86_400..172_800 => format!("{} day ago", seconds / 86_400),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_marks_the_current_session_and_estimates() {
        let row = |id, title, is_exact| SessionRow {
            id,
            title,
            is_last: is_exact,
            unused_for: Duration::from_secs(7300),
            age: Duration::from_secs(200_000),
            turns: 12,
            tokens: 34_567,
            cost: Money::try_from(1.5).ok(),
            is_exact,
        };
        let rows = [row("0badcafe", "add a login\x1b[31m page", true), row("1", "", false)];
        let shown = session_table(&rows, Palette::plain(), Some(80));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "   ID        LAST USED  AGE  TURNS  TOKENS  COST   TITLE",
                "*  0badcafe  2 h ago    2d   12     34.5k   1.50   add a login page",
                "   1         2 h ago    2d   ~12    ~34.5k  ~1.50  (no prompt)",
            ],
            "{shown}"
        );
        assert!(session_table(&[], Palette::plain(), None).contains("team lead"));
    }

    #[test]
    fn a_time_is_said_in_one_unit() {
        for (seconds, words) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 min ago"),
            (3_599, "59 min ago"),
            (86_399, "23 h ago"),
            (100_000, "1 day ago"),
            (1_000_000, "11 days ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), words);
        }
    }
}
