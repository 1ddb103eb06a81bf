//! File tools. [`access`] decides which files they may open, [`mod@write`] which changes they may make.

mod access;
mod changes;
mod load;
mod locked_file;
mod nested;
mod own_versions;
mod read_log;
mod readable;
mod seen_lines;
#[cfg(test)]
mod shared_file_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undo_tests;

mod write;

pub(crate) use access::FileAccess;
pub(crate) use nested::{NestedInstructions, NestedLimits};
pub(in crate::tools) use readable::ReadCheck;
pub(crate) use readable::ReadLimits;
#[cfg(test)]
pub(crate) use tests::file_tools;

use super::call::{Call, ToolError};
use super::command::output::CappedOutput;
use super::registry::{Tool, ToolParts, parameters};
use crate::protocol::permission::{DeniedFiles, Policy};
use crate::wire::file_view::ContentHash;
use crate::wire::tool::ParameterType::{Count, Text};
use crate::wire::tool::{Audience, CompactOffer, Effect, SubjectArgument, ToolSpec};
use load::{Loaded, load};
use read_log::SeenFile;
use seen_lines::{Edit, SeenLines, count_lines};
use write::{NextVersion, check_hash, check_piece, check_whole};

const FILE: ToolSpec = ToolSpec { subject: SubjectArgument::File("path"), ..ToolSpec::STRICT };

const PATH: &str = "Path in the workspace.";

parameters!(ReadFile {
    path: String = required(Text, PATH),
    offset: Option<usize> = optional(Count { most: None }, "First line, from 1."),
    limit: Option<usize> = optional(Count { most: None }, "Number of lines."),
});

impl Tool for ReadFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "read_file",
        aliases: &["Read"],
        description: "Reads a text file of the workspace. Of more than 50,000 characters the middle is \
                      cut: then ask for parts by offset and limit.",
        compact: Some(CompactOffer::always(Audience::Teammate, "Read a file.")),
        effect: Effect::Reads,
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (&self.path, &parts.files);
        let spot = files.find_judged(call, path, Self::SPEC.effect)?;
        let Loaded { bytes, stamp, .. } = load(path, &spot)?.ok_or_else(|| missing(path))?;
        if bytes.contains(&0) {
            return Err(ToolError::Reply(format!(
                "{path} is binary ({} bytes); look at it with bash (file, xxd, strings)",
                bytes.len()
            )));
        }
        let (shown, lines) = self.excerpt(&String::from_utf8_lossy(&bytes))?;
        files.note_read(call, &spot, ContentHash::of(&bytes), &lines, stamp);
        Ok(shown)
    }
}

/// Returns the files that the rules keep from `read_file`.
pub(crate) fn denied_files(policy: &Policy) -> DeniedFiles {
    policy.denied_files(&ReadFile::SPEC)
}

impl ReadFile {
    /// Returns the requested lines, and below them their line numbers unless they are the whole file. Returns also
    /// which lines are shown whole: the middle of a long text is cut.
    fn excerpt(&self, text: &str) -> Result<(String, SeenLines), ToolError> {
        let total = text.lines().count();
        if total == 0 {
            return Ok(("(the file is empty)".into(), SeenLines::default()));
        }
        let first = self.offset.unwrap_or(1).max(1);
        if first > total {
            return Err(ToolError::Reply(format!(
                "{} has only {total} lines; give an offset from 1 to {total}",
                self.path
            )));
        }
        let count = (total - first + 1).min(self.limit.unwrap_or(total).max(1));
        let lines = text.split_inclusive('\n').skip(first - 1).take(count);
        let seen = shown_lines(lines.clone(), first);
        let mut shown = CappedOutput::cap(lines);
        if count < total {
            let line_end = if shown.ends_with('\n') { "" } else { "\n" };
            let last = first + count - 1;
            shown = format!("{shown}{line_end}[lines {first} to {last} of {total}]");
        }
        Ok((shown, seen))
    }
}

