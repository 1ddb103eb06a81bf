//! The difference between two versions of a text, as rows: line numbers, context, and the words that changed.

use super::sanitize::fit;
use super::style::{BAD, DIM};
use super::styled_text::{MIN_WIDTH, StyledLine};
use super::view::View;
use crate::view::requests::visible;
use anstyle::{AnsiColor, Style};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::ops::Range;

/// The number of unchanged lines that are shown before and after a change.
const CONTEXT: usize = 3;
/// The largest product of the numbers of lines that are compared. Beyond it all of them count as changed.
const MOST_PAIRS: usize = 4_000_000;
/// The longest line in which changed words are searched, in bytes.
const MOST_LINE_BYTES: usize = 1000;
/// The largest sum of the products of the lengths of such lines, in bytes.
const MOST_BYTE_PAIRS: usize = 40_000_000;
/// The least width that line numbers leave to the text.
const LEAST_TEXT: usize = 16;

const ADDED: Style = AnsiColor::Green.on_default();

/// A difference as rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Diff {
    /// The rows, without line ends; none if the texts are equal.
    pub(crate) rows: Vec<String>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

impl Diff {
    /// Returns the numbers of added and removed lines: `+12 −3`.
    pub(crate) fn counts(&self) -> String {
        format!("+{} −{}", self.added, self.removed)
    }
}

/// A line of both versions. The numbers are indices from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change<'a> {
    Kept { old: usize, new: usize, text: &'a str },
    Removed { old: usize, text: &'a str },
    Added { new: usize, text: &'a str },
}

/// Returns the difference between two versions of a file, with the numbers of its lines.
pub(crate) fn diff(before: &str, after: &str, view: &View) -> Diff {
    let most = before.lines().count().max(after.lines().count());
    rows(before, after, most.to_string().len(), view)
}

/// Returns the difference between two versions of a part of a file, whose line numbers are not known.
pub(crate) fn diff_of_part(before: &str, after: &str, view: &View) -> Diff {
    rows(before, after, 0, view)
}

fn rows(before: &str, after: &str, digits: usize, view: &View) -> Diff {
    let changes = changes(before, after);
    let emphasis = emphasis(&changes);
    let width = view.width.map(|width| width.max(MIN_WIDTH));
    let has_room = width.is_none_or(|width| width >= 2 * digits + "  - ".len() + LEAST_TEXT);
    let layout = Layout { view, width, digits: if has_room { digits } else { 0 } };
    let differ_at_end =
        !before.is_empty() && !after.is_empty() && before.ends_with('\n') != after.ends_with('\n');
    let mut diff = Diff::default();
    let mut last_shown = None;
    let shown = shown(&changes);
    for (at, (change, words)) in changes.iter().zip(&emphasis).enumerate() {
        if !shown.get(at).copied().unwrap_or_default() {
            continue;
        }
        if last_shown.is_some_and(|last| last + 1 < at) {
            diff.rows.push(view.palette.dim("⋯"));
        }
        last_shown = Some(at);
        layout.line(*change, words, &mut diff.rows);
        let (Change::Removed { text, .. } | Change::Added { text, .. }) = change else { continue };
        if differ_at_end && !text.ends_with('\n') {
            let note = fit("(no line end)", width.unwrap_or(usize::MAX));
            diff.rows.push(view.palette.dim(&note));
        }
    }
    let is_added = |change: &&Change<'_>| matches!(change, Change::Added { .. });
    let is_removed = |change: &&Change<'_>| matches!(change, Change::Removed { .. });
    diff.added = changes.iter().filter(is_added).count();
    diff.removed = changes.iter().filter(is_removed).count();
    diff
}

/// Returns all lines of both versions in order; removed lines come before those that replace them.
fn changes<'a>(before: &'a str, after: &'a str) -> Vec<Change<'a>> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let is_equal = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(is_equal).count();
    let rest = [old.as_slice(), new.as_slice()].map(|it| it.get(head..).unwrap_or_default());
    let [old_rest, new_rest] = rest;
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(is_equal).count();
    let [old_middle, new_middle] =
        rest.map(|rest| rest.get(..rest.len() - tail).unwrap_or_default());
    let operations = if old_middle.len().saturating_mul(new_middle.len()) <= MOST_PAIRS {
        capture_diff_slices(Algorithm::Myers, old_middle, new_middle)
    } else {
        let (old_len, new_len) = (old_middle.len(), new_middle.len());
        vec![DiffOp::Replace { old_index: 0, old_len, new_index: 0, new_len }]
    };
    let mut changes = Vec::with_capacity(old.len().max(new.len()));
    let kept = |changes: &mut Vec<Change<'a>>, from: usize, other: usize, count: usize| {
        let lines = old.iter().skip(from).take(count).enumerate();
        changes.extend(lines.map(|(at, text)| Change::Kept {
            old: from + at,
            new: other + at,
            text,
        }));
    };
    kept(&mut changes, 0, 0, head);
    for operation in operations {
        let shifted = |range: Range<usize>| (range.start + head, range.len());
        let (from, count) = shifted(operation.old_range());
        let (other, other_count) = shifted(operation.new_range());
        if let DiffOp::Equal { .. } = operation {
            kept(&mut changes, from, other, count);
            continue;
        }
        let removed = old.iter().enumerate().skip(from).take(count);
        changes.extend(removed.map(|(old, text)| Change::Removed { old, text }));
        let added = new.iter().enumerate().skip(other).take(other_count);
        changes.extend(added.map(|(new, text)| Change::Added { new, text }));
    }
    kept(&mut changes, old.len() - tail, new.len() - tail, tail);
    changes
}

