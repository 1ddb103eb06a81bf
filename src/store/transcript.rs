//! One agent's conversation on disk: append, read back, put away.
//!
//! Only the owner of the name writes here. Readers skip what is torn or foreign, so a crash costs at
//! most the line that was being written, and that line was never acknowledged.

use super::file::atomic::{Fsync, sync_folder, sync_parent};
use super::file::jsonl::{Lines, Log, Piece, each_piece};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, open};
use crate::wire::chat::Block;
use crate::wire::permission::{Decision, Question};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Longest line that is read back.
const LONGEST: usize = 64 * 1024 * 1024;

/// The kinds of lines that open and close questions.
const ABOUT_QUESTIONS: [&str; 3] = ["request", "decision", "tool_result"];

/// What an agent waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    /// What is asked.
    pub question: Question,
    /// Who is asked: `lead`, or `user` at the agent's own terminal.
    pub decider: String,
    /// When it counts as denied.
    pub deadline: WallTime,
}

/// An agent's conversation, open for writing.
#[derive(Debug)]
pub struct Transcript {
    log: Log,
}

impl Transcript {
    /// Opens or begins the conversation of `name`; a torn tail is sealed.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        Ok(Self { log: Log::open(dir.transcript(name))? })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Nothing of it was written.
    pub fn append(&mut self, line: &Line) -> Result<(), StoreError> {
        self.append_raw(line.text().as_bytes())
    }

    /// Writes whole lines, all of them or none.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn append_raw(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        self.log.append(lines)
    }

    /// Makes what was written survive power loss.
    ///
    /// # Errors
    /// It may not, now or ever: after a failure every later call fails too.
    pub fn sync(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        self.log.sync(fsync)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.log.path()
    }
}

/// The conversation of `name` as far as it can be read; empty when there is none.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read_all(dir: &TeamDir, name: &AgentName) -> Result<Vec<Line>, StoreError> {
    let mut found = Vec::new();
    each(dir, name, |line| found.push(line))?;
    Ok(found)
}

/// What an agent has asked and nobody has decided, oldest first.
///
/// # Errors
/// The file is there and cannot be read.
pub fn open_questions(dir: &TeamDir, name: &AgentName) -> Result<Vec<OpenQuestion>, StoreError> {
    let mut open: Vec<OpenQuestion> = Vec::new();
    each_line(&dir.transcript(name), |line| {
        if !ABOUT_QUESTIONS.iter().any(|kind| Line::may_be(line, kind)) {
            return;
        }
        match Line::read(line).map(|line| line.entry) {
            Some(Entry::Request { question, decider, deadline }) => {
                open.retain(|known| known.question.request_id != question.request_id);
                open.push(OpenQuestion { question, decider, deadline });
            }
            Some(Entry::Decision(decision)) => {
                open.retain(|known| known.question.request_id != decision.request_id);
            }
            Some(Entry::ToolResult { tool_use_id, .. }) => {
                open.retain(|known| known.question.tool_use_id != tool_use_id);
            }
            _ => {}
        }
    })?;
    Ok(open)
}

/// The first tool call for which `find`, given the tool and its arguments, returns a value.
///
/// # Errors
/// The file is there and cannot be read.
pub fn find_call<T>(
    dir: &TeamDir,
    name: &AgentName,
    mut find: impl FnMut(&str, &Value) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let mut found = None;
    each(dir, name, |line| {
        let Entry::Assistant { blocks, .. } = line.entry else { return };
        for block in blocks {
            let Block::ToolUse { name, input, .. } = block else { continue };
            found = found.take().or_else(|| find(&name, &input));
        }
    })?;
    Ok(found)
}

