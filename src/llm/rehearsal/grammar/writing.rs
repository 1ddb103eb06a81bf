//! New content: create a file, append a line, replace a text.

use super::super::cursor::Cursor;
use super::super::intent::{Content, Intent};
use super::super::lexer::Kind;
use super::super::lexicon::{
    AND, APPEND, ARTICLE, CONDITION, EDIT, FILE_NAMED, FILE_NOUN, FILLER, HOLDING, LINES, NO_NAME,
    READING, REPLACE, SAYING, WRITE,
};
use super::super::scope::{Scope, path_of};
use super::files::paths;
use super::{Parsed, Until, depends, extent};

/// Before the file that something goes into.
const INTO: &[&str] = &["to", "in", "into", "as", "inside", "at", "under", "within", "onto"];

/// "Create a file called x with …", "write … to x", "put a users table into x.sql"
pub(super) fn write<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let object = at.after(WRITE)?;
    let place = place_of_new(object).filter(|place| !is_conditional(place.rest))?;
    let before = without_end(object.up_to(place.at), &[FILE_NAMED, INTO]);
    let content = content(before, place.rest);
    scope.file = Some(place.path.clone());
    let intent = Intent::WriteFile { path: place.path, content };
    Some(Parsed { intents: vec![intent], rest: at.skip(at.len()) })
}

/// "… if it does not exist", behind the name or behind a quoted content; other words describe it.
fn is_conditional(behind: Cursor<'_>) -> bool {
    let mut quoted = behind.places().filter(|at| at.is(Kind::Quoted));
    behind.after(CONDITION).is_some() || quoted.any(|at| at.skip(1).after(CONDITION).is_some())
}

/// "Append "…" to x", "add the line … to x"
pub(super) fn append<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let object = at.after(APPEND)?;
    let to = object.places().rev().find(|place| {
        let file = place.after(&["to", "at the end of", "to the end of"]);
        file.is_some_and(|file| !paths(file, scope).is_empty())
    })?;
    let line = object.up_to(to);
    let marked = line.past(ARTICLE).after(&["line", "lines", "text", "words", "sentence"]);
    let quoted = line.is(Kind::Quoted) && line.len() == 1;
    if at.after(&["append"]).is_none() && marked.is_none() && !quoted {
        return None;
    }
    let line = marked.unwrap_or(line);
    let line = line.after(SAYING).unwrap_or(line).past(&[":", ","]);
    let path = paths(to, scope).into_iter().next().filter(|_| !depends(to))?;
    scope.file = Some(path.clone());
    let intent = Intent::Append { path, line: literal(line) };
    (!line.is_empty()).then(|| Parsed { intents: vec![intent], rest: at.skip(at.len()) })
}

/// "Replace A with B in x", "in x, change A to B", "edit x: replace A by B"
pub(super) fn edit<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let (file, start) = match at.after(EDIT).or_else(|| at.after(&["in", "inside"])) {
        Some(named) => {
            let named = named.past(ARTICLE).past(FILE_NOUN);
            let path = path_of(named.first()?)?;
            (Some(path), named.skip(1).past(AND).past(&["by", "to", "so", "that", ":", "then"]))
        }
        None => (None, at),
    };
    let object = start.after(REPLACE)?;
    let all = object.take(extent(object, Until::Command, scope));
    let inside = all.places().skip(1).find_map(|place| {
        let named = place.after(&["in", "inside", "of", "within", "from"])?;
        let named = named.past(ARTICLE).past(FILE_NOUN);
        let known = named.first().and_then(path_of);
        let again = || named.after(&["it", "there"]).and(scope.file.clone());
        Some((place, known.or_else(again)?, named.skip(1)))
    });
    let (texts, path, behind) = match inside {
        // "replace in x A with B"
        Some((place, path, rest)) if all.up_to(place).is_empty() => {
            (rest, path, rest.skip(rest.len()))
        }
        Some((place, path, rest)) => (all.up_to(place), path, rest),
        None => (all, file.or_else(|| scope.file.clone())?, all.skip(all.len())),
    };
    let with = texts
        .places()
        .skip(1)
        .find(|place| place.after(&["with", "by", "to", "into", "for", "against"]).is_some())?;
    let noun =
        ["word", "text", "line", "words", "string", "phrase", "every", "all", "name", "value"];
    let old = literal(texts.up_to(with).past(ARTICLE).past(&noun));
    let new = literal(with.skip(1).past(&["word", "text"]));
    if old.is_empty() || depends(behind) {
        return None;
    }
    scope.file = Some(path.clone());
    let intent = Intent::EditFile { path, old, new };
    Some(Parsed { intents: vec![intent], rest: object.skip(all.len() - behind.len()) })
}

/// Where a new file goes.
struct Place<'a> {
    path: String,
    /// Where its name stands.
    at: Cursor<'a>,
    /// What stands behind it.
    rest: Cursor<'a>,
}

