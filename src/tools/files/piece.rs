//! Finds the piece of a file that an edit replaces, also where the model has copied it with small differences.
//!
//! *Invariant:* a piece that is not the exact text differs from it only in spaces at the ends of lines, in line endings, in
//! one indentation of all lines, or in typographic signs. Lines that the edit does not change stay as they are.

use similar::{DiffTag, TextDiff};
use std::borrow::Cow;

/// The number of lines of a file in which a similar place is looked for.
const MAX_LINES: usize = 20_000;

/// The number of comparisons of lines that the look for a similar place makes.
const MAX_COMPARISONS: usize = 200_000;

/// The number of places that a message names.
const SHOWN_PLACES: usize = 8;

/// The number of characters of a line that a message repeats.
const SHOWN_CHARS: usize = 160;

/// A piece of a text, and its replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) at: usize,
    pub(super) old: &'a str,
    pub(super) new: String,
    /// The difference between the piece and the text that was given for it; `None` if there is none.
    pub(super) difference: Option<&'static str>,
}

/// The ways in which a given text may differ from the piece, the smallest difference first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tolerance {
    LineEnds,
    Signs,
    Indentation,
}

impl Tolerance {
    fn name(self) -> &'static str {
        match self {
            Self::LineEnds => "spaces or breaks at the ends of lines",
            Self::Signs => "typographic signs",
            Self::Indentation => "indentation",
        }
    }
}

/// Finds the one piece of `text`, the content of the file at `path`, that `old` means. Fails with the reason and advice.
pub(super) fn find<'a>(
    path: &str,
    text: &'a str,
    old: &str,
    new: &str,
) -> Result<Piece<'a>, String> {
    match exact(text, old) {
        [Some(at), None] => {
            let found = text.get(at..at + old.len()).unwrap_or_default();
            let is_of_returns = text.contains("\r\n") && !text.replace("\r\n", "").contains('\n');
            let new = if is_of_returns { with_returns(new) } else { new.to_owned() };
            return Ok(Piece { at, old: found, new, difference: None });
        }
        [Some(_), Some(_)] => return Err(too_many(path, text, old)),
        [None, _] => {}
    }
    if let Some(piece) = with_other_breaks(text, old, new) {
        return Ok(piece);
    }
    for tolerance in [Tolerance::LineEnds, Tolerance::Signs, Tolerance::Indentation] {
        match places(text, old, tolerance).as_slice() {
            [] => {}
            [place] => {
                return place.piece(old, new, tolerance).ok_or_else(|| {
                    format!(
                        "old_text differs from {path}, line {}, in indentation, and new_text cannot be indented likewise; \
                         copy it exactly from read_file",
                        place.line
                    )
                });
            }
            [first, second, ..] => {
                return Err(format!(
                    "old_text occurs 0 times in {path}, and several times apart from {}, at lines {} and {}; copy it \
                     exactly from read_file",
                    tolerance.name(),
                    first.line,
                    second.line
                ));
            }
        }
    }
    let place = nearest(text, old).map(|place| format!("; {place}")).unwrap_or_default();
    Err(format!(
        "old_text occurs 0 times in {path}{place}; copy it exactly from read_file, with its spaces and line breaks"
    ))
}

/// Returns the first two places of a text in another.
fn exact(text: &str, old: &str) -> [Option<usize>; 2] {
    let mut places = text.match_indices(old).map(|(at, _)| at);
    [places.next(), places.next()]
}

