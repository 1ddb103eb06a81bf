//! The difference of two texts, as one range of lines that is replaced.

use serde::Serialize;

/// The replacement of a range of lines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct LineDiff {
    /// The index of the first replaced line, from 0.
    pub(crate) at: usize,
    /// The number of replaced lines.
    pub(crate) gone: usize,
    /// The new lines.
    pub(crate) lines: Vec<String>,
}

impl LineDiff {
    /// The difference from `before` to `after`; `None` if they are equal.
    pub(crate) fn between(before: &[String], after: &[String]) -> Option<Self> {
        let alike = |pairs: &mut dyn Iterator<Item = (&String, &String)>| {
            pairs.take_while(|(a, b)| a == b).count()
        };
        let at = alike(&mut before.iter().zip(after));
        let [before, after] = [before, after].map(|lines| lines.get(at..).unwrap_or_default());
        let kept = alike(&mut before.iter().rev().zip(after.iter().rev()));
        let gone = before.len() - kept;
        let lines = after.get(..after.len() - kept).unwrap_or_default().to_vec();
        (gone > 0 || !lines.is_empty()).then_some(Self { at, gone, lines })
    }

    /// Applies the difference to `lines`.
    pub(crate) fn apply(&self, lines: &mut Vec<String>) {
        let at = self.at.min(lines.len());
        let end = self.at.saturating_add(self.gone).min(lines.len());
        lines.splice(at..end, self.lines.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_the_changed_range_is_replaced() {
        let diff = LineDiff::between(&lines("a\nb\nc\nd"), &lines("a\nx\ny\nd"));
        let wanted = LineDiff { at: 1, gone: 2, lines: lines("x\ny") };
        assert_eq!(diff, Some(wanted));
        assert_eq!(LineDiff::between(&lines("a\nb"), &lines("a\nb")), None);
        let removed = LineDiff { at: 1, gone: 1, lines: Vec::new() };
        assert_eq!(LineDiff::between(&lines("a\na"), &lines("a")), Some(removed));
    }

    proptest! {
        #[test]
        fn applying_a_difference_gives_the_new_text(
            before in proptest::collection::vec("[ab]", 0..9),
            after in proptest::collection::vec("[ab]", 0..9),
        ) {
            let mut text = before.clone();
            if let Some(diff) = LineDiff::between(&before, &after) {
                diff.apply(&mut text);
            }
            prop_assert_eq!(text, after);
        }
    }
}
