//! What has changed in a text, line by line: one stretch of lines that became another.

use serde::Serialize;

/// Lines that stand where others stood.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct LineDiff {
    /// The first line that is another one, counted from 0.
    pub(crate) at: usize,
    /// How many lines stood there.
    pub(crate) gone: usize,
    /// What stands there now.
    pub(crate) lines: Vec<String>,
}

impl LineDiff {
    /// What makes `after` of `before`; `None` when they are the same.
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

    /// Changes `lines` so.
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
    fn only_what_is_another_line_is_told() {
        let splice = LineDiff::between(&lines("a\nb\nc\nd"), &lines("a\nx\ny\nd"));
        let wanted = LineDiff { at: 1, gone: 2, lines: lines("x\ny") };
        assert_eq!(splice, Some(wanted));
        assert_eq!(LineDiff::between(&lines("a\nb"), &lines("a\nb")), None);
        let removed = LineDiff { at: 1, gone: 1, lines: Vec::new() };
        assert_eq!(LineDiff::between(&lines("a\na"), &lines("a")), Some(removed));
    }

    proptest! {
        #[test]
        fn who_applies_it_has_the_new_text(
            before in proptest::collection::vec("[ab]", 0..9),
            after in proptest::collection::vec("[ab]", 0..9),
        ) {
            let mut text = before.clone();
            if let Some(splice) = LineDiff::between(&before, &after) {
                splice.apply(&mut text);
            }
            prop_assert_eq!(text, after);
        }
    }
}