fn too_many(path: &str, text: &str, old: &str) -> String {
    let places: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    let shown = places.iter().take(SHOWN_PLACES).map(|at| line_of(text, *at).to_string());
    let shown: Vec<String> = shown.collect();
    let more = if places.len() > SHOWN_PLACES { ", …" } else { "" };
    format!(
        "old_text occurs {} times in {path}, at lines {}{more}; give more of the text around it, so that it occurs once, \
         or set replace_all",
        places.len(),
        shown.join(", ")
    )
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

fn with_returns(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Finds the piece in a file whose lines end in `\r\n`, where the given texts have `\n`.
fn with_other_breaks<'a>(text: &'a str, old: &str, new: &str) -> Option<Piece<'a>> {
    if !text.contains("\r\n") || !old.contains('\n') {
        return None;
    }
    let old = with_returns(old);
    let [Some(at), None] = exact(text, &old) else { return None };
    let found = text.get(at..at + old.len())?;
    let difference = Some(Tolerance::LineEnds.name());
    Some(Piece { at, old: found, new: with_returns(new), difference })
}

/// Lines of a file that mean the given ones.
struct Place<'a> {
    /// The number of the first line.
    line: usize,
    at: usize,
    /// The lines, with their ends.
    lines: Vec<&'a str>,
    /// The file from these lines on.
    rest: &'a str,
    shift: Shift,
}

/// The difference between the indentation of the file and the given one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shift {
    None,
    /// The file has this in front of the given indentation.
    In(String),
    /// The given text has this in front of the indentation of the file.
    Out(String),
}

fn places<'a>(text: &'a str, old: &str, tolerance: Tolerance) -> Vec<Place<'a>> {
    let wanted: Vec<&str> = old.lines().collect();
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut found = Vec::new();
    let mut at = 0;
    for (number, window) in lines.windows(wanted.len()).enumerate() {
        if let Some(shift) = shift(window, &wanted, tolerance) {
            let rest = text.get(at..).unwrap_or_default();
            found.push(Place { line: number + 1, at, lines: window.to_vec(), rest, shift });
        }
        at += window.first().map_or(0, |line| line.len());
    }
    found
}

/// Returns the shift between lines of a file and the given ones, if they are the same otherwise.
fn shift(window: &[&str], wanted: &[&str], tolerance: Tolerance) -> Option<Shift> {
    let mut known: Option<Shift> = None;
    for (line, wanted) in window.iter().zip(wanted) {
        let (line, wanted) = (line.trim_end(), wanted.trim_end());
        let is_same = match tolerance {
            Tolerance::LineEnds => line == wanted,
            Tolerance::Signs => plain(line) == plain(wanted),
            Tolerance::Indentation => line.trim_start() == wanted.trim_start(),
        };
        if !is_same {
            return None;
        }
        if tolerance != Tolerance::Indentation || line.is_empty() {
            continue;
        }
        let (there, given) = (indentation(line), indentation(wanted));
        let this = match (there.strip_suffix(given), given.strip_suffix(there)) {
            (Some(""), _) => Shift::None,
            (Some(more), _) => Shift::In(more.to_owned()),
            (None, Some(more)) => Shift::Out(more.to_owned()),
            (None, None) => return None,
        };
        if known.get_or_insert_with(|| this.clone()) != &this {
            return None;
        }
    }
    Some(known.unwrap_or(Shift::None))
}

fn indentation(line: &str) -> &str {
    line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
}

/// Returns a text with plain quotes, dashes and spaces.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let plain = text.chars().map(|sign| match sign {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{2032}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{A0}' | '\u{2002}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        other => other,
    });
    plain.collect::<String>().into()
}