/// The last decision about a question.
///
/// # Errors
/// The file is there and cannot be read.
pub fn decision(
    dir: &TeamDir,
    name: &AgentName,
    request_id: &str,
) -> Result<Option<Decision>, StoreError> {
    let mut found = None;
    each_line(&dir.transcript(name), |line| {
        if Line::may_be(line, "decision")
            && let Some(Line { entry: Entry::Decision(decision), .. }) = Line::read(line)
            && decision.request_id == request_id
        {
            found = Some(decision);
        }
    })?;
    Ok(found)
}

/// The same line by line: a long conversation does not have to fit into memory twice.
///
/// # Errors
/// The file is there and cannot be read.
pub fn each(dir: &TeamDir, name: &AgentName, mut meet: impl FnMut(Line)) -> Result<(), StoreError> {
    let read = |line: &[u8]| Line::read(line).into_iter().for_each(&mut meet);
    Ok(each_line(&dir.transcript(name), read)?)
}

/// The life in which the conversation of `name` began; `None` when there is none.
///
/// # Errors
/// The file is there and cannot be read.
pub fn first_life(dir: &TeamDir, name: &AgentName) -> Result<Option<String>, StoreError> {
    let path = dir.transcript(name);
    let file = match open(&path, Access::Read) {
        Err(why) if why.is_missing() => return Ok(None),
        other => other?,
    };
    let mut lines = Lines::from(file, 0, LONGEST).at(&path)?;
    while let Some(framed) = lines.next().at(&path)? {
        if Line::may_be(framed.bytes, "session")
            && let Some(Line { entry, .. }) = Line::read(framed.bytes)
            && let Entry::Session { incarnation, .. } = entry
        {
            return Ok(Some(incarnation));
        }
    }
    Ok(None)
}

/// Puts the conversation of `name` away and says where; `None` when there is none.
///
/// # Errors
/// It stays where it is.
pub fn archive(
    dir: &TeamDir,
    name: &AgentName,
    fsync: Fsync,
) -> Result<Option<PathBuf>, StoreError> {
    let path = dir.transcript(name);
    match fs::symlink_metadata(&path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(known) if known.len() == 0 => return Ok(None),
        other => other.at(&path)?,
    };
    let number = archives(dir, name)?.last().map_or(1, |(number, _)| number + 1);
    let kept = dir.archive().join(format!("{name}-{number:06}.jsonl"));
    fs::rename(&path, &kept).at(&path)?;
    sync_folder(&dir.archive(), fsync)?;
    sync_parent(&path, fsync)?;
    Ok(Some(kept))
}