/// Returns for each line whether it is a change or near one. A gap of one line is not worth a row of its own.
fn shown(changes: &[Change<'_>]) -> Vec<bool> {
    let mut shown = vec![false; changes.len()];
    let is_change = |change: &Change<'_>| !matches!(change, Change::Kept { .. });
    let mut next = 0;
    let mut last_end = None;
    for (at, _) in changes.iter().enumerate().filter(|(_, change)| is_change(change)) {
        let mut from = at.saturating_sub(CONTEXT).max(next);
        if last_end.is_some_and(|end| end + 1 == from) {
            from -= 1;
        }
        let end = (at + CONTEXT + 1).min(changes.len());
        if let Some(range) = shown.get_mut(from..end) {
            range.fill(true);
        }
        next = end;
        last_end = Some(end);
    }
    shown
}

/// Returns for each line the ranges of its words that changed, if the line replaces a similar one.
fn emphasis(changes: &[Change<'_>]) -> Vec<Vec<Range<usize>>> {
    let mut emphasis = vec![Vec::new(); changes.len()];
    let mut left = MOST_BYTE_PAIRS;
    let mut at = 0;
    while at < changes.len() {
        let rest = changes.get(at..).unwrap_or_default();
        let removed = rest.iter().take_while(|it| matches!(it, Change::Removed { .. })).count();
        let after = rest.iter().skip(removed);
        let added = after.take_while(|it| matches!(it, Change::Added { .. })).count();
        for pair in 0..removed.min(added) {
            let (old_at, new_at) = (at + pair, at + removed + pair);
            let texts = [old_at, new_at].map(|at| changes.get(at).map_or("", Change::text));
            if texts.iter().any(|text| text.len() > MOST_LINE_BYTES) {
                continue;
            }
            let Some(rest) = left.checked_sub(texts.map(str::len).iter().product()) else {
                return emphasis;
            };
            left = rest;
            if let Some([old, new]) = changed_words(texts) {
                for (at, ranges) in [(old_at, old), (new_at, new)] {
                    if let Some(slot) = emphasis.get_mut(at) {
                        *slot = ranges;
                    }
                }
            }
        }
        at += (removed + added).max(1);
    }
    emphasis
}

/// Returns the ranges of the words in which two lines differ; `None` if most of them do.
fn changed_words(lines: [&str; 2]) -> Option<[Vec<Range<usize>>; 2]> {
    let [old, new] = lines.map(words);
    let operations = capture_diff_slices(Algorithm::Myers, &old, &new);
    let mut ranges = [Vec::new(), Vec::new()];
    let mut equal = 0;
    for operation in operations {
        let sides = [(&old, operation.old_range()), (&new, operation.new_range())];
        if let DiffOp::Equal { .. } = operation {
            let [(words, range), _] = sides;
            let same = words.get(range).unwrap_or_default();
            equal += same.iter().map(|word| word.trim().len()).sum::<usize>();
            continue;
        }
        for ((words, range), ranges) in sides.into_iter().zip(&mut ranges) {
            let length = |words: Option<&[&str]>| {
                words.unwrap_or_default().iter().map(|word| word.len()).sum::<usize>()
            };
            let begin = length(words.get(..range.start));
            let end = begin + length(words.get(range));
            if begin < end {
                ranges.push(begin..end);
            }
        }
    }
    let longest = lines.iter().map(|line| line.trim().len()).max().unwrap_or_default();
    (equal * 2 >= longest).then_some(ranges)
}

/// Returns the words of a line, the blanks, and the other characters one by one.
fn words(line: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut words = Vec::new();
    let mut start = 0;
    let mut before = None;
    for (at, c) in line.char_indices() {
        if before.is_some_and(|before| before != kind(c) || before == 2) {
            words.extend(line.get(start..at));
            start = at;
        }
        before = Some(kind(c));
    }
    words.extend(line.get(start..).filter(|rest| !rest.is_empty()));
    words
}

impl<'a> Change<'a> {
    fn text(&self) -> &'a str {
        match self {
            Self::Kept { text, .. } | Self::Removed { text, .. } | Self::Added { text, .. } => text,
        }
    }
}

struct Layout<'a> {
    view: &'a View,
    width: Option<usize>,
    /// The width of a line number; 0 without numbers.
    digits: usize,
}