impl<'a> Place<'a> {
    /// Returns the replacement of these lines. Lines that `new` has in common with `old` stay as they are in the file.
    /// `None` if a new line cannot be indented as the file is.
    fn piece(&self, old: &str, new: &str, tolerance: Tolerance) -> Option<Piece<'a>> {
        let has_returns = self.lines.iter().any(|line| line.ends_with("\r\n"));
        let line_end = if has_returns { "\r\n" } else { "\n" };
        let old_lines: Vec<&str> = old.lines().collect();
        let new_lines: Vec<&str> = new.lines().collect();
        let mut lines: Vec<Cow<'_, str>> = Vec::new();
        for part in TextDiff::from_slices(&old_lines, &new_lines).ops() {
            if part.tag() == DiffTag::Equal {
                let kept = self.lines.get(part.old_range()).unwrap_or_default();
                lines.extend(kept.iter().map(|line| without_end(line).into()));
            } else {
                for line in new_lines.get(part.new_range()).unwrap_or_default() {
                    lines.push(self.shift.apply(without_end(line))?.into());
                }
            }
        }
        let mut result = lines.join(line_end);
        let last = self.lines.last().copied().unwrap_or_default();
        let has_end = last.ends_with('\n');
        if new.ends_with('\n') && (has_end || !old.ends_with('\n')) {
            result.push_str(line_end);
        }
        let there: usize = self.lines.iter().map(|line| line.len()).sum();
        // Without a final line break in the given text, that of the file is not part of the piece.
        let end =
            if old.ends_with('\n') { there } else { there - last.len() + without_end(last).len() };
        let (at, old) = (self.at, self.rest.get(..end).unwrap_or_default());
        Some(Piece { at, old, new: result, difference: Some(tolerance.name()) })
    }
}

fn without_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

impl Shift {
    /// Indents a line as the file is; `None` if it cannot be moved out so far.
    fn apply(&self, line: &str) -> Option<String> {
        if line.trim().is_empty() {
            return Some(line.to_owned());
        }
        match self {
            Self::None => Some(line.to_owned()),
            Self::In(more) => Some(format!("{more}{line}")),
            Self::Out(more) => line.strip_prefix(more.as_str()).map(ToOwned::to_owned),
        }
    }
}

/// Names the place of a file that is most like the given text; `None` if none is.
fn nearest(text: &str, old: &str) -> Option<String> {
    let wanted: Vec<&str> = old.lines().map(str::trim).collect();
    let lines: Vec<&str> = text.lines().take(MAX_LINES).map(str::trim).collect();
    if lines.len().saturating_mul(wanted.len()) > MAX_COMPARISONS {
        return None;
    }
    let score = |window: &[&str]| {
        let pairs = window.iter().zip(&wanted).filter(|(line, _)| !line.is_empty());
        pairs.map(|(line, wanted)| likeness(line, wanted)).sum::<usize>()
    };
    let windows = lines.windows(wanted.len().max(1)).enumerate();
    let (score, at) = windows
        .map(|(at, window)| (score(window), at))
        .max_by_key(|(score, at)| (*score, usize::MAX - at))?;
    let most: usize = wanted.iter().map(|line| likeness(line, line)).sum();
    if score * 2 < most || most == 0 {
        return None;
    }
    let pairs = lines.iter().skip(at).zip(&wanted).zip(at + 1..);
    let ((line, wanted), number) = pairs.into_iter().find(|((line, wanted), _)| line != wanted)?;
    let [line, wanted] =
        [line, wanted].map(|line| line.chars().take(SHOWN_CHARS).collect::<String>());
    Some(format!("at the most similar place, line {number} is `{line}` and not `{wanted}`"))
}

