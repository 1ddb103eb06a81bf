//! File tools. [`access`] is the part of the file system that they reach.

mod access;
mod external_paths;
#[cfg(test)]
mod tests;

pub(crate) use access::FileAccess;
#[cfg(test)]
pub(crate) use tests::file_tools;

use super::call::{Call, ToolError, arguments};
use super::command::output::CappedOutput;
use super::parts::ToolParts;
use super::registry::Tool;
use crate::protocol::permission::PermissionSubject;
use crate::wire::tool::ParameterType::{Count, Text};
use crate::wire::tool::{Audience, Effect, Parameter, SubjectArgument, ToolSpec};
use access::{Knowledge, load};
use serde::Deserialize;

/// What all file tools have in common.
const FILE: ToolSpec = ToolSpec { subject: SubjectArgument::File("path"), ..ToolSpec::STRICT };

/// The argument that names a file.
const PATH: Parameter = Parameter::required("path", Text, "Path in the workspace.");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl Tool for ReadFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "read_file",
        aliases: &["Read"],
        description: "Reads a text file of the workspace. Of more than 50,000 characters the middle is \
                      cut: then ask for parts by offset and limit.",
        parameters: &[
            PATH,
            Parameter::optional("offset", Count { most: None }, "First line, from 1."),
            Parameter::optional("limit", Count { most: None }, "Number of lines."),
        ],
        compact: Some(Audience::Teammate),
        effect: Effect::Reads,
        ..FILE
    };

    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        parts.files.judge(call, &arguments::<Self>(call)?.path, Self::SPEC.effect)
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (&self.path, &parts.files);
        let spot = files.judged(call, path, Self::SPEC.effect)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        if bytes.contains(&0) {
            return Err(ToolError::Reply(format!(
                "{path} is binary ({} bytes); look at it with bash (file, xxd, strings)",
                bytes.len()
            )));
        }
        files.mark_seen(&spot, &bytes);
        self.excerpt(&String::from_utf8_lossy(&bytes))
    }
}

impl ReadFile {
    /// The requested lines, and below them their place in the file unless they are all.
    fn excerpt(&self, text: &str) -> Result<String, ToolError> {
        let total = text.lines().count();
        if total == 0 {
            return Ok("(the file is empty)".into());
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
        let mut shown = CappedOutput::cap(lines);
        if count < total {
            let line_end = if shown.ends_with('\n') { "" } else { "\n" };
            let last = first + count - 1;
            shown += &format!("{line_end}[lines {first} to {last} of {total}]");
        }
        Ok(shown)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    path: String,
    content: String,
}

impl Tool for WriteFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "write_file",
        aliases: &["Write"],
        description: "Writes a whole file of the workspace, new or instead of the old one; folders on \
                      the way are made. To change a part of a file use edit_file.",
        parameters: &[PATH, Parameter::required("content", Text, "All that the file will hold.")],
        compact: Some(Audience::Teammate),
        ..FILE
    };

    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        parts.files.judge(call, &arguments::<Self>(call)?.path, Self::SPEC.effect)
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, content, files) = (&self.path, self.content, &parts.files);
        let spot = files.judged(call, path, Self::SPEC.effect)?;
        let current = load(path, &spot)?;
        if current.is_some_and(|bytes| files.knowledge(&spot, &bytes) == Knowledge::Stale) {
            return Err(changed(path));
        }
        let size = content.len();
        files.replace(path, spot, content.into_bytes()).await?;
        Ok(format!("wrote {size} bytes to {path}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    path: String,
    old_text: String,
    new_text: String,
}

impl Tool for EditFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "edit_file",
        aliases: &["Edit", "MultiEdit"],
        description: "Replaces one piece of text in a file that you have read with read_file. old_text \
                      must occur exactly once.",
        parameters: &[
            PATH,
            Parameter::required("old_text", Text, "The text as it stands there."),
            Parameter::required("new_text", Text, "What replaces it."),
        ],
        ..FILE
    };

    fn subject(call: &Call, parts: &ToolParts) -> Result<PermissionSubject, ToolError> {
        parts.files.judge(call, &arguments::<Self>(call)?.path, Self::SPEC.effect)
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (Self { path, old_text, new_text }, files) = (&self, &parts.files);
        if old_text.is_empty() {
            return Err(ToolError::reply(
                "old_text is empty; give the text to replace, or use write_file",
            ));
        }
        if old_text == new_text {
            return Err(ToolError::reply("old_text and new_text are the same"));
        }
        let spot = files.judged(call, path, Self::SPEC.effect)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        match files.knowledge(&spot, &bytes) {
            Knowledge::Never => {
                return Err(ToolError::Reply(format!(
                    "{path} has not been read by you yet; read it first with read_file"
                )));
            }
            Knowledge::Stale => return Err(changed(path)),
            Knowledge::Current => {}
        }
        let text = str::from_utf8(&bytes).map_err(|_| {
            ToolError::Reply(format!("{path} is not UTF-8 text; change it with bash (sed, python)"))
        })?;
        let count = text.matches(old_text).count();
        let advice = match count {
            0 if text.contains("\r\n") => "the file's lines end in \\r\\n: give them so",
            0 => "copy it exactly from read_file, with its spaces and line breaks",
            1 => {
                let edited = text.replacen(old_text, new_text, 1).into_bytes();
                files.replace(path, spot, edited).await?;
                return Ok(format!("edited {path}"));
            }
            _ => "give more of the text around it, so that it occurs once",
        };
        Err(ToolError::Reply(format!("old_text occurs {count} times in {path}; {advice}")))
    }
}

/// The error for a file that must exist.
fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; look with `ls` which files there are"))
}

/// The error for content that the agent has not seen.
fn changed(path: &str) -> ToolError {
    ToolError::Reply(format!(
        "{path} has changed since you read it; read it again, then repeat what still applies"
    ))
}
