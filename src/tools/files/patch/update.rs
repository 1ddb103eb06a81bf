//! Applies the chunks of a patch to the text of a file, as the reference tool does.

use super::{Chunk, NewLine};
use crate::tools::files::piece::plain;
use std::borrow::Cow;
use std::ops::Range;

/// A text after the chunks of a patch.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools::files) struct Updated {
    pub(in crate::tools::files) text: String,
    /// The replaced lines of the old text, counted from 0, each with the number of lines in their place.
    pub(in crate::tools::files) pieces: Vec<(Range<usize>, usize)>,
}

/// Returns the text of a file after its chunks. Lines that a patch brings end as those of the file. Fails with the piece that
/// is not in the file.
pub(in crate::tools::files) fn updated(text: &str, chunks: &[Chunk]) -> Result<Updated, String> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // The last line break ends a line, and begins none.
    if lines.last() == Some(&"") {
        lines.pop();
    }
    if chunks.is_empty() {
        return Ok(Updated { text: text.to_owned(), pieces: Vec::new() });
    }
    let pieces = pieces(&lines, chunks)?;
    let has_returns = text.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
    let mut result: Vec<Cow<'_, str>> = Vec::new();
    let mut next = 0;
    for (range, new) in &pieces {
        let kept = lines.get(next..range.start).unwrap_or_default();
        result.extend(kept.iter().map(|line| Cow::Borrowed(*line)));
        result.extend(new.iter().map(|line| {
            let lacks_return = has_returns && !line.ends_with('\r');
            if lacks_return { Cow::Owned(format!("{line}\r")) } else { Cow::Borrowed(*line) }
        }));
        next = range.end;
    }
    let rest = lines.get(next..).unwrap_or_default();
    result.extend(rest.iter().map(|line| Cow::Borrowed(*line)));
    if let Some(last) = result.last_mut() {
        if has_returns && !last.ends_with('\r') {
            last.to_mut().push('\r');
        }
        result.push("".into());
    }
    let pieces = pieces.into_iter().map(|(range, new)| (range, new.len())).collect();
    Ok(Updated { text: result.join("\n"), pieces })
}

/// Lines of a file, counted from 0, and the lines in their place.
type LinePiece<'a> = (Range<usize>, Vec<&'a str>);

/// Finds the lines that the chunks replace, in the order of the file. Lines that a chunk keeps are in no piece.
fn pieces<'a>(lines: &[&str], chunks: &'a [Chunk]) -> Result<Vec<LinePiece<'a>>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    for chunk in chunks {
        if let Some(anchor) = &chunk.anchor {
            let anchor_at = find(lines, std::slice::from_ref(anchor), at, false);
            at = 1 + anchor_at
                .ok_or_else(|| format!("there is no line `{anchor}` after line {at}"))?;
        }
        if chunk.old.is_empty() {
            found.extend(chunk.pieces(lines.len(), &chunk.old, &chunk.new));
            continue;
        }
        let (mut old, mut new) = (chunk.old.as_slice(), chunk.new.as_slice());
        let mut begin = find(lines, old, at, chunk.is_end);
        // An empty last line stands for the end of the file.
        if let (None, Some((last, rest))) = (begin, old.split_last())
            && last.is_empty()
        {
            let is_of_end = |line: &NewLine| match line {
                NewLine::Kept(at) => *at == rest.len(),
                NewLine::Added(line) => line.is_empty(),
            };
            let shorter = new.split_last().filter(|(last, _)| is_of_end(last));
            (old, new) = (rest, shorter.map_or(new, |(_, rest)| rest));
            begin = find(lines, old, at, chunk.is_end);
        }
        let begin = begin.ok_or_else(|| {
            format!("these lines are not in the file after line {at}:\n{}", chunk.old.join("\n"))
        })?;
        found.extend(chunk.pieces(begin, old, new));
        at = begin + old.len();
    }
    found.sort_by_key(|(range, _)| range.start);
    Ok(found)
}

impl Chunk {
    /// Returns what changes between the lines that the chunk keeps, if its `old` lines begin at a line of the file.
    fn pieces<'a>(
        &'a self,
        begin: usize,
        old: &'a [String],
        new: &'a [NewLine],
    ) -> Vec<LinePiece<'a>> {
        let mut pieces = Vec::new();
        let (mut next, mut added) = (0, Vec::new());
        for line in new {
            match line {
                NewLine::Added(line) => added.push(line.as_str()),
                NewLine::Kept(at) if *at < old.len() => {
                    pieces.push((begin + next..begin + at, std::mem::take(&mut added)));
                    next = at + 1;
                }
                // The line stood for the end of the file.
                NewLine::Kept(at) => added.extend(self.old.get(*at).map(String::as_str)),
            }
        }
        pieces.push((begin + next..begin + old.len(), added));
        pieces.retain(|(range, added)| !range.is_empty() || !added.is_empty());
        pieces
    }
}

/// Finds lines in a file from a line on: the same, else the same apart from spaces at their ends, else apart from spaces
/// around them, else apart from typographic signs.
fn find(lines: &[&str], wanted: &[String], from: usize, is_end: bool) -> Option<usize> {
    if wanted.is_empty() {
        return Some(from);
    }
    let last = lines.len().checked_sub(wanted.len())?;
    let from = if is_end { last.max(from) } else { from };
    let found = |lines: &[Cow<'_, str>], wanted: &[Cow<'_, str>]| {
        (from..=last).find(|at| lines.get(*at..).is_some_and(|rest| rest.starts_with(wanted)))
    };
    let forms: [fn(&str) -> Cow<'_, str>; 4] = [
        |line| line.into(),
        |line| line.trim_end().into(),
        |line| line.trim().into(),
        |line| plain(line.trim()),
    ];
    forms.iter().find_map(|form| {
        let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| form(line)).collect();
        let wanted: Vec<Cow<'_, str>> = wanted.iter().map(|line| form(line)).collect();
        found(&lines, &wanted)
    })
}
