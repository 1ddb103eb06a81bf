//! File tools. [`access`] decides which files they may open.

mod access;
#[cfg(test)]
mod tests;

pub(crate) use access::FileAccess;
#[cfg(test)]
pub(crate) use tests::file_tools;

use super::call::{Call, ToolError};
use super::command::output::CappedOutput;
use super::registry::{Tool, ToolParts, parameters};
use crate::wire::tool::ParameterType::{Count, Text};
use crate::wire::tool::{Audience, CompactOffer, Effect, SubjectArgument, ToolSpec};

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
        let (spot, bytes) = files.load(call, path, Self::SPEC.effect)?;
        let bytes = bytes.ok_or_else(|| missing(path))?;
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
    /// Returns the requested lines, and below them their line numbers unless they are the whole file.
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
            shown = format!("{shown}{line_end}[lines {first} to {last} of {total}]");
        }
        Ok(shown)
    }
}

parameters!(WriteFile {
    path: String = required(Text, PATH),
    content: String = required(Text, "The complete new content of the file."),
});

impl Tool for WriteFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "write_file",
        aliases: &["Write"],
        description: "Writes a whole file of the workspace, new or instead of the old one; folders on \
                      the way are made. To change a part of a file use edit_file.",
        compact: Some(CompactOffer::always(Audience::Teammate, "Write a whole file.")),
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, content, files) = (&self.path, self.content, &parts.files);
        let (spot, bytes) = files.load(call, path, Self::SPEC.effect)?;
        if let Some(bytes) = bytes {
            files.is_known(path, &spot, &bytes)?;
        }
        let size = content.len();
        files.replace(path, spot, content.into_bytes()).await?;
        Ok(format!("wrote {size} bytes to {path}"))
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
        description: "Replaces one piece of text in a file that you have read with read_file. old_text \
                      must occur exactly once.",
        ..FILE
    };

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
        let (spot, bytes) = files.load(call, path, Self::SPEC.effect)?;
        let bytes = bytes.ok_or_else(|| missing(path))?;
        if !files.is_known(path, &spot, &bytes)? {
            return Err(ToolError::Reply(format!(
                "{path} has not been read by you yet; read it first with read_file"
            )));
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

fn missing(path: &str) -> ToolError {
    ToolError::Reply(format!("{path} does not exist; look with `ls` which files there are"))
}
