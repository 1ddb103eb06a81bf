//! Path patterns: `*` matches within a name, `**` across folders, `?` one character; `\` escapes the next
//! character.

/// Whether the pattern matches the whole path.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<char> = pattern.trim().chars().collect();
    let path: Vec<char> = path.chars().collect();
    fits(&pattern, &path)
}

/// Returns the pattern that matches only this path.
pub(super) fn literal(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        if matches!(c, '*' | '?' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

fn fits(pattern: &[char], path: &[char]) -> bool {
    match pattern {
        [] => path.is_empty(),
        // `**/x` matches `x` as well.
        ['*', '*', '/', rest @ ..] => {
            fits(rest, path) || tails(path, |c| c == '/').any(|tail| fits(rest, tail))
        }
        ['*', '*', rest @ ..] => {
            (0..=path.len()).any(|from| path.get(from..).is_some_and(|tail| fits(rest, tail)))
        }
        ['*', rest @ ..] => {
            let name = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            (0..=name).any(|from| path.get(from..).is_some_and(|tail| fits(rest, tail)))
        }
        ['?', rest @ ..] => {
            matches!(path, [c, tail @ ..] if *c != '/' && fits(rest, tail))
        }
        ['\\', c, rest @ ..] | [c, rest @ ..] => {
            matches!(path, [first, tail @ ..] if first == c && fits(rest, tail))
        }
    }
}

/// Returns the rest behind each character of that kind.
fn tails(path: &[char], is: impl Fn(char) -> bool) -> impl Iterator<Item = &[char]> {
    let behind = path.iter().enumerate().filter(move |(_, c)| is(**c)).map(|(at, _)| at + 1);
    behind.filter_map(|from| path.get(from..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, path, fit) in [
            ("src/**", "src/a", true),
            ("src/**", "src/a/b.rs", true),
            ("src/**", "src", false),
            ("src/**", "srcs/a", false),
            ("src/*", "src/a/b", false),
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "src/b/a.rs", true),
            ("**", "anything/at all", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("schema.sql", "schema.sql", true),
            ("schema.sql", "schema_sql", false),
            ("src/**", "../src/a", false),
        ] {
            assert_eq!(matches(pattern, path), fit, "{pattern} {path}");
        }
    }

    #[test]
    fn a_literal_matches_only_itself() {
        for path in ["a*b", "what?", r"back\slash", "plain/path"] {
            assert!(matches(&literal(path), path), "{path}");
        }
        assert!(!matches(&literal("a*b"), "axb"));
    }
}
