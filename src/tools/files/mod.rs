//! File tools. [`access`] decides which files they may open, [`mod@write`] which changes they may make.

mod access;
mod apply_patch;
mod attachments;
mod changes;
mod edit;
mod image;
mod load;
mod locked_file;
mod nested;
mod notebook;
mod own_versions;
mod patch;
mod piece;
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
pub(in crate::tools) use access::UsedFiles;
pub(in crate::tools) use apply_patch::ApplyPatch;
pub(crate) use apply_patch::{changed_files, files_in_words};
pub(in crate::tools) use edit::EditFile;
pub(crate) use edit::edit_preview;
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
use crate::wire::tool::{Audience, CompactOffer, Effect, SubjectArgument, Supersedes, ToolSpec};
use image::ImageForm;
use load::{Loaded, load};
use seen_lines::{SeenLines, count_lines};
use write::{NextVersion, check_whole};

const FILE: ToolSpec =
    ToolSpec { subject: SubjectArgument::File("path"), of_subagents: true, ..ToolSpec::STRICT };

parameters!(ReadFile {
    path: String = required(Text, ""),
    offset: Option<usize> = optional(Count { most: None }, "First line, from 1."),
    limit: Option<usize> = optional(Count { most: None }, ""),
});

impl Tool for ReadFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "read_file",
        aliases: &["Read"],
        description: "Reads a text file of the workspace. Of more than 50,000 characters the middle is \
                      cut: then ask for parts by offset and limit.",
        compact: Some(CompactOffer::always(Audience::Teammate, "Read a file.")),
        effect: Effect::Reads,
        supersedes: Supersedes::WholeRead,
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (&self.path, &parts.files);
        let spot = files.find_judged(call, path, Self::SPEC.effect)?;
        let Loaded { bytes, stamp, .. } = load(path, &spot)?.ok_or_else(|| missing(path))?;
        if let Some(form) = ImageForm::of(&bytes) {
            if !parts.model.get().sees_images {
                return Err(ToolError::Reply(format!(
                    "{path} is an image ({}), and your model is not known to see images; look at it with a program \
                     in bash",
                    form.in_words()
                )));
            }
            form.check(path, &bytes)?;
            files.note_read(call, &spot, ContentHash::of(&bytes), &SeenLines::default(), stamp);
            files.note_image(call, path, form, bytes).await?;
            return Ok(format!("[the image {path} ({}) is shown below]", form.in_words()));
        }
        if bytes.starts_with(b"%PDF-") {
            return Err(ToolError::Reply(format!(
                "{path} is a PDF; show its text with bash: pdftotext -layout {path} - (or another program that is installed)"
            )));
        }
        if bytes.contains(&0) {
            return Err(ToolError::Reply(format!(
                "{path} is binary ({} bytes); look at it with bash (file, xxd, strings)",
                bytes.len()
            )));
        }
        if let Some(shown) = self.notebook(&bytes) {
            // The model has seen no line of the file itself.
            files.note_read(call, &spot, ContentHash::of(&bytes), &SeenLines::default(), stamp);
            return Ok(shown);
        }
        let (shown, lines) = self.excerpt(&String::from_utf8_lossy(&bytes))?;
        files.note_read(call, &spot, ContentHash::of(&bytes), &lines, stamp);
        Ok(shown)
    }
}

/// Returns the files that are read only by a call that is judged: the rules keep them from `read_file`, or ask about it.
pub(crate) fn guarded_files(policy: &Policy) -> DeniedFiles {
    policy.guarded_files(&ReadFile::SPEC)
}

/// Returns the files that the rules keep from `read_file`.
pub(crate) fn denied_files(policy: &Policy) -> DeniedFiles {
    policy.denied_files(&ReadFile::SPEC)
}

impl ReadFile {
    /// Returns a notebook as text, unless lines of the file itself are wanted.
    fn notebook(&self, bytes: &[u8]) -> Option<String> {
        let is_named = self.path.to_lowercase().ends_with(".ipynb");
        let is_whole = self.offset.is_none() && self.limit.is_none();
        if !is_named || !is_whole {
            return None;
        }
        let text = notebook::text(bytes)?;
        let note = "[a notebook as text, without images; give offset and limit for lines of the file itself]";
        Some(format!("{}\n{note}", CappedOutput::cap(text.split_inclusive('\n'))))
    }

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

parameters!(WriteFile { path: String = required(Text, ""), content: String = required(Text, "") });

impl Tool for WriteFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "write_file",
        aliases: &["Write"],
        description: "Writes a whole file; folders on the way are made. An existing one must have been \
                      read whole with read_file. To change a part use edit_file.",
        compact: Some(
            CompactOffer::always(Audience::Teammate, "Write a whole file.").followed_by(
                "this call is done. Now do the next step, or answer if it was the last.",
            ),
        ),
        supersedes: Supersedes::WholeWrite,
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
            Ok(NextVersion { bytes, lines, remark: String::new() })
        };
        let kept = files.write(call, path, spot, next).await?;
        Ok(format!("wrote {size} bytes to {path}{kept}"))
    }
}

fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; `ls` shows the files"))
}