/// Returns the number of words that two lines have in common.
fn likeness(line: &str, wanted: &str) -> usize {
    if line == wanted {
        return words(line).count();
    }
    let known: Vec<&str> = words(line).collect();
    words(wanted).filter(|word| known.contains(word)).count()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|sign: char| !sign.is_alphanumeric() && sign != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the text after the edit, and the difference; or the reason.
    fn edited(text: &str, old: &str, new: &str) -> Result<(String, Option<&'static str>), String> {
        let piece = find("f", text, old, new)?;
        assert_eq!(text.get(piece.at..piece.at + piece.old.len()), Some(piece.old));
        let rest = &text[piece.at + piece.old.len()..];
        Ok((format!("{}{}{rest}", &text[..piece.at], piece.new), piece.difference))
    }

    #[test]
    fn small_differences_are_forgiven_and_named() {
        let (ends, signs, indentation) = (
            Some("spaces or breaks at the ends of lines"),
            Some("typographic signs"),
            Some("indentation"),
        );
        for (text, old, new, result, difference) in [
            ("a\nb\n", "a\nb", "c", "c\n", None),
            ("a  \nb\t\nc\n", "a\nb\n", "a\nx\n", "a  \nx\nc\n", ends),
            ("a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n", "a\r\nx\r\ny\r\nc\r\n", ends),
            ("a \r\nb\r\n", "a\nb", "a\nx\ny", "a \r\nx\r\ny\r\n", ends),
            ("say(“hi”)\nx\n", "say(\"hi\")\nx\n", "say(\"hi\")\ny\n", "say(“hi”)\ny\n", signs),
            ("fn f() {\n    a;\n    b;\n}\n", "a;\n  b;", "x", "", None),
            (
                "fn f() {\n    a;\n      b;\n}\n",
                "a;\n  b;\n",
                "a;\n  c;\n\nd;\n",
                "fn f() {\n    a;\n      c;\n\n    d;\n}\n",
                indentation,
            ),
            (
                "  a\n  b\n",
                "    a\n    b",
                "    a\n    c\n      d",
                "  a\n  c\n    d\n",
                indentation,
            ),
            ("\ta\n\tb", "a\nb\n", "a\nc\n", "\ta\n\tc", indentation),
            ("a \nb", "a\nb", "a\nb\nc", "a \nb\nc", ends),
        ] {
            let found = edited(text, old, new);
            if result.is_empty() {
                let why = found.unwrap_err();
                assert!(why.contains("occurs 0 times"), "{why}");
                continue;
            }
            assert_eq!(found, Ok((result.to_owned(), difference)), "{text:?} {old:?}");
        }
    }

    #[test]
    fn what_is_not_clear_is_refused_with_the_place() {
        for (text, old, new, why) in [
            ("x\ny\nx\n", "x", "z", "occurs 2 times in f, at lines 1, 3; give more"),
            (
                "a \nb\na\t\nb\n",
                "a\nb",
                "z",
                "0 times in f, and several times apart from spaces or breaks at the ends of lines, at lines 1 and 3",
            ),
            (
                "  a\n  b\n",
                "    a\n    b",
                "    a\nc",
                "line 1, in indentation, and new_text cannot be indented",
            ),
            (
                "fn one(a: u8) {}\nfn two() {}\n",
                "fn one(b: u8) {}",
                "z",
                "at the most similar place, line 1 is `fn one(a: u8) {}` and not `fn one(b: u8) {}`",
            ),
            (
                "one two\nthree four\n",
                "one two\nthree five",
                "z",
                "line 2 is `three four` and not `three five`",
            ),
            ("one\n", "nothing like it", "z", "occurs 0 times in f; copy it exactly"),
            ("", "x", "z", "occurs 0 times in f; copy it exactly"),
            ("a\n", "\n\n\n", "z", "occurs 0 times in f; copy it exactly"),
        ] {
            let found = edited(text, old, new).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    proptest! {
        /// The result has the new lines with the indentation of the file, and everything around them as it was.
        #[test]
        fn nothing_but_the_piece_changes(
            before in "([a-c ]{0,4}\n){0,4}", lines in proptest::collection::vec("[x-z]{1,4}", 1..4),
            behind in "([a-c ]{0,4}\n){0,4}", deeper in "[ \t]{0,3}", ends in "[ \t]{0,2}", new in "([m-o]{1,3}\n){0,3}",
        ) {
            let there = lines.iter().map(|line| format!("{deeper}{line}{ends}\n")).collect::<Vec<_>>().concat();
            let old = lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
            let text = format!("{before}{there}{behind}");
            let (result, _) = edited(&text, &old, &new).unwrap();
            let shifted = new.lines().map(|line| format!("{deeper}{line}\n")).collect::<Vec<_>>().concat();
            let exact = deeper.is_empty() || result == format!("{before}{deeper}{new}{behind}");
            prop_assert!(
                result == format!("{before}{shifted}{behind}") || exact && ends.is_empty(),
                "{text:?} {old:?} {result:?}"
            );
        }
    }
}
