//! The table of agents: status, activity, age, unread mail, usage.
//!
//! [`crate::view`] joins the roster with life locks and inboxes.

use super::sanitize::one_line;
use super::style::{Life, Mark, Palette};
use super::text_width::{columns, pad};
use crate::view::MemberView;
use crate::wire::WallTime;
use crate::wire::money::Money;
use crate::wire::roster::Status;
use std::time::Duration;

/// One agent.
#[derive(Debug, Clone)]
pub(crate) struct RosterRow {
    /// The name.
    pub(crate) name: String,
    /// The colour word; empty for none.
    pub(crate) color: String,
    /// The role.
    pub(crate) role: String,
    /// The status by the roster.
    pub(crate) status: Status,
    /// Whether its life lock is held.
    pub(crate) life: Life,
    /// The time since the status was set.
    pub(crate) age: Duration,
    /// The current tool or phase, or the end of the process.
    pub(crate) activity: String,
    /// The number of unread messages.
    pub(crate) unread: usize,
    /// Tokens used, in and out.
    pub(crate) tokens: u64,
    /// The percentage of input tokens that came from the provider's cache.
    pub(crate) cached: Option<u64>,
    /// The cost.
    pub(crate) cost: Option<Money>,
    /// `provider/name`.
    pub(crate) model: String,
}

/// The age of a heartbeat that is shown, in seconds; a busy agent sends one at least every five seconds.
const WORTH_SAYING: f64 = 15.0;

impl RosterRow {
    /// The row of an agent.
    pub(crate) fn of(member: &MemberView, now: WallTime) -> Self {
        let ended = member.ended.clone().filter(|_| !member.alive);
        let silent = member.sign.as_ref().filter(|sign| sign.silent_for > WORTH_SAYING);
        let quiet = silent.map(|sign| {
            let silent = Duration::try_from_secs_f64(sign.silent_for).unwrap_or_default();
            format!("{}, no sign of life for {}", sign.state, age(silent))
        });
        let activity = ended.or(quiet).or_else(|| member.activity.clone());
        Self {
            activity: activity.unwrap_or_default(),
            name: member.name.clone(),
            color: member.color.clone(),
            role: member.role.clone(),
            status: member.status,
            life: if member.alive { Life::Alive } else { Life::Dead },
            age: now.since(member.since),
            unread: member.unread,
            tokens: member.usage.tokens(),
            cached: member.usage.cached_share(),
            cost: member.usage.cost,
            model: member.model.clone(),
        }
    }
}

/// A column: title, cells, smallest width, and the order in which columns are left out.
struct Column {
    title: &'static str,
    cells: Vec<String>,
    least: usize,
    width: usize,
    rank: Rank,
}

/// The order in which columns are left out on a narrow terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Tokens,
    Activity,
    Role,
    Age,
    Needed,
}

const GAP: &str = "  ";

/// The team as a table that is at most `width` columns wide.
pub(crate) fn roster_table(rows: &[RosterRow], palette: Palette, width: usize) -> String {
    if rows.is_empty() {
        return empty_team(palette);
    }
    let text = |what: fn(&RosterRow) -> &str| rows.iter().map(move |row| one_line(what(row), 200));
    let marks: Vec<_> = rows.iter().map(|row| Mark::of(row.status, row.life)).collect();
    let status = marks.iter().map(|mark| format!("{} {}", mark.glyph, mark.word));
    let mut table = vec![
        Column::new("NAME", text(|row| &row.name), 8, Rank::Needed),
        Column::new("STATUS", status, 10, Rank::Needed),
        Column::new("FOR", rows.iter().map(|row| age(row.age)), 3, Rank::Age),
        Column::new("ROLE", text(|row| &row.role), 6, Rank::Role),
        Column::new("ACTIVITY", text(|row| &row.activity), 8, Rank::Activity),
        Column::new("MAIL", rows.iter().map(|row| count(row.unread)), 4, Rank::Needed),
        Column::new("TOKENS", rows.iter().map(|row| short(row.tokens)), 6, Rank::Tokens),
        Column::new("CACHED", rows.iter().map(cached), 6, Rank::Tokens),
        Column::new("COST", rows.iter().map(cost), 6, Rank::Tokens),
        Column::new("MODEL", text(|row| &row.model), 9, Rank::Needed),
    ];
    table.retain(|column| {
        column.rank == Rank::Needed || column.cells.iter().any(|cell| !cell.is_empty())
    });
    squeeze(&mut table, width);

    let mut lines = vec![palette.dim(&line(&table, |column| pad(column.title, column.width)))];
    for (at, (row, mark)) in rows.iter().zip(&marks).enumerate() {
        lines.push(line(&table, |column| {
            let cell = pad(column.cells.get(at).map_or("", String::as_str), column.width);
            match column.title {
                "NAME" => palette.member(&row.color, &cell),
                "STATUS" => palette.mark(*mark, &cell),
                "MAIL" if row.unread > 0 => palette.warn(&cell),
                "FOR" | "TOKENS" | "CACHED" | "COST" | "MODEL" => palette.dim(&cell),
                _ => cell,
            }
        }));
    }
    lines.join("\n") + "\n"
}

/// The text that replaces an empty table.
fn empty_team(palette: Palette) -> String {
    format!(
        "Nobody is on the team yet. Type what you want done, for example:\n  {}\n",
        palette.bold("Spawn alice as a coder. Ask her to write a README.")
    )
}

