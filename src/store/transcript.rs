//! The transcript of an agent: append, read back, archive.
//!
//! Only the owner of the name writes it. Readers skip torn and foreign lines, so a crash loses at most the line
//! that was being written, which was never acknowledged.

use super::conversations::index::{self, IndexedMail};
use super::file::atomic::{Fsync, json_line, sync_folder, sync_parent};
use super::file::jsonl::{
    Framed, LONGEST_LINE, Lines, Log, begin_of_last, each_line, last_line, lines_between,
};
use super::file::read::{known_if_there, numbered, open_if_there};
use super::tail::Tail;
use super::{StoreError, TeamDir};
use crate::os::file::{At, FileError};
use crate::wire::chat::Block;
use crate::wire::permission::{Decision, DecisionOutcome, Question, QuestionKind};
use crate::wire::transcript::{Entry, Line};
use crate::wire::{AgentName, WallTime};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The file name ending of transcripts, including archived ones.
const ENDING: &str = ".jsonl";

/// The begin of a mail line that this program has written.
const OWN_MAIL: &[u8] = br#"{"kind":"mail""#;

/// The number of bytes at the end of a transcript in which its newest mail is looked for.
const MAIL_BYTES: u64 = 64 * 1024;

/// The largest step of the clock back after which the lines since a time are found without reading all, in seconds.
const CLOCK_STEP_SECONDS: f64 = 3600.0;

/// A question of an agent that is not decided yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    /// The question.
    pub question: Question,
    /// The decider: `lead`, or `user` at the agent's own terminal.
    pub decider: String,
    /// The time at which the question counts as denied.
    pub deadline: WallTime,
    /// The number of the question among those of this transcript, from 1. A question that is asked again after
    /// a crash keeps its number.
    pub number: usize,
}

/// A transcript that is open for writing.
#[derive(Debug)]
pub struct Transcript {
    log: Log,
}

impl Transcript {
    /// Opens or creates the transcript of `name`; a torn tail is sealed. Fails if the file cannot be opened.
    pub fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        Self::at(dir.transcript(name))
    }

    /// Opens or creates the transcript in this file; a torn tail is sealed.
    pub fn at(file: PathBuf) -> Result<Self, StoreError> {
        Ok(Self { log: Log::open(file)? })
    }

    /// Appends a line. On an error nothing was written.
    pub fn append(&mut self, line: &Line) -> Result<(), StoreError> {
        self.append_raw(&json_line(line, self.path())?)
    }

    /// Appends whole lines: all of them or none. On an error nothing was written.
    pub fn append_raw(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        self.log.append(lines)
    }

    /// Makes the appended lines durable. After an error they may not be durable, and every later call fails as
    /// well.
    pub fn sync(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        self.log.sync(fsync)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.log.path()
    }
}

/// Reads the transcript of `name`; empty if there is none. Fails if the file exists and cannot be read.
pub fn read_all(dir: &TeamDir, name: &AgentName) -> Result<Vec<Line>, StoreError> {
    let mut found = Vec::new();
    each(dir, name, |line| found.push(line))?;
    Ok(found)
}