/// Returns which of these lines are shown whole; `first` is the number of the first one.
fn shown_lines<'a>(lines: impl Iterator<Item = &'a str>, first: usize) -> SeenLines {
    let mut ends = Vec::new();
    let mut chars = 0;
    for line in lines {
        chars += line.chars().count();
        ends.push(chars);
    }
    let omitted = CappedOutput::omitted(chars);
    let begins = [0].into_iter().chain(ends.iter().copied());
    let shown = (first..).zip(begins.zip(&ends));
    let shown = shown.filter(|(_, (begin, end))| **end <= omitted.start || *begin >= omitted.end);
    shown.map(|(number, _)| (number, number)).collect()
}

parameters!(WriteFile {
    path: String = required(Text, PATH),
    content: String = required(Text, "The complete new content of the file."),
});

impl Tool for WriteFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "write_file",
        aliases: &["Write"],
        description: "Writes a whole file of the workspace; folders on the way are made. An existing \
                      file must have been read whole with read_file. To change a part of a file use \
                      edit_file.",
        compact: Some(CompactOffer::always(Audience::Teammate, "Write a whole file.")),
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (&self.path, &parts.files);
        let spot = files.find_judged(call, path, Self::SPEC.effect)?;
        let (name, bytes) = (path.clone(), self.content.into_bytes());
        let size = bytes.len();
        let next = move |old: Option<&[u8]>, seen: Option<&_>| {
            check_whole(&name, old, seen)?;
            let lines = SeenLines::whole(count_lines(&bytes));
            Ok(NextVersion { bytes, lines })
        };
        let kept = files.write(call, path, spot, next).await?;
        Ok(format!("wrote {size} bytes to {path}{kept}"))
    }
}

parameters!(EditFile {
    path: String = required(Text, PATH),
    old_text: String = required(Text, "The exact text in the file."),
    new_text: String = required(Text, "The replacement."),
});

impl Tool for EditFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "edit_file",
        aliases: &["Edit", "MultiEdit"],
        description: "Replaces one piece of text in a file, in lines that you have read with read_file. \
                      old_text must occur exactly once.",
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (&self.path, &parts.files);
        if self.old_text.is_empty() {
            return Err(ToolError::reply(
                "old_text is empty; give the text to replace, or use write_file",
            ));
        }
        if self.old_text == self.new_text {
            return Err(ToolError::reply("old_text and new_text are the same"));
        }
        let spot = files.find_judged(call, path, Self::SPEC.effect)?;
        let name = path.clone();
        let Self { old_text, new_text, .. } = &self;
        let (old_text, new_text) = (old_text.clone(), new_text.clone());
        let next = move |old: Option<&[u8]>, seen: Option<&SeenFile>| {
            let old = old.ok_or_else(|| missing(&name))?;
            edited(&name, old, seen, (&old_text, &new_text))
        };
        let kept = files.write(call, path, spot, next).await?;
        Ok(format!("edited {path}{kept}"))
    }
}

/// Returns the version of a file in which the first text of a pair is replaced by the second one. Fails unless the
/// first one occurs exactly once, in lines that the agent has seen.
fn edited(
    path: &str,
    bytes: &[u8],
    seen: Option<&SeenFile>,
    (old, new): (&str, &str),
) -> Result<NextVersion, ToolError> {
    let seen = seen.ok_or_else(|| {
        ToolError::Reply(format!(
            "{path} has not been read by you yet; read it first with read_file, then repeat this call"
        ))
    })?;
    check_hash(path, bytes, seen)?;
    let text = str::from_utf8(bytes).map_err(|_| {
        ToolError::Reply(format!("{path} is not UTF-8 text; change it with bash (sed, python)"))
    })?;
    let mut places = text.match_indices(old);
    let advice = match (places.next(), places.count()) {
        (Some((at, old)), 0) => {
            let edit = Edit { text, at, old, new };
            check_piece(path, &edit, seen)?;
            let lines = seen.lines.after(&edit);
            return Ok(NextVersion { bytes: edit.result().into_bytes(), lines });
        }
        (None, _) if text.contains("\r\n") => "the file's lines end in \\r\\n: give them so",
        (None, _) => "copy it exactly from read_file, with its spaces and line breaks",
        (Some(_), _) => "give more of the text around it, so that it occurs once",
    };
    let count = text.matches(old).count();
    Err(ToolError::Reply(format!("old_text occurs {count} times in {path}; {advice}")))
}

fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; `ls` shows the files"))
}
