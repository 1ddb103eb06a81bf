//! The nearest of several words to a mistyped one, for advice.

/// Returns the known word that was probably meant: at most one mistake in three characters, ignoring case.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed: Vec<char> = given.to_lowercase().chars().collect();
    let most = (typed.len() / 3).max(1);
    let distance = |word: &str| mistakes(&typed, &word.to_lowercase().chars().collect::<Vec<_>>());
    let near = known.into_iter().map(|word| (distance(word), word));
    near.filter(|(mistakes, _)| *mistakes <= most)
        .min_by_key(|(mistakes, word)| (*mistakes, word.chars().count().abs_diff(typed.len())))
        .map(|it| it.1)
}

/// Counts the insertions, deletions, replacements and swaps of neighbours between two words.
fn mistakes(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let mut before_last = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = at(&last, j) + usize::from(a != b);
            let mut least = replaced.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let is_swap =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if is_swap {
                least = least.min(at(&before_last, j - 1) + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_its_neighbour_and_another_word_none() {
        let names = ["alice", "bob", "carol", "message"];
        for (given, found) in [
            ("alise", Some("alice")),
            ("Alice", Some("alice")),
            ("aliec", Some("alice")),
            ("bo", Some("bob")),
            ("mesage", Some("message")),
            ("zoe", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), found, "{given}");
        }
        // Two swapped letters are likelier than a letter too many.
        assert_eq!(nearest("modle", ["mode", "model"]), Some("model"));
    }
}