/// Returns the undecided questions of an agent, oldest first. Fails if the file exists and cannot be read.
pub fn open_questions(dir: &TeamDir, name: &AgentName) -> Result<Vec<OpenQuestion>, StoreError> {
    let mut open: Vec<OpenQuestion> = Vec::new();
    let mut count = 0;
    each_line(&dir.transcript(name), |line| {
        // Most lines are of other kinds, and are not parsed. A result matters only to an open question.
        let kinds: &[&str] =
            if open.is_empty() { &["request"] } else { &["request", "decision", "tool_result"] };
        if !kinds.iter().any(|kind| Line::may_be(line, kind)) {
            return;
        }
        match Line::read(line).map(|line| line.entry) {
            Some(Entry::Request { question, decider, deadline }) => {
                let is_same =
                    |known: &OpenQuestion| known.question.request_id == question.request_id;
                let number = match open.iter().position(is_same) {
                    Some(at) => open.remove(at).number,
                    None => {
                        count += 1;
                        count
                    }
                };
                open.push(OpenQuestion { question, decider, deadline, number });
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

/// Returns the number of questions in the archived transcripts of an agent.
pub(crate) fn archived_questions(dir: &TeamDir, name: &AgentName) -> Result<usize, StoreError> {
    let mut count = 0;
    for (_, path) in numbered(&dir.archive(), name, ENDING)? {
        each_line(&path, |line| {
            let is_question = Line::may_be(line, "request")
                && matches!(Line::read(line), Some(Line { entry: Entry::Request { .. }, .. }));
            count += usize::from(is_question);
        })?;
    }
    Ok(count)
}

/// Returns the first value that `find` returns for the name and the arguments of a tool call.
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

/// Returns the calls of an agent that were denied since a time, in words. Plans that were not approved are left out.
pub fn denied_since(
    dir: &TeamDir,
    name: &AgentName,
    since: WallTime,
) -> Result<Vec<String>, StoreError> {
    let path = dir.transcript(name);
    // Few lines are later than that. A question may have been asked before.
    let early = WallTime::from_secs(since.as_secs() - CLOCK_STEP_SECONDS);
    let recent = Tail::since(path.clone(), early, Line::time)?;
    let (denied, is_complete) = denied_from(&path, recent.offset(), since)?;
    Ok(if is_complete { denied } else { denied_from(&path, 0, since)?.0 })
}

/// Returns the calls of a transcript that were denied since a time, as [`denied_since`] does, from an offset on, and whether
/// all their questions are there.
fn denied_from(
    path: &Path,
    offset: u64,
    since: WallTime,
) -> Result<(Vec<String>, bool), StoreError> {
    let mut asked: BTreeMap<String, Question> = BTreeMap::new();
    let (mut denied, mut is_complete) = (Vec::new(), true);
    lines_between(path, offset, u64::MAX, |_, line| {
        // Most lines are of other kinds, and are not parsed.
        if !["request", "decision"].iter().any(|kind| Line::may_be(line, kind)) {
            return ControlFlow::Continue(());
        }
        match Line::read(line) {
            Some(Line { entry: Entry::Request { question, .. }, .. }) => {
                asked.insert(question.request_id.clone(), question);
            }
            Some(Line { at, entry: Entry::Decision(decision) }) if at >= since => {
                let is_denied = matches!(
                    decision.outcome,
                    DecisionOutcome::Rejected | DecisionOutcome::Expired
                );
                let question = asked.get(&decision.request_id);
                is_complete &= question.is_some();
                match question {
                    Some(question) if question.about == QuestionKind::Plan => {}
                    Some(Question { tool, description, .. }) if is_denied => {
                        denied.push(format!("{tool}: {description}"));
                    }
                    None if is_denied => denied.push(decision.reason.unwrap_or_default()),
                    Some(_) | None => {}
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok((denied, is_complete))
}

/// Returns the last decision about a question. Fails if the file exists and cannot be read.
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

/// A message of a mail line, and whether it is verified.
pub(crate) type RecordedMail = (Map<String, Value>, bool);

/// Returns the mail of the last sessions whose model `is_served`, as far as no `handed_out` line names it, oldest first.
pub(crate) fn not_handed_out(
    dir: &TeamDir,
    name: &AgentName,
    is_served: impl Fn(&str) -> bool,
) -> Result<Vec<RecordedMail>, StoreError> {
    let mut open: Vec<RecordedMail> = Vec::new();
    let mut is_session_served = false;
    each_line(&dir.transcript(name), |line| {
        // Most lines are of other kinds, and are not parsed.
        if !["session", "mail", "handed_out"].iter().any(|kind| Line::may_be(line, kind)) {
            return;
        }
        let entry = Line::read(line).map(|line| line.entry);
        if let Some(Entry::Session { model, .. }) = entry {
            is_session_served = is_served(&model);
            open.retain(|_| is_session_served);
        } else if let Some(Entry::Mail { message, verified, .. }) = entry {
            if is_session_served {
                open.push((message, verified));
            }
        } else if let Some(Entry::HandedOut { ids }) = entry {
            let id =
                |message: &Map<String, Value>| message.get("id")?.as_str().map(ToOwned::to_owned);
            open.retain(|(message, _)| id(message).is_none_or(|id| !ids.contains(&id)));
        }
    })?;
    Ok(open)
}

/// Reads the transcript line by line, so that a long conversation need not fit into memory twice.
pub fn each(dir: &TeamDir, name: &AgentName, mut meet: impl FnMut(Line)) -> Result<(), StoreError> {
    let read = |line: &[u8]| Line::read(line).into_iter().for_each(&mut meet);
    Ok(each_line(&dir.transcript(name), read)?)
}

/// Returns the time of the first line of the transcript of `name`; `None` if there is none.
pub(crate) fn began(dir: &TeamDir, name: &AgentName) -> Result<Option<WallTime>, StoreError> {
    let path = dir.transcript(name);
    let Some((file, _)) = open_if_there(&path)? else { return Ok(None) };
    let mut lines = Lines::from(file, 0, LONGEST_LINE).at(&path)?;
    while let Some(Framed { bytes, .. }) = lines.next().at(&path)? {
        if let Some(at) = Line::time(bytes) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns the incarnation in which the transcript of `name` began; `None` if there is none.
pub fn first_incarnation(dir: &TeamDir, name: &AgentName) -> Result<Option<String>, StoreError> {
    first_incarnation_in(&dir.transcript(name))
}

/// Returns the incarnation in which the transcript in this file began; `None` if there is none.
pub(crate) fn first_incarnation_in(path: &Path) -> Result<Option<String>, StoreError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(None) };
    let mut lines = Lines::from(file, 0, LONGEST_LINE).at(path)?;
    while let Some(Framed { bytes, .. }) = lines.next().at(path)? {
        if Line::may_be(bytes, "session")
            && let Some(Entry::Session { incarnation, .. }) = Line::read(bytes).map(|it| it.entry)
        {
            return Ok(Some(incarnation));
        }
    }
    Ok(None)
}

/// Returns the model of the last session in the transcript of `name`; `None` if there is none.
pub(crate) fn last_model(dir: &TeamDir, name: &AgentName) -> Result<Option<String>, StoreError> {
    let path = dir.transcript(name);
    let model_of = |line: &[u8]| {
        let line = Line::may_be(line, "session").then(|| Line::read(line))??;
        if let Entry::Session { model, .. } = line.entry { Some(model) } else { None }
    };
    let Some(last) = last_line(&path, |line| model_of(line).is_some())? else { return Ok(None) };
    let mut model = None;
    lines_between(&path, last, u64::MAX, |_, line| {
        model = model_of(line);
        ControlFlow::Break(())
    })?;
    Ok(model)
}

/// Moves the transcript of `name` to the archive and returns its new path; `None` if it is missing or empty. On an
/// error it stays.
pub fn archive(
    dir: &TeamDir,
    name: &AgentName,
    fsync: Fsync,
) -> Result<Option<PathBuf>, StoreError> {
    let path = dir.transcript(name);
    if known_if_there(&path)?.is_none_or(|known| known.len() == 0) {
        return Ok(None);
    }
    let number = numbered(&dir.archive(), name, ENDING)?.last().map_or(1, |(number, _)| number + 1);
    let kept = dir.archive().join(format!("{name}-{number:06}{ENDING}"));
    fs::rename(&path, &kept).at(&path)?;
    sync_folder(&dir.archive(), fsync)?;
    sync_parent(&path, fsync)?;
    Ok(Some(kept))
}

/// Returns the files of all conversations of `name`, archived ones first, oldest first.
pub(crate) fn conversations(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let mut all = archived(dir, name)?;
    all.push(dir.transcript(name));
    Ok(all)
}

/// Returns the archived transcripts of `name`, oldest first.
pub(crate) fn archived(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let found = numbered(&dir.archive(), name, ENDING)?;
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Returns the archived transcripts of `name`, oldest first, that may hold mail of the claim `oldest` or a later one, and
/// the latest ones back to one with mail. A claim is kept for at least a second, and longer for a late writer, so its mail
/// may be in a transcript that was archived meanwhile. One whose index says that it has no mail is left out. A resumed conversation is archived under a new number, so the
/// numbers do not tell in which transcript that is.
pub(crate) fn latest_archives(
    dir: &TeamDir,
    name: &AgentName,
    oldest: Option<&str>,
) -> Result<Vec<PathBuf>, FileError> {
    let mut latest = Vec::new();
    let mut has_mail = false;
    for (_, path) in numbered(&dir.archive(), name, ENDING)?.into_iter().rev() {
        if has_mail && oldest.is_none() {
            break;
        }
        let newest = match index::mail(dir, &path) {
            IndexedMail::None => continue,
            IndexedMail::Newest(newest) => Some(newest),
            IndexedMail::Unknown => newest_batch(&path)?,
        };
        let may_hold = oldest.is_some_and(|oldest| newest.as_deref() >= Some(oldest));
        if may_hold || !has_mail {
            latest.push(path);
        }
        has_mail |= newest.is_some();
    }
    latest.reverse();
    Ok(latest)
}

/// Returns the newest batch id in the last [`MAIL_BYTES`] of a transcript or, if there is no mail in them, in a larger
/// part of it. Mail of a late writer may come after mail of a newer batch, so one line would not tell.
fn newest_batch(path: &Path) -> Result<Option<String>, FileError> {
    let Some(known) = known_if_there(path)? else { return Ok(None) };
    let mut bytes = MAIL_BYTES;
    loop {
        let begin = known.len().saturating_sub(bytes);
        let mut newest: Option<String> = None;
        if let Some((file, _)) = open_if_there(path)? {
            let mut lines = Lines::from(file, begin, LONGEST_LINE).at(path)?;
            // The first line may lack its beginning; then it is no mail line.
            while let Some(Framed { bytes, .. }) = lines.next().at(path)? {
                if let Some(TakenIn { batch_id, .. }) = TakenIn::read(bytes) {
                    newest = newest.max(Some(batch_id));
                }
            }
        }
        if newest.is_some() || begin == 0 {
            return Ok(newest);
        }
        bytes = bytes.saturating_mul(8);
    }
}

/// A mail line of a transcript.
#[derive(Debug, Deserialize)]
pub(crate) struct TakenIn {
    #[serde(rename = "kind")]
    _kind: MailKind,
    #[serde(rename = "gen")]
    pub(crate) batch_id: String,
    pub(crate) offset: u64,
    pub(crate) message: Map<String, Value>,
}

/// The kind of a mail line. A line of another kind does not parse.
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

/// Passes every mail line of a transcript to `meet`. Other lines are not parsed.
pub(crate) fn each_mail(path: &Path, mut meet: impl FnMut(TakenIn)) -> Result<(), FileError> {
    each_line(path, |line| TakenIn::read(line).into_iter().for_each(&mut meet))
}

/// Passes the last mail lines of a transcript to `meet`, oldest first: at least `count`, or all.
pub(crate) fn each_late_mail(
    path: &Path,
    count: usize,
    mut meet: impl FnMut(TakenIn),
) -> Result<(), FileError> {
    let begin = begin_of_last(path, count, |line| line.starts_with(OWN_MAIL))?;
    lines_between(path, begin, u64::MAX, |_, line| {
        TakenIn::read(line).into_iter().for_each(&mut meet);
        ControlFlow::Continue(())
    })
}

pub(crate) fn mail_of(line: &[u8]) -> Option<Map<String, Value>> {
    TakenIn::read(line).map(|taken_in| taken_in.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use serde_json::json;

    fn note(content: &str) -> Line {
        Line { at: 1.0.into(), entry: Entry::Note { content: content.into() } }
    }

    #[test]
    fn questions_are_numbered_and_an_archived_number_is_not_used_again() {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        let ask = |id: &str| {
            let question = json!({"request_id": id, "tool_use_id": id, "about": "permission",
                "tool": "bash", "input": {}, "description": "ls"});
            let mut line = json!({"kind": "request", "at": 1, "decider": "user", "deadline": 9});
            line.as_object_mut().unwrap().extend(question.as_object().unwrap().clone());
            line.to_string() + "\n"
        };
        let decide = |id: &str| {
            json!({"kind": "decision", "at": 1, "request_id": id, "outcome": "expired",
                "by": "program", "scope": "once"})
            .to_string()
                + "\n"
        };
        let open = || {
            let open = open_questions(&dir, &lead).unwrap().into_iter();
            open.map(|open| (open.question.request_id, open.number)).collect::<Vec<_>>()
        };
        let write = |lines: &[String]| {
            let mut file = Transcript::open(&dir, &lead).unwrap();
            for line in lines {
                file.append_raw(line.as_bytes()).unwrap();
            }
        };
        write(&[ask("a"), ask("b"), ask("a"), decide("b"), ask("c")]);
        assert_eq!(open(), [("a".into(), 1), ("c".into(), 3)]);
        // Some endpoints repeat the ids of calls; a decided question is not the one that is asked now.
        write(&[decide("a"), ask("a")]);
        assert_eq!(open(), [("c".into(), 3), ("a".into(), 4)]);
        assert_eq!(archived_questions(&dir, &lead).unwrap(), 0);
        archive(&dir, &lead, Fsync::Never).unwrap();
        assert!(archived_questions(&dir, &lead).unwrap() >= 4);
        write(&[ask("d")]);
        assert_eq!(open(), [("d".into(), 1)]);
    }

    #[test]
    fn the_calls_that_were_denied_since_a_time_are_found_in_a_long_transcript() {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        let line = |at: f64, more: serde_json::Value| {
            let mut line = json!({"kind": more["kind"], "at": at});
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            line.to_string() + "\n"
        };
        let ask = |at: f64, id: &str| {
            line(
                at,
                json!({"kind": "request", "decider": "user", "deadline": 9,
                "request_id": id, "tool_use_id": id, "about": "permission", "tool": "bash",
                "input": {}, "description": id}),
            )
        };
        let decide = |at: f64, id: &str, outcome: &str| {
            line(
                at,
                json!({"kind": "decision", "request_id": id, "outcome": outcome, "by": "user",
                "scope": "once"}),
            )
        };
        let filler = |at: f64| line(at, json!({"kind": "note", "content": "x".repeat(1_000)}));
        let mut file = Transcript::open(&dir, &lead).unwrap();
        let mut write = |lines: &[String]| file.append_raw(lines.concat().as_bytes()).unwrap();
        write(&[ask(1.0, "early"), decide(2.0, "early", "rejected"), ask(3.0, "open")]);
        for number in 0..500 {
            write(&[filler(10.0 + f64::from(number))]);
        }
        let denied = |since: f64| denied_since(&dir, &lead, since.into()).unwrap();
        assert_eq!(denied(100_000.0), [""; 0]);
        write(&[ask(100_001.0, "late"), decide(100_002.0, "late", "expired")]);
        assert_eq!(denied(100_000.0), ["bash: late"]);
        // The question of this one is before the part that is read first.
        write(&[decide(100_003.0, "open", "rejected"), decide(100_004.0, "none", "approved")]);
        assert_eq!(denied(100_000.0), ["bash: late", "bash: open"]);
        assert_eq!(denied(0.0), ["bash: early", "bash: late", "bash: open"]);
    }

    #[test]
    fn mail_lines_of_other_programs_are_read() {
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
    fn a_torn_line_is_skipped_and_the_next_one_is_whole() {
        const TORN: &str = r#"{"kind":"note","at":1,"con"#;
        let (_folder, dir) = test_team();
        let name = AgentName::lead();
        let mut transcript = Transcript::open(&dir, &name).unwrap();
        transcript.append(&note("one")).unwrap();
        transcript.append_raw(TORN.as_bytes()).unwrap();
        drop(transcript);
        let mut transcript = Transcript::open(&dir, &name).unwrap();
        transcript.append_raw(b"foreign").unwrap();
        transcript.append(&note("two")).unwrap();
        transcript.sync(Fsync::Always).unwrap();
        assert_eq!(read_all(&dir, &name).unwrap(), [note("one"), note("two")]);
        let text = fs::read_to_string(transcript.path()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines[1], lines[2], lines.len()), (TORN, "foreign", 4), "sealed, not removed");
    }

    #[test]
    fn transcripts_are_archived_in_order() {
        let (_folder, dir) = test_team();
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
