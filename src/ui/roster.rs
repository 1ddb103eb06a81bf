//! The table of agents: status, activity, age, unread mail, usage.

use super::sanitize::{columns, one_line, pad};
use super::style::{AWAY, Palette, status_mark};
use crate::view::MemberView;
use crate::wire::WallTime;
use anstyle::Style;
use std::time::Duration;

/// The age of a heartbeat above which it is shown, in seconds; a busy agent sends one at least every five seconds.
const WORTH_SAYING: f64 = 15.0;

/// Returns the activity of an agent for people: the end of its process, a silence, or its tool or phase.
pub(crate) fn activity(member: &MemberView) -> String {
    let ended = member.ended.clone().filter(|_| !member.alive);
    let silent = member.heartbeat.as_ref().filter(|heartbeat| heartbeat.silent_for > WORTH_SAYING);
    let quiet = silent.map(|heartbeat| {
        let silent = Duration::try_from_secs_f64(heartbeat.silent_for).unwrap_or_default();
        format!("{}, no sign of life for {}", heartbeat.state, age(silent))
    });
    let doing = ended.or(quiet).or_else(|| member.activity.clone()).unwrap_or_default();
    if member.background == 0 {
        return doing;
    }
    let separator = if doing.is_empty() { "" } else { ", " };
    format!("{doing}{separator}{} in background", member.background)
}

