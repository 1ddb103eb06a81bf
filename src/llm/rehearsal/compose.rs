//! Content for a new file: the words asked for, or something small that fits a description and says
//! plainly that no model wrote it.

use super::intent::Content;
use serde_json::json;

const BY: &str = "written by the rehearsal model";

/// What to write into a file.
pub(super) fn content(path: &str, content: &Content) -> String {
    match content {
        Content::Literal(text) => text.clone(),
        Content::Described(words) => described(path, words),
    }
}

fn described(path: &str, words: &str) -> String {
    let words = &words.split_whitespace().collect::<Vec<_>>().join(" ");
    let file = path.rsplit('/').next().unwrap_or(path);
    let (stem, end) = file.rsplit_once('.').unwrap_or((file, ""));
    let words = if words.is_empty() { stem } else { words };
    let end = end.to_lowercase();
    match end.as_str() {
        "sql" => sql(words),
        "json" => {
            let object = json!({ "description": words, "note": BY });
            format!("{object:#}\n")
        }
        "md" | "markdown" => format!("# {}\n\n{words}\n\n_({BY})_\n", title(stem)),
        "html" | "htm" => format!(
            "<!doctype html>\n<!-- {BY} -->\n<title>{stem}</title>\n<p>{}</p>\n",
            words.replace('&', "&amp;").replace('<', "&lt;")
        ),
        "csv" => format!("description,note\n\"{}\",{BY}\n", words.replace('"', "\"\"")),
        "py" | "rb" | "sh" | "js" | "ts" | "php" | "rs" | "c" | "go" | "java" => {
            program(&end, words)
        }
        _ => match comment(&end) {
            Some(mark) => format!("{mark} {words}\n{mark} ({BY})\n"),
            None => format!("{words}\n({BY})\n"),
        },
    }
}

/// A program that only says what it would have been.
fn program(end: &str, words: &str) -> String {
    let text = json!(words).to_string();
    let shell = format!("'{}'", words.replace('\'', "'\\''"));
    let (mark, body) = match end {
        "py" => ("#", format!("print({text})")),
        "rb" => ("#", format!("puts {}", text.replace("#{", "\\#{"))),
        "sh" => ("#", format!("echo {shell}")),
        "js" | "ts" => ("//", format!("console.log({text});")),
        "rs" => ("//", format!("fn main() {{\n    println!(\"{{}}\", {text});\n}}")),
        "c" => (
            "//",
            format!("#include <stdio.h>\n\nint main(void) {{\n    return puts({text}) < 0;\n}}"),
        ),
        "go" => ("//", format!("package main\n\nfunc main() {{\n    println({text})\n}}")),
        _ => return format!("// {words}\n// ({BY})\n"),
    };
    format!("{mark} {BY}\n{body}\n")
}

fn comment(end: &str) -> Option<&'static str> {
    match end {
        "toml" | "yaml" | "yml" | "ini" | "conf" | "cfg" | "env" => Some("#"),
        "css" | "cpp" | "h" | "swift" | "kt" => Some("//"),
        "lua" | "hs" => Some("--"),
        _ => None,
    }
}

fn title(stem: &str) -> String {
    let spaced = stem.replace(['_', '-'], " ");
    let mut chars = spaced.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
        .unwrap_or_default()
}

/// A table for each one described, with the columns that are named or, else, usual ones.
fn sql(words: &str) -> String {
    let clean = |word: &str| -> String {
        let word: String = word.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
        word.to_lowercase()
    };
    let list: Vec<String> =
        words.split_whitespace().map(clean).filter(|word| !word.is_empty()).collect();
    let tables = tables(&list);
    let comment = format!("-- {words} ({BY})\n");
    let statements = tables.iter().map(|table| {
        format!("\nCREATE TABLE {table} (\n    {}\n);\n", columns(table, &list).join(",\n    "))
    });
    comment + &statements.collect::<String>()
}

/// "a users table", "users and orders tables", "tables a, b and c", "a table called users".
fn tables(words: &[String]) -> Vec<String> {
    const STOPS: &[&str] = &[
        "a",
        "an",
        "the",
        "with",
        "simple",
        "new",
        "small",
        "two",
        "three",
        "one",
        "sql",
        "its",
        "database",
        "define",
        "defining",
        "called",
        "named",
        "for",
        "of",
        "table",
        "tables",
        "columns",
        "fields",
        "script",
        "schema",
        "file",
        "containing",
        "that",
        "which",
        "has",
        "have",
    ];
    let is_name = |word: &&String| !STOPS.contains(&word.as_str());
    let mut found: Vec<String> = Vec::new();
    for (at, noun) in words.iter().enumerate() {
        let (before, after) = (words.get(..at).unwrap_or_default(), words.get(at + 1..));
        let after = after.unwrap_or_default();
        let linked =
            matches!(after.first().map(String::as_str), Some("called" | "named" | "for" | "of"));
        let behind = after.iter().skip(usize::from(linked)).skip_while(|word| *word == "the");
        let mut names: Vec<_> = match noun.as_str() {
            "table" if linked => behind.take_while(is_name).take(1).collect(),
            "table" => before.iter().rev().take_while(is_name).take(1).collect(),
            "tables" if linked => behind.take_while(is_name).collect(),
            "tables" => {
                let mut names: Vec<_> = before.iter().rev().take_while(is_name).collect();
                names.reverse();
                if names.is_empty() { behind.take_while(is_name).collect() } else { names }
            }
            _ => Vec::new(),
        };
        names.retain(|name| *name != "and" && !found.contains(name));
        found.extend(names.into_iter().cloned());
    }
    if found.is_empty() { vec!["items".into()] } else { found }
}

/// The columns named, else those that such a table usually has.
fn columns(table: &str, words: &[String]) -> Vec<String> {
    const KEY: &str = "id INTEGER PRIMARY KEY";
    const PEOPLE: &[&str] = &["users", "user", "accounts", "customers", "members", "people"];
    let place =
        words.iter().position(|word| matches!(word.as_str(), "columns" | "fields" | "column"));
    let named = place.and_then(|at| words.get(at + 1..)).unwrap_or_default();
    let named = named.iter().map(String::as_str);
    let named: Vec<_> =
        named.filter(|word| !matches!(*word, "and" | "id" | "a" | "an" | "the" | "for")).collect();
    let mut columns = vec![KEY.to_owned()];
    if named.is_empty() {
        columns.push("name TEXT NOT NULL".into());
        if PEOPLE.contains(&table) {
            columns.push("email TEXT NOT NULL UNIQUE".into());
        }
        columns.push("created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP".into());
    }
    columns.extend(named.iter().map(|name| format!("{name} TEXT")));
    columns
}