/// The earlier conversations of `name`, oldest first.
fn archives(dir: &TeamDir, name: &AgentName) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let folder = dir.archive();
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).at(&folder)? {
        let entry = entry.at(&folder)?;
        let file = entry.file_name();
        let number = file
            .to_str()
            .and_then(|file| file.strip_prefix(name.as_str())?.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(".jsonl")?.parse().ok());
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// The files of the earlier conversations of `name`, oldest first.
pub(crate) fn all_archives(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    Ok(archives(dir, name)?.into_iter().map(|(_, path)| path).collect())
}

/// The latest earlier conversations of `name`, oldest first: back to one that tells of mail, and of mail
/// from before the claim `oldest`. A claim outlives a conversation that was put away within a second.
pub(crate) fn latest_archives(
    dir: &TeamDir,
    name: &AgentName,
    oldest: Option<&str>,
) -> Result<Vec<PathBuf>, FileError> {
    let mut latest = Vec::new();
    for (_, path) in archives(dir, name)?.into_iter().rev() {
        let mut reaches_back = false;
        each_mail(&path, |taken_in| {
            reaches_back |= oldest.is_none_or(|oldest| taken_in.batch_id.as_str() < oldest);
        })?;
        latest.push(path);
        if reaches_back {
            break;
        }
    }
    latest.reverse();
    Ok(latest)
}

/// Mail that a transcript acknowledges.
#[derive(Debug, Deserialize)]
pub(crate) struct TakenIn {
    #[serde(rename = "kind")]
    _kind: MailKind,
    #[serde(rename = "gen")]
    pub(crate) batch_id: String,
    pub(crate) offset: u64,
    pub(crate) message: Map<String, Value>,
}

/// No other kind is read as mail.
#[derive(Debug, Deserialize)]
enum MailKind {
    #[serde(rename = "mail")]
    Mail,
}

impl TakenIn {
    fn read(line: &[u8]) -> Option<Self> {
        Line::may_be(line, "mail").then(|| serde_json::from_slice(line).ok())?
    }
}

/// The mail that a transcript acknowledges, in order. Other lines are not parsed.
pub(crate) fn each_mail(path: &Path, mut meet: impl FnMut(TakenIn)) -> Result<(), FileError> {
    each_line(path, |line| TakenIn::read(line).into_iter().for_each(&mut meet))
}

/// The message of a line that acknowledges mail.
pub(crate) fn mail_of(line: &[u8]) -> Option<Map<String, Value>> {
    TakenIn::read(line).map(|taken_in| taken_in.message)
}

fn each_line(path: &Path, mut meet: impl FnMut(&[u8])) -> Result<(), FileError> {
    each_piece(path, LONGEST, |framed| {
        if framed.piece == Piece::Line {
            meet(framed.bytes);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team() -> (tempfile::TempDir, TeamDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, dir)
    }

    fn note(content: &str) -> Line {
        Line { at: 1.0.into(), entry: Entry::Note { content: content.into() } }
    }

    #[test]
    fn mail_that_another_program_took_in_is_known() {
        let ids = |line: &str| mail_of(line.as_bytes()).map(|message| message["id"].clone());
        let same = [
            r#"{"kind":"mail","at":1,"gen":"1-a","offset":0,"message":{"id":"x"}}"#,
            r#"{ "kind": "mail", "at": 1, "gen": "1-a", "offset": 0, "message": {"id": "x"}}"#,
            r#"{"at":1,"message":{"id":"x"},"offset":0,"gen":"1-a","kind":"mail"}"#,
        ];
        assert_eq!(same.map(ids), same.map(|_| Some("x".into())));
        let other = r#"{"kind": "note", "gen": "1-a", "offset": 0, "message": {"id": "x"}}"#;
        assert_eq!(ids(other), None);
    }

    #[test]
    fn a_line_torn_by_a_crash_is_skipped_and_does_not_touch_the_next() {
        let (_folder, dir) = team();
        let name = AgentName::lead();
        let mut transcript = Transcript::open(&dir, &name).unwrap();
        transcript.append(&note("one")).unwrap();
        transcript.append_raw(br#"{"kind":"note","at":1,"con"#).unwrap();
        drop(transcript);
        let mut transcript = Transcript::open(&dir, &name).unwrap();
        transcript.append_raw(b"foreign\n").unwrap();
        transcript.append(&note("two")).unwrap();
        transcript.sync(Fsync::Always).unwrap();
        assert_eq!(read_all(&dir, &name).unwrap(), [note("one"), note("two")]);
    }

    #[test]
    fn conversations_are_put_away_in_order_also_of_names_that_look_numbered() {
        let (_folder, dir) = team();
        let (a, a1) = (AgentName::member("a").unwrap(), AgentName::member("a-1").unwrap());
        assert_eq!(archive(&dir, &a, Fsync::Always).unwrap(), None);
        for (name, file) in [(&a1, "a-1-000001"), (&a, "a-000001"), (&a, "a-000002")] {
            Transcript::open(&dir, name).unwrap().append(&note(file)).unwrap();
            let kept = archive(&dir, name, Fsync::Always).unwrap().unwrap();
            assert_eq!(kept, dir.archive().join(format!("{file}.jsonl")));
            assert_eq!(latest_archives(&dir, name, None).unwrap().pop(), Some(kept));
            assert_eq!(read_all(&dir, name).unwrap(), []);
        }
    }
}