fn line(table: &[Column], cell: impl FnMut(&Column) -> String) -> String {
    table.iter().map(cell).collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

impl Column {
    fn new(
        title: &'static str,
        cells: impl Iterator<Item = String>,
        least: usize,
        rank: Rank,
    ) -> Self {
        let cells: Vec<String> = cells.collect();
        let widest = cells.iter().map(|cell| columns(cell)).max().unwrap_or_default();
        Self { title, cells, least, width: widest.max(title.len()), rank }
    }
}

/// Leaves out columns that do not fit at their smallest width, then narrows the widest ones.
fn squeeze(table: &mut Vec<Column>, width: usize) {
    let total = |table: &[Column], one: fn(&Column) -> usize| {
        table.iter().map(one).sum::<usize>() + GAP.len() * table.len().saturating_sub(1)
    };
    while total(table, |column| column.width.min(column.least)) > width {
        let first = table.iter().map(|column| column.rank).min();
        match first {
            None | Some(Rank::Needed) => break,
            first => table.retain(|column| Some(column.rank) != first),
        }
    }
    while total(table, |column| column.width) > width {
        let spare = table.iter_mut().filter(|column| column.width > column.least);
        match spare.max_by_key(|column| column.width) {
            Some(widest) => widest.width -= 1,
            None => break,
        }
    }
}

fn cached(row: &RosterRow) -> String {
    row.cached.map(|share| format!("{share}%")).unwrap_or_default()
}

fn cost(row: &RosterRow) -> String {
    row.cost.map(|cost| cost.to_string()).unwrap_or_default()
}

fn count(unread: usize) -> String {
    if unread == 0 { String::new() } else { unread.to_string() }
}

/// A number of tokens in at most six columns.
pub(crate) fn short(number: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", number / unit, number % unit / (unit / 10));
    match number {
        0..1_000 => number.to_string(),
        1_000..100_000 => tenths(1_000) + "k",
        100_000..1_000_000 => format!("{}k", number / 1_000),
        1_000_000..1_000_000_000 => tenths(1_000_000) + "M",
        _ => tenths(1_000_000_000) + "G",
    }
}

/// A duration in one unit.
pub(crate) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::style::ColorChoice;
    use super::*;
    use proptest::prelude::*;

    fn row(name: &str, status: Status) -> RosterRow {
        RosterRow {
            name: name.into(),
            color: "blue".into(),
            role: "backend developer".into(),
            status,
            life: Life::Alive,
            age: Duration::from_secs(130),
            activity: "bash cargo test".into(),
            unread: 2,
            tokens: 51_234,
            cached: None,
            cost: None,
            model: "rehearsal".into(),
        }
    }

    #[test]
    fn a_wide_table_shows_everything() {
        let mut gone = row("bob", Status::Working);
        gone.life = Life::Dead;
        gone.activity = "crash, signal 9".into();
        gone.unread = 0;
        let table = roster_table(&[row("alice", Status::Working), gone], Palette::plain(), 120);
        let wanted = "\
NAME   STATUS     FOR  ROLE               ACTIVITY         MAIL  TOKENS  MODEL
alice  ● working  2m   backend developer  bash cargo test  2     51.2k   rehearsal
bob    ✗ dead     2m   backend developer  crash, signal 9        51.2k   rehearsal
";
        assert_eq!(table, wanted);
    }

    #[test]
    fn cache_share_and_cost_are_shown_if_known() {
        let mut known = row("bob", Status::Idle);
        (known.cached, known.cost) = (Some(83), Money::try_from(0.25).ok());
        let table = roster_table(&[row("alice", Status::Working), known], Palette::plain(), 140);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains("TOKENS  CACHED  COST    MODEL"), "{table}");
        assert!(lines[2].contains("51.2k   83%     0.2500  rehearsal"), "{table}");
    }

    #[test]
    fn a_narrow_table_keeps_the_important_columns() {
        let table = roster_table(&[row("alice", Status::Waiting)], Palette::plain(), 40);
        let wanted = "\
NAME   STATUS     FOR  MAIL  MODEL
alice  ◐ waiting  2m   2     rehearsal
";
        assert_eq!(table, wanted);
    }

    #[test]
    fn an_empty_team_shows_what_to_type() {
        let text = roster_table(&[], Palette::plain(), 80);
        assert!(text.contains("Spawn alice"), "{text}");
    }

    #[test]
    fn numbers_stay_short() {
        for (number, wanted) in [(999, "999"), (5_120, "5.1k"), (123_456, "123k")] {
            assert_eq!(short(number), wanted);
        }
        assert_eq!(short(1_950_000), "1.9M");
        assert_eq!(age(Duration::from_secs(90_000)), "1d");
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let rows = [row("alice", Status::Idle), row("bob", Status::Failed)];
        let painted = roster_table(&rows, Palette::new(ColorChoice::Always, true), 100);
        let plain = roster_table(&rows, Palette::plain(), 100);
        let tidy = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(tidy(&super::super::sanitize::clean(&painted)), tidy(&plain));
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(
            name in "[a-z]{1,32}", role in "\\PC{0,80}", activity in any::<String>(),
            model in "[a-z/-]{0,60}", tokens: u64, width in 40usize..200,
        ) {
            let row = RosterRow { name, role, activity, tokens, model, ..row("x", Status::Starting) };
            for line in roster_table(&[row], Palette::plain(), width).lines() {
                prop_assert!(columns(line) <= width, "{} columns at {width}: {line}", columns(line));
            }
        }
    }
}