/// The new file's name: behind "called" or a word for a file, else behind "to", else by its shape.
fn place_of_new(object: Cursor<'_>) -> Option<Place<'_>> {
    let token_at = |at: Cursor<'_>, named: bool| {
        let token = at.first()?;
        let word = token.kind == Kind::Word && !NO_NAME.contains(&token.low.as_str());
        let loose = named && (word || token.kind == Kind::Quoted);
        path_of(token).or_else(|| loose.then(|| token.text.clone()))
    };
    let behind = |phrases: &'static [&'static str], named| {
        move |at: Cursor<'_>| {
            let rest = at.after(phrases)?;
            let rest = rest.past(ARTICLE).past(FILE_NOUN).past(FILE_NAMED);
            token_at(rest, named).map(|path| (path, object.len() - rest.len()))
        }
    };
    let table = object.past(ARTICLE).has(&["table"]) && !object.has(FILE_NOUN);
    let called = object.places().find_map(behind(FILE_NAMED, !table));
    let is_file = |(path, _): &(String, usize)| !path.ends_with('/');
    let into = || object.places().find_map(behind(INTO, false)).filter(is_file);
    let shaped = || {
        let at = object.places().position(|at| token_at(at, false).is_some())?;
        Some((token_at(object.skip(at), false)?, at))
    };
    // "write "a/b" to c.txt": a quotation is the file only when nothing else is.
    let first = object.past(ARTICLE).first().filter(|token| token.kind == Kind::Word);
    let file_first = first.and_then(path_of).and_then(|_| shaped());
    let (mut path, at) = called.or(file_first).or_else(into).or_else(shaped)?;
    let mut rest = object.skip(at + 1);
    let folder = rest.after(INTO).map(|named| named.past(ARTICLE));
    if let Some(folder) = folder
        && let Some(token) = folder.first()
        && (token.text.ends_with('/') || folder.skip(1).after(&["folder", "directory"]).is_some())
    {
        path = format!("{}/{path}", token.text.trim_end_matches('/'));
        rest = folder.skip(1).past(&["folder", "directory"]);
    }
    Some(Place { path, at: object.skip(at), rest })
}

/// What the words before and behind its name say about a file's content.
fn content(before: Cursor<'_>, behind: Cursor<'_>) -> Content {
    let thing = before.past(ARTICLE);
    let kind = thing.after(&["file", "text file", "document", "files"]).unwrap_or(thing);
    if before.has(&["empty", "blank"])
        || behind.after(&["with nothing", "with no content"]).is_some()
    {
        return Content::Literal(String::new());
    }
    let behind = behind.past(&[","]).past(FILLER);
    if let Some(words) = behind.after(READING).map(|words| words.past(&[":"])) {
        return Content::Literal(literal(words));
    }
    let marked = behind.after(HOLDING).unwrap_or(behind).past(&[":"]);
    if let Some(lines) = marked.after(LINES).map(|lines| lines.past(&[":"])) {
        return Content::Literal(joined_lines(lines));
    }
    if marked.is(Kind::Quoted) && marked.skip(1).past(FILLER).is_empty() {
        return Content::Literal(literal(marked));
    }
    if marked.is(Kind::Quoted) {
        return Content::Literal(joined_lines(marked));
    }
    if kind.is(Kind::Quoted) {
        return Content::Literal(joined_lines(kind));
    }
    if let Some(words) =
        kind.past(ARTICLE).after(&["text", "words", "word", "line", "sentence", "lines"])
        && !words.is_empty()
    {
        return Content::Literal(joined_lines(words.past(&[":"])));
    }
    let words = match (kind.is_empty(), behind.is_empty()) {
        (true, _) => marked.text().to_owned(),
        (false, true) => thing.text().to_owned(),
        (false, false) => format!("{} {}", thing.text(), behind.text()),
    };
    Content::Described(words)
}

/// "a, b and c" as three lines; a single quotation as itself.
fn joined_lines(at: Cursor<'_>) -> String {
    let mut lines = Vec::new();
    let mut rest = at.past(AND);
    while !rest.is_empty() {
        let length = rest.places().position(|at| at.after(AND).is_some()).unwrap_or(rest.len());
        lines.push(literal(rest.take(length)));
        rest = rest.skip(length).past(AND);
    }
    lines.join("\n")
}

/// The words themselves; of a quotation what stands between its marks.
fn literal(at: Cursor<'_>) -> String {
    match at.first() {
        Some(quote) if quote.kind == Kind::Quoted && at.skip(1).past(FILLER).is_empty() => {
            quote.text.clone()
        }
        Some(_) | None => at.text().to_owned(),
    }
}

/// The words without what leads over to the file's name at their end.
fn without_end<'a>(at: Cursor<'a>, ends: &[&[&str]]) -> Cursor<'a> {
    let mut at = at;
    loop {
        let tail = at.places().position(|place| {
            let over = ends.iter().find_map(|phrases| place.after(phrases));
            over.or_else(|| place.after(&["file"]).filter(|_| at.up_to(place).len() > 1))
                .is_some_and(|rest| rest.past(ARTICLE).is_empty())
        });
        match tail {
            Some(length) => at = at.take(length),
            None => return at,
        }
    }
}
