//! Files that exist, and shell commands: show, check, list, remove, run.

use super::super::cursor::Cursor;
use super::super::intent::Intent;
use super::super::lexer::Kind;
use super::super::lexicon::{
    AND, ARTICLE, CHECK, FILE_NAMED, FILE_NOUN, FILLER, LOOK, QUESTION, REMOVE, RUN, WRITE,
};
use super::super::scope::{Scope, is_name_like, path_of};
use super::{Parsed, depends};

/// "Delete x"
pub(super) fn remove<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let paths = paths(at.after(REMOVE).filter(|object| !depends(*object))?, scope);
    for_each(at, paths, |path| Intent::RemoveFile { path }, scope)
}

/// "Make a folder called x"
pub(super) fn make_folder<'a>(at: Cursor<'a>, _: &mut Scope) -> Option<Parsed<'a>> {
    let kind = at.after(WRITE)?.past(ARTICLE).past(&["empty"]);
    let name = kind.after(&["folder", "directory", "dir"])?.past(FILE_NAMED);
    let path = name.first().filter(|name| name.kind == Kind::Quoted || is_command(&name.low))?;
    let intent = Intent::MakeFolder { path: path.text.clone() };
    Some(Parsed { intents: vec![intent], rest: name.skip(1) })
}

/// "Rename x to y", "copy x to y"
pub(super) fn transfer<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let copies = at.after(&["copy"]);
    let object = copies.or_else(|| at.after(&["rename", "move"])).filter(|at| !depends(*at))?;
    let [from, to] = <[String; 2]>::try_from(paths(object, scope)).ok()?;
    scope.file = Some(to.clone());
    let intent = match copies {
        Some(_) => Intent::Copy { from, to },
        None => Intent::Move { from, to },
    };
    Some(Parsed { intents: vec![intent], rest: at.skip(at.len()) })
}

/// "List the files in src/", "what files are there?"
pub(super) fn list<'a>(at: Cursor<'a>, _: &mut Scope) -> Option<Parsed<'a>> {
    const FOLDER: &[&str] = &["folder", "directory", "workspace", "dir"];
    let object = at.after(LOOK).or_else(|| at.after(QUESTION))?;
    let paths = paths(object, &Scope::default());
    let asks = object.has(&["files"]) || object.has(FOLDER) || object.past(ARTICLE).has(&["ls"]);
    let folder = paths.first().filter(|path| asks || path.ends_with('/')).cloned();
    let all_files =
        paths.iter().all(|path| path.ends_with('/') || object.has(FOLDER) || path == ".");
    let within = object.has(&["in", "of", "under", "inside", "below"]);
    if !(asks || folder.is_some()) || (paths.len() > 1) || !(all_files || within) {
        return None;
    }
    let named = || {
        let place = object.places().find(|place| place.after(&["in", "of", "under"]).is_some())?;
        let word = place.skip(1).past(ARTICLE).first()?;
        let known = FOLDER.contains(&word.low.as_str()) || word.low == "current";
        (is_name_like(word) && !known).then(|| word.text.clone())
    };
    let folder = folder.or_else(named);
    Some(Parsed { intents: vec![Intent::ListFiles { folder }], rest: at.skip(at.len()) })
}

/// "Check if x exists", "is there a file called y?", "does z say hello?"
pub(super) fn check<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    const THERE: &[&str] = &[
        "exist",
        "exists",
        "there",
        "present",
        "there's",
        "available",
        "existing",
        "created",
        "missing",
    ];
    let object = at.after(CHECK)?;
    let paths = paths(object, scope);
    let only = object.past(ARTICLE).past(FILE_NOUN).past(FILE_NAMED).skip(paths.len());
    let exists = object.has(THERE) || at.after(&["is there", "check for", "look for"]).is_some();
    let exists = exists || only.past(FILLER).is_empty();
    // What a file says is answered by showing it.
    let intent = |path| if exists { Intent::CheckFile { path } } else { Intent::ReadFile { path } };
    for_each(at, paths, intent, scope)
}

/// "Show me x", "what is in x?", "list its contents"
pub(super) fn read<'a>(at: Cursor<'a>, scope: &mut Scope) -> Option<Parsed<'a>> {
    let object = at.after(LOOK).or_else(|| at.after(QUESTION))?;
    let paths = paths(object, scope);
    for_each(at, paths, |path| Intent::ReadFile { path }, scope)
}

/// "Run `…`", "execute the command …"
pub(super) fn run<'a>(at: Cursor<'a>, _: &mut Scope) -> Option<Parsed<'a>> {
    const COMMAND: &[&str] =
        &["command", "commands", "script", "shell", "bash", "terminal", "following", "line"];
    let object = at.after(RUN)?.past(&[":"]);
    let introduced = object.past(ARTICLE);
    let object = introduced.after(COMMAND).map_or(object, |rest| rest.past(COMMAND).past(&[":"]));
    if object.is(Kind::Quoted) {
        let mut commands = Vec::new();
        let mut rest = object;
        while let Some(quote) = rest.first().filter(|token| token.kind == Kind::Quoted) {
            commands.push(Intent::Run { command: quote.text.clone() });
            let next = rest.skip(1).past(AND).past(&["then"]);
            rest = if next.is(Kind::Quoted) { next } else { rest.skip(1) };
        }
        return Some(Parsed { intents: commands, rest });
    }
    object.first().filter(|word| is_command(&word.low) && !depends(object))?;
    let fillers = |length: &usize| object.skip(*length).past(FILLER).is_empty();
    let length = (1..=object.len()).find(fillers).unwrap_or(object.len());
    let command = object.take(length).text().to_owned();
    Some(Parsed { intents: vec![Intent::Run { command }], rest: object.skip(length) })
}

/// Whether an unquoted word may begin a shell command.
fn is_command(word: &str) -> bool {
    const NO_COMMAND: &[&str] = &[
        "the", "a", "an", "it", "this", "that", "your", "my", "all", "some", "his", "her", "them",
    ];
    !NO_COMMAND.contains(&word)
}

/// One intent for each file; the last of them is "it" from now on.
fn for_each<'a>(
    at: Cursor<'a>,
    paths: Vec<String>,
    intent: impl Fn(String) -> Intent,
    scope: &mut Scope,
) -> Option<Parsed<'a>> {
    scope.file = Some(paths.last()?.clone());
    Some(Parsed { intents: paths.into_iter().map(intent).collect(), rest: at.skip(at.len()) })
}

/// The files a command names; "it" is the one before.
pub(super) fn paths(at: Cursor<'_>, scope: &Scope) -> Vec<String> {
    let mut found: Vec<String> = at.places().filter_map(named_file).collect();
    found.dedup();
    let again = ["it", "its", "it's", "that file", "the file", "this file"];
    if found.is_empty() && at.places().any(|place| place.after(&again).is_some()) {
        found.extend(scope.file.clone());
    }
    found
}

/// A file named here: by its shape, or behind "file called".
fn named_file(at: Cursor<'_>) -> Option<String> {
    let token = at.first()?;
    if let Some(path) = path_of(token) {
        return Some(path);
    }
    let called = at.after(FILE_NOUN)?;
    let name = called.past(FILE_NAMED).first()?;
    let marked = called.after(FILE_NAMED).is_some();
    let shaped = path_of(name).is_some() || !(marked || name.kind == Kind::Quoted);
    (!shaped && !name.text.contains(char::is_whitespace)).then(|| name.text.clone())
}
