//! The search within a pane: a text without regard to case, its places in a row, and the next row with it.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use std::ops::Range;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pattern {
    text: String,
    folded: Vec<char>,
}

impl Pattern {
    pub(super) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), folded: text.chars().flat_map(char::to_lowercase).collect() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_in(&self, text: &str) -> bool {
        !self.ranges(text).is_empty()
    }

    /// Returns the matches in the text, as ranges of bytes; an empty pattern has none.
    pub(super) fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        // One character may have several in lower case.
        let folded: Vec<(char, Range<usize>)> = text
            .char_indices()
            .flat_map(|(at, c)| c.to_lowercase().map(move |low| (low, at..at + c.len_utf8())))
            .collect();
        let (mut found, mut rest) = (Vec::new(), folded.as_slice());
        let length = self.folded.len();
        while let Some(window) = rest.get(..length).filter(|_| length > 0) {
            let is_match = window.iter().map(|(c, _)| c).eq(&self.folded);
            if let (true, Some((_, first)), Some((_, last))) =
                (is_match, window.first(), window.last())
            {
                found.push(first.start..last.end);
            }
            rest = rest.get(if is_match { length } else { 1 }..).unwrap_or_default();
        }
        found
    }

    /// Styles the matches in a row.
    pub(super) fn highlight(&self, line: Line<'static>, style: Style) -> Line<'static> {
        let text: String = line.spans.iter().map(|span| &*span.content).collect();
        let matches = self.ranges(&text);
        if matches.is_empty() {
            return line;
        }
        let (mut at, mut spans) = (0, Vec::new());
        for span in &line.spans {
            let end = at + span.content.len();
            let inside = |range: &Range<usize>| range.start.max(at)..range.end.min(end);
            let mut begin = at;
            for found in matches.iter().map(inside).filter(|it| it.start < it.end) {
                let piece = |range: Range<usize>| text.get(range).unwrap_or_default().to_owned();
                spans.push(Span::styled(piece(begin..found.start), span.style));
                spans.push(Span::styled(piece(found.clone()), span.style.patch(style)));
                begin = found.end;
            }
            spans.push(Span::styled(
                text.get(begin..end).unwrap_or_default().to_owned(),
                span.style,
            ));
            at = end;
        }
        spans.retain(|span| !span.content.is_empty());
        Line { spans, ..line }
    }
}

/// Returns the index in the sorted `found` of the next row after `from`, or of the previous one before it, around the
/// end if there is none; `None` if nothing is found.
pub(super) fn next(found: &[usize], from: usize, is_forward: bool) -> Option<usize> {
    let last = found.len().checked_sub(1)?;
    Some(if is_forward {
        found.iter().position(|at| *at > from).unwrap_or(0)
    } else {
        found.iter().rposition(|at| *at < from).unwrap_or(last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratatui::style::Modifier;

    #[test]
    fn matches_are_found_without_regard_to_case() {
        assert_eq!(Pattern::of("AB").ranges("xabABa"), [1..3, 3..5]);
        assert_eq!(Pattern::of("é").ranges("aÉbé"), [1..3, 4..6]);
        assert!(Pattern::of("").ranges("abc").is_empty());
        assert!(!Pattern::of("abc").is_in("ab"));
    }

    #[test]
    fn a_match_across_two_styles_is_highlighted_in_both() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let under = Style::new().add_modifier(Modifier::UNDERLINED);
        let line = Line::from(vec![Span::raw("al"), Span::styled("ice →", bold)]);
        let made = Pattern::of("lic").highlight(line, under);
        let parts = [("a", Style::new()), ("l", under), ("ic", bold.patch(under)), ("e →", bold)];
        let spans = parts.map(|(text, style)| Span::styled(text, style));
        assert_eq!(made.spans, spans);
    }

    #[test]
    fn the_next_row_is_found_around_the_end() {
        let found = [2, 5, 9];
        for (from, is_forward, wanted) in
            [(0, true, 0), (2, true, 1), (9, true, 0), (9, false, 1), (2, false, 2)]
        {
            assert_eq!(next(&found, from, is_forward), Some(wanted), "{from} {is_forward}");
        }
        assert_eq!(next(&[], 3, true), None);
    }

    proptest! {
        #[test]
        fn highlighting_changes_no_text(parts in proptest::collection::vec(any::<String>(), 0..4),
            wanted in "[a-cé]{0,2}") {
            let line = Line::from(parts.iter().cloned().map(Span::raw).collect::<Vec<_>>());
            let text = |line: &Line<'_>| line.spans.iter().map(|it| &*it.content).collect::<String>();
            let before = text(&line);
            let made = Pattern::of(&wanted).highlight(line, Style::new());
            prop_assert_eq!(text(&made), before);
        }
    }
}
