//! `apply_patch`: changes several files by one patch, all or none.

use super::access::FileAccess;
use super::locked_file::{LockedFile, Writer};
use super::own_versions::OwnVersion;
use super::patch::{ChangeKind, FileChange, Updated, parse, updated};
use super::read_log::SeenFile;
use super::seen_lines::{SeenLines, count_lines};
use super::write::check_whole;
use super::{EditFile, ReadFile, WriteFile};
use crate::os::safe_path::SafePath;
use crate::protocol::permission::{ChangedFile, PermissionSubject};
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError, arguments};
use crate::tools::registry::{Tool, ToolParts, parameters};
use crate::wire::file_view::ContentHash;
use crate::wire::text_change::TextChange;
use crate::wire::tool::ParameterType::Text;
use crate::wire::tool::{Effect, SubjectArgument, ToolSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The largest number of changes of a patch. Each takes descriptors for its locks and folders.
const MAX_CHANGES: usize = 100;

parameters!(ApplyPatch {
    input: String = required(Text, "The patch, from `*** Begin Patch` to `*** End Patch`."),
});

impl Tool for ApplyPatch {
    const SPEC: ToolSpec = ToolSpec {
        name: "apply_patch",
        description: "Changes files by a patch in the apply_patch format: `*** Add File: `, `*** Update File: ` \
                      (perhaps with `*** Move to: `) or `*** Delete File: ` and a path in the workspace; below an \
                      update, pieces that begin with `@@` and have lines with ` `, `-` or `+`. All of it is done, \
                      or nothing.",
        subject: SubjectArgument::Patch("input"),
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        let changes = arguments::<Self>(call)?.changes()?;
        let named: Vec<(&str, bool)> = changes.iter().flat_map(FileChange::paths).collect();
        let real = parts.files.judge_all(call, named.iter().map(|(path, _)| *path))?;
        let sources: BTreeSet<&str> = changes.iter().filter_map(FileChange::source).collect();
        let mut files = Vec::new();
        for ((name, stays), path) in named.into_iter().zip(real) {
            if sources.contains(name) {
                let (tool, effect) = (ReadFile::SPEC.name, Effect::Reads);
                files.push(ChangedFile { tool, effect, path: path.clone() });
            }
            files.push(changed_file(stays, path));
        }
        Ok(PermissionSubject::Files(files))
    }

    fn is_offered(parts: &ToolParts) -> bool {
        parts.model.get().knows_patches
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let changes = self.changes()?;
        let patching = parts.files.prepare(call, &changes)?;
        let (names, done) = offload(move || {
            let done = patching.run(&changes);
            (changes.iter().map(in_words).collect::<Vec<_>>(), done)
        })
        .await;
        let Applied { written, kept, failure } = done?;
        parts.files.note_patched(call, written);
        let kept = [&[String::new()], kept.as_slice()].concat().join("\n");
        match failure {
            None => Ok(format!("done:\n{}{kept}", names.join("\n"))),
            Some(ToolError::Reply(why)) => Err(ToolError::Reply(why + &kept)),
            Some(ToolError::Fatal(why)) => Err(ToolError::Fatal(why + &kept)),
        }
    }
}

impl ApplyPatch {
    fn changes(&self) -> Result<Vec<FileChange>, ToolError> {
        let changes = parse(&self.input);
        let changes = changes.and_then(|changes| {
            let count = changes.len();
            let why = format!("the patch has {count} changes, {MAX_CHANGES} are allowed; split it");
            if count > MAX_CHANGES { Err(why) } else { Ok(changes) }
        });
        changes.map_err(|why| ToolError::Reply(format!("nothing was changed: {why}")))
    }
}

/// Returns a file of a patch for the rules: a change of a file that stays is an edit, any other writes a whole file.
fn changed_file(stays: bool, path: String) -> ChangedFile {
    let tool = if stays { EditFile::SPEC.name } else { WriteFile::SPEC.name };
    ChangedFile { tool, effect: Effect::Changes, path }
}

const EDITED: &str = "change ";
const WRITTEN: &str = "add or remove ";

/// Names the files that a call changes, one on each line, for the person who is asked.
pub(crate) fn files_in_words(files: &[ChangedFile]) -> String {
    let word = |tool: &str| if tool == EditFile::SPEC.name { EDITED } else { WRITTEN };
    let changes = files.iter().filter(|file| file.effect == Effect::Changes);
    let lines = changes.map(|ChangedFile { tool, path, .. }| format!("{}{path}", word(tool)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads the files in the text of [`files_in_words`].
pub(crate) fn changed_files(text: &str) -> Vec<ChangedFile> {
    let file = |line: &str| {
        let edited = line.strip_prefix(EDITED).map(|path| (true, path));
        let (stays, path) = edited.or_else(|| Some((false, line.strip_prefix(WRITTEN)?)))?;
        Some(changed_file(stays, path.to_owned()))
    };
    text.lines().filter_map(file).collect()
}

/// Names a change for the model, as the reference tool does.
fn in_words(change: &FileChange) -> String {
    let path = &change.path;
    match &change.kind {
        ChangeKind::Add(_) => format!("A {path}"),
        ChangeKind::Delete => format!("D {path}"),
        ChangeKind::Update { moved_to: None, .. } => format!("M {path}"),
        ChangeKind::Update { moved_to: Some(to), .. } => format!("M {path} -> {to}"),
    }
}

/// A patch, with the files that it names, as work for another thread.
struct Patching {
    writer: Writer,
    /// By the real path, so that two patches take their locks in the same order.
    files: BTreeMap<PathBuf, NamedFile>,
    /// The real path of each name.
    names: BTreeMap<String, PathBuf>,
}

/// A file that a patch names.
struct NamedFile {
    name: String,
    spot: SafePath,
    seen: Option<SeenFile>,
    own: Option<OwnVersion>,
}

/// A file that was written or removed.
struct WrittenFile {
    real: PathBuf,
    own: Option<OwnVersion>,
    /// The hash of the new content, with the lines that the agent has seen; `None` if the file is gone.
    now: Option<(ContentHash, SeenLines)>,
    change: Option<TextChange>,
}

/// The result of a patch that was possible.
struct Applied {
    written: Vec<WrittenFile>,
    /// Texts about versions that were kept.
    kept: Vec<String>,
    /// The reason for which a file could not be written after others were.
    failure: Option<ToolError>,
}

/// A file during a patch.
struct FileState<'a> {
    file: LockedFile<'a>,
    own: Option<OwnVersion>,
    seen: Option<SeenFile>,
    old: Option<Vec<u8>>,
    /// The content after the changes so far; `None` if there is no file.
    now: Option<String>,
    lines: SeenLines,
    /// The permission bits that a moved file brings.
    mode: Option<u32>,
    is_changed: bool,
    /// Whether the patch has deleted it.
    is_deleted: bool,
}

impl FileAccess {
    fn prepare(&self, call: &Call, changes: &[FileChange]) -> Result<Patching, ToolError> {
        let log = self.log.borrow();
        let (mut files, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (name, _) in changes.iter().flat_map(FileChange::paths) {
            let spot = self.find_judged(call, name, Effect::Changes)?;
            let real = spot.path();
            names.insert(name.to_owned(), real.clone());
            let (seen, own) = (log.files.get(&real).cloned(), log.own.get(&real).cloned());
            files.entry(real).or_insert(NamedFile { name: name.to_owned(), spot, seen, own });
        }
        Ok(Patching { writer: self.writer.clone(), files, names })
    }

    fn note_patched(&self, call: &Call, written: Vec<WrittenFile>) {
        for WrittenFile { real, own, now, change } in written {
            let mut log = self.log.borrow_mut();
            log.follow(&real, own);
            match now {
                Some((hash, lines)) => log.note(&real, hash, &lines, None),
                None => drop(log.files.remove(&real)),
            }
            drop(log);
            self.note_use(call, &real, change);
        }
    }
}

impl Patching {
    /// Applies all changes in memory, then writes the files. Fails before the first write if a change is not possible.
    fn run(&self, changes: &[FileChange]) -> Result<Applied, ToolError> {
        let mut states = BTreeMap::new();
        for (real, named) in &self.files {
            states.insert(real.clone(), FileState::load(&self.writer, named)?);
        }
        for change in changes {
            self.apply(change, &mut states)
                .map_err(|why| ToolError::Reply(format!("nothing was changed: {why}")))?;
        }
        check_places(&states)?;
        let (mut written, mut failure) = (Vec::new(), None);
        let mut changed: Vec<_> = states.iter_mut().filter(|(_, it)| it.is_changed).collect();
        // A moved file gets its new place before it loses the old one.
        changed.sort_by_key(|(_, it)| (it.mode.is_none(), it.now.is_none()));
        for (real, state) in changed {
            match state.write(real) {
                Ok(file) => written.push(file),
                Err(why) => {
                    failure = Some(partly(why, &written, &self.files));
                    break;
                }
            }
        }
        let kept = states.into_values().flat_map(|state| state.file.kept).collect();
        Ok(Applied { written, kept, failure })
    }

    fn apply(
        &self,
        change: &FileChange,
        states: &mut BTreeMap<PathBuf, FileState<'_>>,
    ) -> Result<(), String> {
        let path = &change.path;
        let missing = || format!("{path} does not exist; list_files shows the files");
        let real = |name: &str| self.names.get(name).cloned().unwrap_or_default();
        let state = states.get_mut(&real(path)).ok_or_else(missing)?;
        match &change.kind {
            ChangeKind::Add(content) => {
                if state.is_changed && state.now.is_some() {
                    return Err(format!("the patch changes {path}, and then adds it"));
                }
                if !state.is_changed || state.is_deleted {
                    let (old, seen) = (state.old.as_deref(), state.seen.as_ref());
                    check_whole(path, old, seen).map_err(|why| why.to_string())?;
                }
                state.set(content.clone(), SeenLines::whole(count_lines(content.as_bytes())));
            }
            ChangeKind::Delete => {
                if state.now.is_none() && (state.old.is_none() || state.is_changed) {
                    return Err(missing());
                }
                if state.is_other_version() {
                    return Err(format!(
                        "{path} has changed since you read it; read it again before you delete it"
                    ));
                }
                (state.now, state.is_changed, state.is_deleted) = (None, true, true);
            }
            ChangeKind::Update { moved_to, chunks } => {
                let text = match (&state.now, &state.old) {
                    (Some(text), _) => text,
                    (None, Some(_)) if !state.is_changed => {
                        return Err(format!(
                            "{path} is not UTF-8 text; change it with bash (sed, python)"
                        ));
                    }
                    (None, _) => return Err(missing()),
                };
                let Updated { text: after, pieces } =
                    updated(text, chunks).map_err(|why| format!("{path}: {why}"))?;
                let lines = lines_after(text, &state.lines, &pieces);
                let Some(to) = moved_to.as_deref().filter(|to| real(to) != real(path)) else {
                    state.set(after, lines);
                    return Ok(());
                };
                let mode = state.file.mode();
                (state.now, state.is_changed) = (None, true);
                let target = states.get_mut(&real(to)).ok_or_else(missing)?;
                if target.now.is_some() || target.old.is_some() && !target.is_changed {
                    return Err(format!("{to} exists; delete it first, or move to another path"));
                }
                target.set(after, lines);
                target.mode = Some(mode);
            }
        }
        Ok(())
    }
}

impl<'a> FileState<'a> {
    fn load(writer: &'a Writer, named: &'a NamedFile) -> Result<Self, ToolError> {
        let NamedFile { name, spot, seen, own } = named;
        let mut file = writer.lock(name, spot)?;
        file.check_leases()?;
        let old = file.load()?;
        let base = old.as_deref().unwrap_or_default();
        let own = own.clone().and_then(|own| file.settle(own, base));
        let now = old.clone().and_then(|bytes| String::from_utf8(bytes).ok());
        let hash = ContentHash::of(base);
        let known = seen.as_ref().filter(|seen| seen.hash == hash);
        let lines = known.map(|seen| seen.lines.clone()).unwrap_or_default();
        let (seen, mode, is_changed, is_deleted) = (seen.clone(), None, false, false);
        Ok(Self { file, own, seen, old, now, lines, mode, is_changed, is_deleted })
    }

    fn set(&mut self, text: String, lines: SeenLines) {
        (self.now, self.lines, self.is_changed) = (Some(text), lines, true);
    }

    /// Whether the agent has seen another version than the one on the disk.
    fn is_other_version(&self) -> bool {
        let hash = ContentHash::of(self.old.as_deref().unwrap_or_default());
        self.seen.as_ref().is_some_and(|seen| seen.hash != hash)
    }

    /// Writes or removes the file.
    fn write(&mut self, real: &Path) -> Result<WrittenFile, ToolError> {
        let name = self.file.name().to_owned();
        let old = self.old.as_deref();
        let Some(text) = &self.now else {
            if let Some(old) = old {
                self.file.remove(old)?;
            }
            let change = TextChange::of(&name, old, b"");
            return Ok(WrittenFile { real: real.to_owned(), own: None, now: None, change });
        };
        let bytes = text.as_bytes();
        self.file.replace(old, bytes, self.mode)?;
        let base = old.unwrap_or_default();
        let own = OwnVersion::new(self.own.as_ref(), base, bytes, self.file.record());
        let now = Some((ContentHash::of(bytes), self.lines.clone()));
        Ok(WrittenFile {
            real: real.to_owned(),
            own,
            now,
            change: TextChange::of(&name, old, bytes),
        })
    }
}

/// Fails if the patch would make a file where it also needs a folder.
fn check_places(states: &BTreeMap<PathBuf, FileState<'_>>) -> Result<(), ToolError> {
    let there = || states.iter().filter(|(_, state)| state.now.is_some());
    for (file, _) in there() {
        if let Some((below, _)) = there().find(|(path, _)| *path != file && path.starts_with(file))
        {
            return Err(ToolError::Reply(format!(
                "nothing was changed: {} would be a file and the folder of {}",
                file.display(),
                below.display()
            )));
        }
    }
    Ok(())
}

/// Returns the lines that an agent has seen after pieces were replaced whose lines it knows.
fn lines_after(text: &str, seen: &SeenLines, pieces: &[(Range<usize>, usize)]) -> SeenLines {
    let total = count_lines(text.as_bytes());
    let (mut ranges, mut line, mut next) = (Vec::new(), 0, 0);
    let mut keep = |from: usize, to: usize, line: &mut usize| {
        for number in from + 1..=to {
            *line += 1;
            if seen.gap(number, number).is_none() {
                ranges.push((*line, *line));
            }
        }
    };
    let mut added = Vec::new();
    for (range, count) in pieces {
        keep(next, range.start, &mut line);
        added.push((line + 1, line + count));
        line += count;
        next = range.end;
    }
    keep(next, total, &mut line);
    ranges.into_iter().chain(added).collect()
}

/// Returns the failure of a patch of which these files were written.
fn partly(
    why: ToolError,
    written: &[WrittenFile],
    files: &BTreeMap<PathBuf, NamedFile>,
) -> ToolError {
    let names = written.iter().filter_map(|it| files.get(&it.real)).map(|it| it.name.as_str());
    let names: Vec<&str> = names.collect();
    let ToolError::Reply(why) = why else { return why };
    if names.is_empty() {
        return ToolError::Reply(why);
    }
    ToolError::Reply(format!(
        "only a part of the patch was done, in {}: {why}; make a patch of the rest",
        names.join(", ")
    ))
}
