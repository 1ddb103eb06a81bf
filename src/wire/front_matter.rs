//! The front matter of a Markdown file, between two `---` lines: a small, tolerant subset of YAML.
//!
//! A value is a text, a list (`[a, b]`, `- a` lines) or a block text (`|`, `>`). The parser does not know the meaning
//! of keys; a line that it cannot parse becomes a [`Problem`], never an error.

use std::iter::Peekable;

/// A line that the parser ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line number, from 1.
    pub line: usize,
    /// The problem and its consequence, for people.
    pub what: String,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The line number, from 1.
    pub line: usize,
    /// The name of the key.
    pub key: String,
    /// The value.
    pub value: Value,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text, possibly empty.
    Text(String),
    /// A list.
    List(Vec<String>),
}

impl Value {
    /// Returns the value as a list; a text is split at its commas.
    pub fn items(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.clone(),
            Self::Text(text) => split_items(text),
        }
    }

    /// Returns the value as a text; the items of a list are joined by commas.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(items) => items.join(", "),
        }
    }
}

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The keys in file order.
    pub fields: Vec<Field>,
    /// The text after the front matter.
    pub body: String,
    /// The lines that were ignored.
    pub problems: Vec<Problem>,
}

/// Parses a file. A file without front matter is all body.
pub fn parse(text: &str) -> Document {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let whole = |problems| Document { fields: Vec::new(), body: text.trim().into(), problems };
    if lines.first().is_none_or(|first| first.trim_end() != "---") {
        return whole(Vec::new());
    }
    let Some(end) = lines.iter().skip(1).position(|line| line.trim_end() == "---") else {
        let what = "the front matter has no second `---`: all of the file is instructions".into();
        return whole(vec![Problem { line: 1, what }]);
    };
    let (mut fields, mut problems) = (Vec::new(), Vec::new());
    let numbered = lines.iter().enumerate().skip(1).take(end);
    let mut rest = numbered.map(|(at, line)| (at + 1, line.trim_end())).peekable();
    while let Some((line, text)) = rest.next() {
        if text.is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        match text.split_once(':') {
            Some((key, value))
                if is_key(key) && (value.is_empty() || value.starts_with([' ', '\t'])) =>
            {
                let value = read_value(value.trim(), &mut rest);
                fields.push(Field { line, key: key.into(), value });
            }
            Some(_) | None => {
                let what = "not understood (`key: value` is expected), so it is ignored".into();
                problems.push(Problem { line, what });
            }
        }
    }
    let body = lines.get(end + 2..).unwrap_or_default().join("\n").trim().to_owned();
    Document { fields, body, problems }
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Reads the value after a colon, including its continuation lines.
fn read_value<'a>(
    first: &str,
    rest: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>,
) -> Value {
    let belongs = |line: &str| line.is_empty() || line.starts_with([' ', '\t', '-']);
    let mut below = Vec::new();
    while let Some((_, line)) = rest.next_if(|(_, line)| belongs(line)) {
        below.push(line.trim());
    }
    while below.last().is_some_and(|line| line.is_empty()) {
        below.pop();
    }
    let listed = first.strip_prefix('[').and_then(|list| uncommented(list).strip_suffix(']'));
    if let Some(list) = listed {
        return Value::List(split_items(list));
    }
    if first.starts_with(['|', '>']) {
        return Value::Text(below.join(if first.starts_with('|') { "\n" } else { " " }));
    }
    if let Some(items) = listed_below(&below).filter(|_| first.is_empty()) {
        return Value::List(items);
    }
    let lines = std::iter::once(first).chain(below).filter(|line| !line.is_empty());
    Value::Text(scalar(&lines.collect::<Vec<_>>().join(" ")))
}

/// Returns the items of a list in lines that begin with `-`; `None` if the lines are no list. Other lines continue the
/// item before them.
fn listed_below(lines: &[&str]) -> Option<Vec<String>> {
    let mut items: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix('-'), items.last_mut()) {
            (Some(item), _) => items.push(item.trim().to_owned()),
            (None, Some(last)) => {
                last.push(' ');
                last.push_str(line);
            }
            (None, None) => return None,
        }
    }
    let items: Vec<String> = items.iter().map(|item| scalar(item)).collect();
    (!items.is_empty()).then_some(items)
}

/// Splits a text at its commas, except at commas within parentheses or quotes.
fn split_items(text: &str) -> Vec<String> {
    let (mut items, mut item, mut depth, mut quote) = (Vec::new(), String::new(), 0_u32, None);
    for c in text.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('(', None) => depth += 1,
            (')', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item);
    let items = items.iter().map(|item| scalar(item.trim()));
    items.filter(|item| !item.is_empty()).collect()
}

/// Removes the quotes of a text, or the comment after it.
fn scalar(text: &str) -> String {
    if let Some(inside) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return inside.replace("''", "'");
    }
    if let Some(inside) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return unescaped(inside);
    }
    uncommented(text).to_owned()
}

fn uncommented(text: &str) -> &str {
    text.split_once(" #").map_or(text, |(before, _)| before).trim_end()
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        plain.push(match escaped {
            Some('n') => '\n',
            Some('t') => '\t',
            other => other.unwrap_or(c),
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_lists_and_block_texts_are_parsed() {
        let document = parse(
            "---\r\nname: coder # who\ndescription: \"Writes: \\\"code\\\"\"\ntools: Read, Bash(git diff:*, x)\n\
             more: [a, 'b, c']\nlist:\n  - one\n    more: 1\n- \"two\"\nlong: >\n  first\n  second\n\nkept: |\n  a: b\n  c\n\
             nested:\n  deep: 1\n---\n\nBody.\n---\nmore\n",
        );
        let text = |text: &str| Value::Text(text.into());
        let list =
            |items: &[&str]| Value::List(items.iter().map(|item| (*item).to_owned()).collect());
        let read: Vec<_> =
            document.fields.iter().map(|it| (it.line, it.key.as_str(), it.value.clone())).collect();
        let expected = [
            (2, "name", text("coder")),
            (3, "description", text("Writes: \"code\"")),
            (4, "tools", text("Read, Bash(git diff:*, x)")),
            (5, "more", list(&["a", "b, c"])),
            (6, "list", list(&["one more: 1", "two"])),
            (10, "long", text("first second")),
            (14, "kept", text("a: b\nc")),
            (17, "nested", text("deep: 1")),
        ];
        assert_eq!(read, expected);
        let tools = document.fields.get(2).map(|field| field.value.items());
        assert_eq!(tools.unwrap(), ["Read", "Bash(git diff:*, x)"]);
        assert_eq!(document.body, "Body.\n---\nmore");
        assert_eq!(document.problems, []);
    }

    #[test]
    fn an_ignored_line_is_reported_with_its_number() {
        let document = parse("---\nname: a\nno colon here\n12:30\n---\nB");
        let lines: Vec<usize> = document.problems.iter().map(|problem| problem.line).collect();
        assert_eq!((lines, document.fields.len(), &*document.body), (vec![3, 4], 1, "B"));
        let open = parse("---\nname: a\n");
        assert_eq!((open.problems.len(), &*open.body), (1, "---\nname: a"));
        assert_eq!(parse("Only text.\n").body, "Only text.");
        assert_eq!(parse("---\n---\n").body, "");
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in "(---\n)?([-a:# \"'\\[\\],|>()\n\\\\]{0,60})(---\n)?.{0,20}") {
            let document = parse(&text);
            let lines = text.lines().count();
            prop_assert!(document.fields.iter().all(|field| field.line >= 2 && field.line <= lines));
        }
    }
}
