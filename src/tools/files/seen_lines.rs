//! The lines of a file that an agent has seen, as ranges of line numbers from 1.

/// Sorted ranges of first and last line, none of which touches another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SeenLines(Vec<(usize, usize)>);

/// Returns the number of lines; text after the last line break is a line, too.
pub(super) fn count_lines(bytes: &[u8]) -> usize {
    line_breaks(bytes) + usize::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

fn line_breaks(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}

impl SeenLines {
    /// Creates the lines of a whole file with `total` lines.
    pub(super) fn whole(total: usize) -> Self {
        Self::default().and(1, total)
    }

    /// Adds the lines from `first` to `last`, if there are any.
    pub(super) fn and(self, first: usize, last: usize) -> Self {
        let Self(mut ranges) = self;
        ranges.push((first, last));
        ranges.into_iter().collect()
    }

    /// Returns the first range of lines between `first` and `last` that is missing here.
    pub(super) fn gap(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        let mut next = first;
        for (from, to) in &self.0 {
            if *from > next {
                break;
            }
            next = next.max(to.saturating_add(1));
        }
        let until = self.0.iter().map(|(from, _)| *from).find(|from| *from > next);
        let end = until.map_or(last, |until| last.min(until - 1));
        (next <= last).then_some((next, end))
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().copied()
    }

    /// Returns the seen lines after the replacement of a piece whose lines were all seen.
    pub(super) fn after(&self, edit: &Edit<'_>) -> Self {
        let (first, last) = edit.lines();
        // Added before subtracted, so that no line number is negative.
        let moved = |line: usize| (line + edit.added()).saturating_sub(edit.removed());
        let before = self.0.iter().map(|(from, to)| (*from, (*to).min(first - 1)));
        let behind = self.0.iter().map(|(from, to)| (moved((*from).max(last + 1)), moved(*to)));
        let end = if edit.is_at_end() { usize::MAX } else { moved(last) };
        let all: Self = before.chain(behind).chain([(first, end)]).collect();
        all.within(edit.total_after())
    }

    /// Returns those of the lines that a file with `total` lines has.
    fn within(self, total: usize) -> Self {
        self.0.into_iter().map(|(from, to)| (from, to.min(total))).collect()
    }
}

impl FromIterator<(usize, usize)> for SeenLines {
    /// Collects ranges in any order; a range without lines is left out.
    fn from_iter<T: IntoIterator<Item = (usize, usize)>>(ranges: T) -> Self {
        let mut ranges: Vec<_> =
            ranges.into_iter().filter(|(from, to)| 1 <= *from && from <= to).collect();
        ranges.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (from, to) in ranges {
            match joined.last_mut() {
                Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
                Some(_) | None => joined.push((from, to)),
            }
        }
        Self(joined)
    }
}

/// The replacement of the piece of `text` from the byte `at` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edit<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
}

impl Edit<'_> {
    /// Returns the first and the last line of the old piece.
    pub(super) fn lines(&self) -> (usize, usize) {
        let before = self.text.as_bytes().get(..self.at).unwrap_or_default();
        let first = line_breaks(before) + 1;
        (first, first + count_lines(self.old.as_bytes()).saturating_sub(1))
    }

    pub(super) fn result(&self) -> String {
        let (before, rest) = self.text.split_at(self.at);
        let behind = rest.get(self.old.len()..).unwrap_or_default();
        [before, self.new, behind].concat()
    }

    fn removed(&self) -> usize {
        line_breaks(self.old.as_bytes())
    }

    fn added(&self) -> usize {
        line_breaks(self.new.as_bytes())
    }

    fn is_at_end(&self) -> bool {
        self.at + self.old.len() == self.text.len()
    }

    fn total_after(&self) -> usize {
        count_lines(self.result().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(ranges: &[(usize, usize)]) -> SeenLines {
        ranges.iter().copied().collect()
    }

    #[test]
    fn ranges_are_joined_and_gaps_are_found() {
        let seen = lines(&[(8, 9), (1, 3), (4, 4), (12, 12), (7, 8), (0, 5), (6, 5)]);
        assert_eq!(seen, lines(&[(1, 4), (7, 9), (12, 12)]));
        assert_eq!(seen.gap(1, 4), None);
        assert_eq!(seen.gap(2, 8), Some((5, 6)));
        assert_eq!(seen.gap(1, 20), Some((5, 6)));
        assert_eq!(seen.gap(9, 11), Some((10, 11)));
        assert_eq!(seen.gap(12, 20), Some((13, 20)));
        assert_eq!(seen.gap(5, 6), Some((5, 6)));
        assert_eq!(seen.gap(1, 0), None, "an empty file");
        assert_eq!(SeenLines::whole(0), lines(&[]));
    }

    /// Returns the lines of a text of which every byte was seen.
    fn seen_whole(text: &str, seen: &[bool]) -> SeenLines {
        let mut at = 0;
        let mut ranges = Vec::new();
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            if seen[at..at + line.len()].iter().all(|seen| *seen) {
                ranges.push((number, number));
            }
            at += line.len();
        }
        ranges.into_iter().collect()
    }

    proptest! {
        #[test]
        fn no_line_counts_as_seen_of_which_a_byte_was_not(
            text in "[ab\n]{1,40}", new in "[xy\n]{0,6}", known in proptest::collection::vec(any::<bool>(), 40),
            at in 0..40usize, length in 1..12usize,
        ) {
            let at = at % text.len();
            let old = &text[at..(at + length).min(text.len())];
            let edit = Edit { text: &text, at, old, new: &new };
            let (first, last) = edit.lines();
            let mut bytes = Vec::new();
            for (line, known) in text.split_inclusive('\n').zip(known).enumerate().map(|(n, (line, known))| {
                (line, known || (first..=last).contains(&(n + 1)))
            }) {
                bytes.extend(std::iter::repeat_n(known, line.len()));
            }
            let before = seen_whole(&text, &bytes);
            prop_assert_eq!(before.gap(first, last), None);
            let all_seen = before == SeenLines::whole(count_lines(text.as_bytes()));
            bytes.splice(at..at + old.len(), std::iter::repeat_n(true, new.len()));
            let result = edit.result();
            let after = before.after(&edit);
            let truth = seen_whole(&result, &bytes);
            for (from, to) in after.ranges() {
                prop_assert_eq!(truth.gap(from, to), None, "{:?} {:?}", &after, &truth);
            }
            if all_seen {
                prop_assert_eq!(after, SeenLines::whole(count_lines(result.as_bytes())));
            }
        }
    }
}
