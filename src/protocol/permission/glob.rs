//! Path patterns: `*` matches within a name, `**` across folders, `?` one character; `\` escapes the next character.

pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<char> = pattern.trim().chars().collect();
    let path: Vec<char> = path.chars().collect();
    fits(&pattern, &path)
}

/// Returns the pattern that matches only this path.
pub(super) fn literal(path: &str) -> String {
    let escape = |c| matches!(c, '*' | '?' | '\\').then_some('\\');
    path.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect()
}

fn fits(pattern: &[char], path: &[char]) -> bool {
    match pattern {
        [] => path.is_empty(),
        // `**/x` matches `x` as well.
        ['*', '*', '/', rest @ ..] => {
            let below = |tail: &[char]| matches!(tail, ['/', tail @ ..] if fits(rest, tail));
            fits(rest, path) || tails(path).any(below)
        }
        ['*', '*', rest @ ..] => tails(path).any(|tail| fits(rest, tail)),
        ['*', rest @ ..] => {
            let name = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            tails(path).take(name + 1).any(|tail| fits(rest, tail))
        }
        ['?', rest @ ..] => matches!(path, [c, tail @ ..] if *c != '/' && fits(rest, tail)),
        ['\\', c, rest @ ..] | [c, rest @ ..] => {
            matches!(path, [first, tail @ ..] if first == c && fits(rest, tail))
        }
    }
}

/// Returns all suffixes of the path, from the whole path to the empty one.
fn tails(path: &[char]) -> impl Iterator<Item = &[char]> {
    (0..=path.len()).filter_map(|from| path.get(from..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths_and_literals_only_themselves() {
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("src/**", &["src/a", "src/a/b.rs"], &["src", "srcs/a", "../src/a"]),
            ("src/*", &["src/a"], &["src/a/b"]),
            ("*.rs", &["a.rs"], &["src/a.rs"]),
            ("**/*.rs", &["a.rs", "src/b/a.rs"], &["a.rsx"]),
            ("**", &["anything/at all"], &[]),
            ("a?c", &["abc"], &["a/c"]),
            ("schema.sql", &["schema.sql"], &["schema_sql"]),
        ];
        for (pattern, fitting, others) in cases {
            assert!(fitting.iter().all(|path| matches(pattern, path)), "{pattern}");
            assert!(!others.iter().any(|path| matches(pattern, path)), "{pattern}");
        }
        // A literal matches only itself.
        for path in ["a*b", "what?", r"back\slash", "plain/path"] {
            assert!(matches(&literal(path), path), "{path}");
        }
        assert!(!matches(&literal("a*b"), "axb"));
    }
}