impl Layout<'_> {
    fn line(&self, change: Change<'_>, changed: &[Range<usize>], rows: &mut Vec<String>) {
        let (old, new, sign, style) = match change {
            Change::Kept { old, new, .. } => (Some(old), Some(new), " ", Style::new()),
            Change::Removed { old, .. } => (Some(old), None, "-", BAD),
            Change::Added { new, .. } => (None, Some(new), "+", ADDED),
        };
        let number = |at: Option<usize>| {
            let number = at.map(|at| (at + 1).to_string()).unwrap_or_default();
            if self.digits == 0 { number } else { format!("{number:>0$} ", self.digits) }
        };
        let numbers = if self.digits == 0 { String::new() } else { number(old) + &number(new) };
        let text = change.text();
        let text = text.strip_suffix('\n').unwrap_or(text);
        let line = styled(text, style, changed);
        let used = numbers.len() + sign.len() + 1;
        for (at, row) in line.wrap(self.width.map(|width| width - used), 0).into_iter().enumerate()
        {
            let is_first = at == 0;
            let blank = " ".repeat(numbers.len());
            let mut whole = StyledLine::new(DIM, if is_first { &numbers } else { &blank });
            whole.push(style, if is_first { sign } else { " " });
            whole.push(style, " ");
            whole.extend(row);
            rows.push(whole.trimmed().paint(self.view.palette));
        }
    }
}

