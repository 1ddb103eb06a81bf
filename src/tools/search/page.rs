//! A page of the results of a search.

use std::ops::Range;

/// The results that a page shows, and the note about the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The shown results, counted from 0.
    pub(super) shown: Range<usize>,
    total: usize,
    /// Whether the search has ended before all results were found.
    is_cut: bool,
}

impl Page {
    /// Returns the page that begins with the result `offset`, counted from 1, of at most `size` results.
    pub(super) fn new(offset: Option<usize>, size: usize, total: usize, is_cut: bool) -> Self {
        let begin = offset.unwrap_or(1).saturating_sub(1).min(total);
        Self { shown: begin..begin.saturating_add(size).min(total), total, is_cut }
    }

    /// Ends the page before this result, which has no room.
    pub(super) fn end_before(&mut self, result: usize) {
        self.shown.end = result;
    }

    /// Returns the note below the results; `None` if all are shown. `what` names them in the plural.
    pub(super) fn note(&self, what: &str) -> Option<String> {
        let Self { shown, total, is_cut } = self;
        let at_least = if *is_cut { "more than " } else { "" };
        if shown.is_empty() {
            return (*total > 0)
                .then(|| format!("[there are {at_least}{total} {what}; give a smaller offset]"));
        }
        let whole = shown.start == 0 && shown.end == *total;
        if whole && !is_cut {
            return None;
        }
        let next = match shown.end {
            end if end < *total => format!("; offset {} shows more", end + 1),
            _ if *is_cut => "; the search ended there: search for less".into(),
            _ => String::new(),
        };
        let (first, last) = (shown.start + 1, shown.end);
        Some(format!("[{what} {first} to {last} of {at_least}{total}{next}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_is_not_shown() {
        let note =
            |offset, size, total, is_cut| Page::new(offset, size, total, is_cut).note("files");
        assert_eq!(note(None, 10, 0, false), None);
        assert_eq!(note(None, 10, 10, false), None);
        let first = "[files 1 to 10 of 11; offset 11 shows more]";
        assert_eq!(note(None, 10, 11, false).as_deref(), Some(first));
        assert_eq!(note(Some(11), 10, 11, false).as_deref(), Some("[files 11 to 11 of 11]"));
        let beyond = "[there are 11 files; give a smaller offset]";
        assert_eq!(note(Some(12), 10, 11, false).as_deref(), Some(beyond));
        let cut = "[files 1 to 10 of more than 10; the search ended there: search for less]";
        assert_eq!(note(Some(1), 10, 10, true).as_deref(), Some(cut));
        assert_eq!(
            note(Some(usize::MAX), usize::MAX, 3, false).as_deref(),
            Some("[there are 3 files; give a smaller offset]")
        );
    }
}