/// A column's title, its smallest width, its rank, and the cell of a member. On a narrow terminal the lowest rank
/// is left out first; a column without a rank is always shown.
type ColumnSpec = (&'static str, usize, Option<u8>, fn(&MemberView, WallTime) -> String);

const COLUMNS: [ColumnSpec; 11] = [
    ("NAME", 8, None, |member, _| one_line(&member.name, 200)),
    ("HOST", 4, Some(4), |member, _| one_line(member.host.as_deref().unwrap_or_default(), 32)),
    ("STATUS", 10, None, |member, _| status_of(member).0.into()),
    ("FOR", 3, Some(3), |member, now| {
        age(now.since(member.away_since.filter(|_| member.is_away()).unwrap_or(member.since)))
    }),
    ("ROLE", 6, Some(2), |member, _| one_line(&member.role, 200)),
    ("ACTIVITY", 8, Some(1), |member, _| one_line(&activity(member), 200)),
    ("MAIL", 4, None, |member, _| some((member.unread > 0).then_some(member.unread))),
    ("TOKENS", 6, Some(0), |member, _| short(member.usage.tokens())),
    ("CACHED", 6, Some(0), |member, _| {
        some(member.usage.cached_share().map(|share| format!("{share}%")))
    }),
    ("COST", 6, Some(0), |member, _| some(member.usage.cost)),
    ("MODEL", 9, None, |member, _| one_line(&member.model, 200)),
];

fn status_of(member: &MemberView) -> (&'static str, Style) {
    if member.is_away() { AWAY } else { status_mark(member.status, member.found_dead) }
}

fn some(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

struct Column {
    title: &'static str,
    cells: Vec<String>,
    least: usize,
    width: usize,
    rank: Option<u8>,
}

const GAP: &str = "  ";

/// Returns the walls around commands as the living agents have published them: the lead's, and those that differ.
pub(crate) fn walls_in_words(members: &[&MemberView]) -> Option<String> {
    let summary = |member: &MemberView| {
        let sandbox = member.sandbox.as_ref().filter(|_| member.alive);
        sandbox.map(|sandbox| one_line(&sandbox.summary(), 200))
    };
    let (lead, others): (Vec<&MemberView>, Vec<&MemberView>) =
        members.iter().partition(|member| member.name == "lead");
    let of_lead = lead.into_iter().find_map(summary);
    let differing = others.into_iter().filter_map(|member| {
        let words = summary(member).filter(|words| Some(words) != of_lead.as_ref())?;
        Some(format!("{}: {words}", one_line(&member.name, 200)))
    });
    let words: Vec<String> = of_lead.clone().into_iter().chain(differing).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Renders the team as a table that is at most `width` columns wide.
pub(crate) fn roster_table(
    members: &[&MemberView],
    now: WallTime,
    palette: Palette,
    width: usize,
) -> String {
    if members.is_empty() {
        let example = palette.bold("Spawn alice as a coder. Ask her to write a README.");
        return format!(
            "The team has no members yet. Tell the lead (`team lead`) what you want done, for \
             example:\n  {example}\n"
        );
    }
    let column = |(title, least, rank, cell): ColumnSpec| {
        let cells: Vec<String> = members.iter().map(|member| cell(member, now)).collect();
        let widest = cells.iter().map(|cell| columns(cell)).max().unwrap_or_default();
        Column { title, cells, least, width: widest.max(title.len()), rank }
    };
    let mut table: Vec<Column> = COLUMNS.into_iter().map(column).collect();
    table
        .retain(|column| column.rank.is_none() || column.cells.iter().any(|cell| !cell.is_empty()));
    squeeze(&mut table, width);

    let mut lines = vec![palette.dim(&line(&table, |column| pad(column.title, column.width)))];
    for (at, member) in members.iter().enumerate() {
        lines.push(line(&table, |column| {
            let cell = pad(column.cells.get(at).map_or("", String::as_str), column.width);
            match column.title {
                "NAME" => palette.member(&member.color, &cell),
                "STATUS" => palette.paint(status_of(member).1, &cell),
                "MAIL" if member.unread > 0 => palette.warn(&cell),
                "FOR" | "TOKENS" | "CACHED" | "COST" | "MODEL" => palette.dim(&cell),
                _ => cell,
            }
        }));
    }
    lines.join("\n") + "\n"
}

fn line(table: &[Column], cell: impl FnMut(&Column) -> String) -> String {
    table.iter().map(cell).collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

/// Leaves out columns that do not fit at their smallest width, then narrows the widest ones.
fn squeeze(table: &mut Vec<Column>, width: usize) {
    let total = |table: &[Column], one: fn(&Column) -> usize| {
        table.iter().map(one).sum::<usize>() + GAP.len() * table.len().saturating_sub(1)
    };
    while total(table, |column| column.width.min(column.least)) > width {
        let Some(first) = table.iter().filter_map(|column| column.rank).min() else { break };
        table.retain(|column| column.rank != Some(first));
    }
    while total(table, |column| column.width) > width {
        let spare = table.iter_mut().filter(|column| column.width > column.least);
        let Some(widest) = spare.max_by_key(|column| column.width) else { break };
        widest.width -= 1;
    }
}

/// Formats a number of tokens in at most six columns.
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
    use crate::wire::money::Money;
    use crate::wire::roster::{Status, UsageCount};
    use proptest::prelude::*;

    const NOW: f64 = 1_000.0;

    fn member(name: &str, status: Status) -> MemberView {
        MemberView {
            role: "backend developer".into(),
            since: (NOW - 130.0).into(),
            activity: Some("bash cargo test".into()),
            unread: 2,
            usage: UsageCount { input_tokens: 51_234, ..UsageCount::default() },
            ..MemberView::sample(name, status)
        }
    }

    fn table(members: &[MemberView], palette: Palette, width: usize) -> String {
        roster_table(&members.iter().collect::<Vec<_>>(), NOW.into(), palette, width)
    }

    #[test]
    fn a_wide_table_shows_everything() {
        let gone = MemberView {
            alive: false,
            found_dead: true,
            ended: Some("its process is gone".into()),
            unread: 0,
            ..member("bob", Status::Failed)
        };
        let returning = MemberView {
            alive: false,
            ended: Some("crash, signal 9".into()),
            unread: 0,
            ..member("carol", Status::Starting)
        };
        let wanted = "\
NAME   STATUS      FOR  ROLE               ACTIVITY             MAIL  TOKENS  MODEL
alice  ● working   2m   backend developer  bash cargo test      2     51.2k   rehearsal
bob    ✗ dead      2m   backend developer  its process is gone        51.2k   rehearsal
carol  ◌ starting  2m   backend developer  crash, signal 9            51.2k   rehearsal
";
        let team = [member("alice", Status::Working), gone, returning];
        assert_eq!(table(&team, Palette::plain(), 120), wanted);
    }

    #[test]
    fn cache_share_and_cost_are_shown_if_known() {
        let mut known = member("bob", Status::Idle);
        known.usage.cache_read_tokens = 43_000;
        known.usage.cost = Money::try_from(0.25).ok();
        let table = table(&[member("alice", Status::Working), known], Palette::plain(), 140);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains("TOKENS  CACHED  COST    MODEL"), "{table}");
        assert!(lines[2].contains("51.2k   83%     0.2500  rehearsal"), "{table}");
    }

    #[test]
    fn a_narrow_table_keeps_the_important_columns_and_an_empty_one_shows_what_to_type() {
        let wanted = "\
NAME   STATUS     FOR  MAIL  MODEL
alice  ◐ waiting  2m   2     rehearsal
";
        assert_eq!(table(&[member("alice", Status::Waiting)], Palette::plain(), 40), wanted);
        assert!(table(&[], Palette::plain(), 80).contains("Spawn alice"));
    }

    #[test]
    fn numbers_stay_short() {
        let cases = [(999, "999"), (5_120, "5.1k"), (123_456, "123k"), (1_950_000, "1.9M")];
        for (number, wanted) in cases {
            assert_eq!(short(number), wanted);
        }
        assert_eq!(age(Duration::from_secs(90_000)), "1d");
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let members = [member("alice", Status::Idle), member("bob", Status::Failed)];
        let painted = table(&members, Palette::new(ColorChoice::Always, true), 100);
        let plain = table(&members, Palette::plain(), 100);
        let tidy = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(tidy(&super::super::sanitize::sanitize(&painted)), tidy(&plain));
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(
            name in "[a-z]{1,32}", role in "\\PC{0,80}", activity in any::<String>(),
            model in "[a-z/-]{0,60}", input_tokens: u64, width in 40usize..200,
        ) {
            let activity = Some(activity);
            let usage = UsageCount { input_tokens, ..UsageCount::default() };
            let row =
                MemberView { name, role, activity, usage, model, ..member("x", Status::Starting) };
            for line in table(&[row], Palette::plain(), width).lines() {
                prop_assert!(columns(line) <= width, "{} columns at {width}: {line}", columns(line));
            }
        }
    }
}