/// Returns a line with its changed words marked. Blanks at the end of a changed line have visible signs.
fn styled(text: &str, style: Style, changed: &[Range<usize>]) -> StyledLine {
    let is_kept = style == Style::new();
    let body = if is_kept { text } else { text.trim_end_matches([' ', '\t']) };
    let mut line = StyledLine::default();
    let mut at = 0;
    let end = body.len();
    for range in changed {
        line.push(style, &visible(body.get(at..range.start.min(end)).unwrap_or_default()));
        let word = body.get(range.start.min(end)..range.end.min(end)).unwrap_or_default();
        line.push(style.invert(), &visible(word));
        at = range.end.min(end);
    }
    line.push(style, &visible(body.get(at..).unwrap_or_default()));
    let blanks = text.get(end..).unwrap_or_default();
    line.push(style, &blanks.replace(' ', "·").replace('\t', "→"));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sanitize::columns;
    use crate::ui::style::{ColorChoice, Palette};
    use proptest::prelude::*;

    fn plain(before: &str, after: &str, width: Option<usize>) -> Vec<String> {
        diff(before, after, &View::fixed(width)).rows
    }

    fn numbered(lines: Range<usize>) -> String {
        lines.map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat()
    }

    #[test]
    fn a_change_has_its_line_numbers_and_context() {
        let before = numbered(1..21);
        let after = before.replace("line 5\n", "line five\nand more\n").replace("line 17\n", "");
        let shown = diff(&before, &after, &View::fixed(None));
        let wanted = "
 2  2   line 2
 3  3   line 3
 4  4   line 4
 5    - line 5
    5 + line five
    6 + and more
 6  7   line 6
 7  8   line 7
 8  9   line 8
⋯
14 15   line 14
15 16   line 15
16 17   line 16
17    - line 17
18 18   line 18
19 19   line 19
20 20   line 20";
        assert_eq!(shown.rows, wanted.trim_start_matches('\n').lines().collect::<Vec<_>>());
        assert_eq!((shown.added, shown.removed), (2, 2));
        assert_eq!(shown.counts(), "+2 −2");
        assert_eq!(diff(&before, &before, &View::fixed(None)), Diff::default());
        let gap_of_one = before.replace("line 5\n", "").replace("line 13\n", "");
        assert!(plain(&before, &gap_of_one, None).iter().all(|row| row != "⋯"));
    }

    #[test]
    fn long_lines_are_wrapped_and_a_narrow_view_has_no_numbers() {
        let rows = plain("", "one two three four five six\n", Some(26));
        assert_eq!(rows, ["  1 + one two three four", "      five six"]);
        assert_eq!(plain("", "one two three\n", Some(12)), ["+ one two", "  three"]);
        let part = diff_of_part("a\nb", "a\nc", &View::fixed(Some(40)));
        assert_eq!(part.rows, ["  a", "- b", "+ c"]);
    }

    #[test]
    fn changed_words_are_marked_if_most_of_the_line_is_the_same() {
        let view = View { palette: Palette::new(ColorChoice::Always, true), ..View::fixed(None) };
        let words = changed_words(["let a = old(b);", "let a = new(b, c);"]).unwrap();
        let name = std::iter::once(8..11);
        assert_eq!(words, [name.collect(), vec![8..11, 13..16]]);
        assert_eq!(changed_words(["one two three", "four five six"]), None);
        let marked = diff_of_part("let a = old;", "let a = new;", &view).rows.concat();
        assert!(marked.contains("\u{1b}[7m\u{1b}[31mold\u{1b}[0m"), "{marked:?}");
        assert!(marked.contains("\u{1b}[7m\u{1b}[32mnew\u{1b}[0m"), "{marked:?}");
    }

    #[test]
    fn nothing_is_hidden() {
        let rows = plain("a\r\n\u{1b}[2J\n", "a\n\u{202e}x \t\n", None);
        assert_eq!(rows, ["1   - a<U+000D>", "2   - <U+001B>[2J", "  1 + a", "  2 + <U+202E>x·→"]);
        assert_eq!(plain("a\n", "a", None), ["1   - a", "  1 + a", "(no line end)"]);
        assert_eq!(plain("", "a", None), ["  1 + a"]);
    }

    /// Changes of more lines than are compared have all lines of both versions.
    #[test]
    fn very_different_files_are_replaced_whole() {
        let (before, after) = (numbered(0..3000), numbered(4000..7000));
        let shown = diff(&before, &after, &View::fixed(None));
        assert_eq!((shown.added, shown.removed, shown.rows.len()), (3000, 3000, 6000));
    }

    /// Applies rows to the text that they were made from.
    fn apply(before: &str, rows: &[String], digits: usize) -> String {
        let old: Vec<&str> = before.lines().collect();
        let mut new = Vec::new();
        let mut at = 0;
        for row in rows.iter().filter(|row| *row != "⋯") {
            let number = row[..digits].trim().parse::<usize>();
            let text = row.get(2 * digits + 4..).unwrap_or_default();
            if let Ok(number) = number {
                new.extend(&old[at..number - 1]);
                at = number;
                assert_eq!(old[number - 1], text);
            }
            if row[2 * digits + 2..].starts_with(['+', ' ']) || row.len() < 2 * digits + 3 {
                new.push(text);
            }
        }
        new.extend(&old[at..]);
        new.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat()
    }

    proptest! {
        #[test]
        fn the_rows_turn_the_first_text_into_the_second(
            before in proptest::collection::vec("[a-c]{1,3}", 0..30),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), "[a-e]{1,3}", 0..3), 0..6),
        ) {
            let mut after = before.clone();
            for (at, text, kind) in edits {
                let at = at.index(after.len() + 1);
                match kind {
                    0 => after.insert(at, text),
                    1 if at < after.len() => after[at] = text,
                    _ if at < after.len() => drop(after.remove(at)),
                    _ => {}
                }
            }
            let [before, after] =
                [before, after].map(|lines| lines.iter().map(|it| format!("{it}\n")).collect::<Vec<_>>().concat());
            let shown = diff(&before, &after, &View::fixed(None));
            let digits = before.lines().count().max(after.lines().count()).to_string().len();
            prop_assert_eq!(apply(&before, &shown.rows, digits), after);
        }

        #[test]
        fn any_texts_are_compared(before in "[ab\n\r\t日]{0,40}", after in "[ab\n é]{0,40}", width in 4usize..60) {
            let changes = changes(&before, &after);
            let old: String = changes.iter().filter(|it| !matches!(it, Change::Added { .. })).map(Change::text).collect();
            let new: String = changes.iter().filter(|it| !matches!(it, Change::Removed { .. })).map(Change::text).collect();
            prop_assert_eq!((old, new), (before.clone(), after.clone()));
            for row in diff(&before, &after, &View::fixed(Some(width))).rows {
                prop_assert!(columns(&row) <= width, "{:?}", row);
            }
        }
    }
}
