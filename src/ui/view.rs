//! The common parts of views: colours, width, local time, blocks of untrusted text.

use super::sanitize::{sanitize, wrap};
use super::style::Palette;
use crate::os::formatted_time;
use crate::wire::WallTime;
use jiff::tz::TimeZone;

#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) palette: Palette,
    /// The width in columns; `None` does not wrap lines, for pipes.
    pub(crate) width: Option<usize>,
    pub(super) zone: TimeZone,
}

impl View {
    /// Returns a view in the machine's time zone.
    pub(crate) fn new(palette: Palette, width: Option<usize>) -> Self {
        Self { palette, width, zone: TimeZone::system() }
    }

    /// Returns the local time of day; dashes without a time, or for one that no calendar holds.
    pub(super) fn clock(&self, at: Option<WallTime>) -> String {
        let text = at.and_then(|at| formatted_time(at, self.zone.clone(), "%H:%M:%S"));
        text.unwrap_or("--:--:--".into())
    }

    /// Renders untrusted text as indented rows. After `most` rows, a last row shows the number of omitted lines.
    pub(super) fn block(&self, text: &str, indent: &str, most: Option<usize>) -> Vec<String> {
        let text = sanitize(text);
        let mut rows: Vec<String> = Vec::new();
        let room = self.width.map(|width| width.saturating_sub(indent.len()));
        let mut hidden = 0;
        for line in text.trim_end().split('\n') {
            if most.is_some_and(|most| rows.len() >= most) {
                hidden += 1;
            } else {
                rows.extend(wrap(line.trim_end(), room));
            }
        }
        if hidden > 0 {
            let lines = if hidden == 1 { "line" } else { "lines" };
            rows.push(format!("… {hidden} more {lines}"));
        }
        let indented = |row: String| if row.is_empty() { row } else { format!("{indent}{row}") };
        rows.into_iter().map(indented).collect()
    }

    /// Returns a view for tests: without colours, in UTC.
    #[cfg(test)]
    pub(super) fn fixed(width: Option<usize>) -> Self {
        Self { palette: Palette::plain(), width, zone: TimeZone::UTC }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_out_of_range_is_shown_as_dashes() {
        let view = View::fixed(None);
        assert_eq!(view.clock(Some(1_763_690_000.125.into())), "01:53:20");
        for no_time in [f64::NAN, f64::INFINITY, 1e300, -1e18] {
            assert_eq!(view.clock(Some(no_time.into())), "--:--:--");
        }
    }

    #[test]
    fn a_block_is_wrapped_indented_and_truncated() {
        let view = View::fixed(Some(10));
        let rows = view.block("one two three\n\nfour\nfive\n\n", "  ", Some(3));
        assert_eq!(rows, ["  one two", "  three", "", "  … 2 more lines"]);
        let view = View::fixed(None);
        assert_eq!(view.block("one two three", "", None), ["one two three"]);
    }

    proptest! {
        #[test]
        fn any_number_is_a_time_or_dashes(at: f64) {
            prop_assert_eq!(View::fixed(None).clock(Some(at.into())).len(), 8);
        }
    }
}
