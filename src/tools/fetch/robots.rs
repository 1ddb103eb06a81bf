//! The rules of a host for programs that read its pages: `robots.txt`, as RFC 9309 describes it.
//!
//! No crate does this for files of strangers: one panics at long lines, another brings a compiler of regular
//! expressions, which is larger than all else of this tool. Here the time grows with the file and the address alone.

use std::fmt::Write as _;

/// The name of this program in these files, as it is in the header `User-Agent`.
const OWN_NAME: &str = "agent-team";

/// The rules of one host for this program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Robots {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    allows: bool,
    /// A path in normal form, in which `*` is any text; `$` at its end is the end of the path.
    pattern: String,
}

/// A line of a file.
enum Line<'a> {
    Agent(&'a str),
    Rule { allows: bool, pattern: &'a str },
}

impl Robots {
    pub(super) fn parse(text: &str) -> Self {
        let (mut own, mut common) = (Vec::new(), Vec::new());
        let (mut is_named, mut is_for_own, mut is_for_all) = (false, false, false);
        let mut is_list_of_agents = false;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for line in text.split(['\n', '\r']).filter_map(line_of) {
            match line {
                Line::Agent(name) => {
                    if !is_list_of_agents {
                        (is_for_own, is_for_all) = (false, false);
                    }
                    is_list_of_agents = true;
                    let is_part = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '-';
                    let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
                    let is_own =
                        name.get(..end).is_some_and(|it| it.eq_ignore_ascii_case(OWN_NAME));
                    is_named |= is_own;
                    is_for_own |= is_own;
                    is_for_all |= name.starts_with('*');
                }
                Line::Rule { allows, pattern } => {
                    is_list_of_agents = false;
                    if pattern.is_empty() {
                        continue;
                    }
                    let rule = Rule { allows, pattern: normal(pattern) };
                    if is_for_own {
                        own.push(rule.clone());
                    }
                    if is_for_all {
                        common.push(rule);
                    }
                }
            }
        }
        Self { rules: if is_named { own } else { common } }
    }

    /// Whether this program may read a path, with its query. The longest rule counts; of equal ones that which allows.
    pub(super) fn allows(&self, path: &str) -> bool {
        let path = normal(path);
        if path == "/robots.txt" {
            return true;
        }
        let matching = self.rules.iter().filter(|rule| matches(&rule.pattern, &path));
        let strongest = matching.max_by_key(|rule| (rule.pattern.len(), rule.allows));
        strongest.is_none_or(|rule| rule.allows)
    }
}

/// Reads a line; `None` for one that means nothing here.
fn line_of(line: &str) -> Option<Line<'_>> {
    let line = line.split('#').next().unwrap_or_default();
    let (key, value) = line.split_once(':')?;
    let (key, value) = (key.trim(), value.trim());
    let is = |name: &str| key.eq_ignore_ascii_case(name);
    if is("user-agent") {
        return Some(Line::Agent(value));
    }
    let allows = is("allow");
    (allows || is("disallow")).then_some(Line::Rule { allows, pattern: value })
}

/// Returns a path as it is compared: with `%XX` for exactly the characters that need it.
fn normal(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        rest = if escaped.is_some() { rest.get(3..).unwrap_or_default() } else { after };
        let meant = escaped.unwrap_or(*byte);
        let is_unreserved = meant.is_ascii_alphanumeric() || b"-._~".contains(&meant);
        // A sign that escapes nothing stays so, whatever comes after it.
        let is_plain = escaped.is_none() && meant.is_ascii_graphic() && meant != b'%';
        if is_unreserved || is_plain {
            normal.push(char::from(meant));
        } else {
            let _infallible = write!(normal, "%{meant:02X}");
        }
    }
    normal
}

/// Returns the value of a hexadecimal digit.
fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Whether a pattern matches the beginning of a path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return !is_whole || rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    if is_whole { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_rule_of_the_own_group_counts() {
        let file = "\u{feff}User-agent: other\nDisallow: /\n\n\
                    User-Agent: one # a comment\nUSER-AGENT: Agent-Team/9.1 (x)\nCrawl-delay: 1\n\
                    Disallow: /private\nAllow: /private/open\rDisallow: /*.pdf$\r\n\
                    Disallow: /a*b*c\nDisallow:\nAllow: /same\nDisallow: /same\nSitemap: https://x/\n\
                    User-agent: *\nDisallow: /\n\
                    user-agent: agent-team\nDisallow: /late\n";
        let robots = Robots::parse(file);
        for (path, allows) in [
            ("/", true),
            ("/private", false),
            ("/private/x?y=1", false),
            ("/%70rivate", false),
            ("/private/open/x", true),
            ("/a.pdf", false),
            ("/a.pdf?page=1", true),
            ("/a1b2c3", false),
            ("/acb", true),
            ("/same", true),
            ("/late/1", false),
            ("/robots.txt", true),
        ] {
            assert_eq!(robots.allows(path), allows, "{path}");
        }
    }

    #[test]
    fn without_an_own_group_that_for_all_counts_and_without_any_nothing_is_forbidden() {
        let all = Robots::parse(
            "User-agent: agent-teams\nAllow: /\nUser-agent: *\nDisallow: /x y/\u{e9}\n",
        );
        assert!(!all.allows("/x%20y/%c3%a9") && all.allows("/x"));
        for nothing in ["", "Disallow: /", "<html>User-agent: *</html>", "User-agent: *\nDisallow:"]
        {
            assert!(Robots::parse(nothing).allows("/x"), "{nothing}");
        }
        assert!(!Robots::parse("User-agent:*\nDisallow:/").allows("/x?y"));
        assert!(Robots::parse("User-agent:*\nDisallow:/").allows("/robots.txt"));
    }

    #[test]
    fn a_percent_sign_that_escapes_nothing_is_one() {
        assert_eq!(normal("/%a%30%"), "/%25a0%25");
        assert_eq!(normal("/%25a0%25"), "/%25a0%25");
    }

    #[test]
    fn a_pattern_is_matched_from_the_beginning() {
        for (pattern, path, is_match) in [
            ("/", "/x", true),
            ("/x", "/", false),
            ("/x$", "/x", true),
            ("/x$", "/xy", false),
            ("/*$", "/xy", true),
            ("*y", "/xy", true),
            ("/*x*x*x$", "/xx", false),
            ("/*x*x*x$", "/xyxyx", true),
            ("/x*x$", "/x", false),
            ("/$x", "/$x", true),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_and_a_normal_path_stays(file: String, path in "(/[%a-c0-9é*?$]{0,12}){0,3}") {
            let robots = Robots::parse(&format!("User-agent: *\nDisallow: {path}\n{file}"));
            robots.allows(&path);
            prop_assert_eq!(normal(&normal(&path)), normal(&path));
        }
    }
}
