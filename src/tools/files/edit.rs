//! `edit_file`: replaces pieces of a file.

use super::piece::{self, Piece};
use super::read_log::SeenFile;
use super::seen_lines::{Edit, SeenLines, count_lines};
use super::write::{NextVersion, check_hash, check_piece};
use super::{FILE, missing};
use crate::tools::call::{Call, ToolError};
use crate::tools::registry::{Tool, ToolParts, parameters};
use crate::wire::tool::ParameterType::{Boolean, Text, TextEdits};
use crate::wire::tool::ToolSpec;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The number of replacements that one call makes.
const MAX_REPLACEMENTS: usize = 1000;

/// A replacement in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct TextEdit {
    old_text: String,
    new_text: String,
}

parameters!(EditFile {
    path: String = required(Text, ""),
    old_text: Option<String> = required(Text, ""),
    new_text: Option<String> = required(Text, ""),
    replace_all: Option<bool> = optional(Boolean, ""),
    edits: Option<Vec<TextEdit>> = optional(TextEdits, "Further edits of this file, made in order: all or none."),
});

impl Tool for EditFile {
    const SPEC: ToolSpec = ToolSpec {
        name: "edit_file",
        aliases: &["Edit", "MultiEdit"],
        description: "Replaces one piece of text in a file, or several, in lines that you have read with \
                      read_file. old_text must occur exactly once.",
        ..FILE
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (path, files) = (self.path.clone(), &parts.files);
        let is_everywhere = self.replace_all.unwrap_or_default();
        let edits = self.edits()?;
        let spot = files.find_judged(call, &path, Self::SPEC.effect)?;
        let name = path.clone();
        let next = move |old: Option<&[u8]>, seen: Option<&SeenFile>| {
            let old = old.ok_or_else(|| missing(&name))?;
            edited(&name, old, seen, &edits, is_everywhere)
        };
        let remarks = files.write(call, &path, spot, next).await?;
        Ok(format!("edited {path}{remarks}"))
    }
}

impl EditFile {
    /// Returns the edits in their order. Fails for one that has nothing to replace or changes nothing.
    fn edits(self) -> Result<Vec<TextEdit>, ToolError> {
        let first = match (self.old_text, self.new_text) {
            (Some(old_text), Some(new_text)) => Some(TextEdit { old_text, new_text }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(ToolError::reply("give both old_text and new_text"));
            }
        };
        let edits: Vec<TextEdit> =
            first.into_iter().chain(self.edits.into_iter().flatten()).collect();
        if edits.is_empty() {
            return Err(ToolError::reply("there is no edit; give old_text and new_text"));
        }
        for (number, TextEdit { old_text, new_text }) in (1..).zip(&edits) {
            let which = which(number, edits.len());
            if old_text.is_empty() {
                return Err(ToolError::Reply(format!(
                    "{which}old_text is empty; give the text to replace, or use write_file"
                )));
            }
            if old_text == new_text {
                return Err(ToolError::Reply(format!("{which}old_text and new_text are the same")));
            }
        }
        Ok(edits)
    }
}

/// Returns the content that a file with this text would have after a call of the tool, or the reason for which the call would
/// fail; `None` if these are no arguments of the tool.
pub(crate) fn edit_preview(input: &Value, text: &str) -> Option<Result<String, String>> {
    let call: EditFile = serde_json::from_value(input.clone()).ok()?;
    let (path, is_everywhere) = (call.path.clone(), call.replace_all.unwrap_or_default());
    let edits = match call.edits() {
        Ok(edits) => edits,
        Err(why) => return Some(Err(why.to_string())),
    };
    let lines = SeenLines::whole(count_lines(text.as_bytes()));
    let version = Version::after(&path, text, lines, &edits, is_everywhere);
    Some(version.map(|version| version.text))
}

/// Names one of several edits.
fn which(number: usize, of: usize) -> String {
    if of == 1 { String::new() } else { format!("edit {number} of {of}: ") }
}

/// Returns the version of a file after all edits. Fails, and changes nothing, unless each of them has one place, in lines
/// that the agent has seen.
fn edited(
    path: &str,
    bytes: &[u8],
    seen: Option<&SeenFile>,
    edits: &[TextEdit],
    is_everywhere: bool,
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
    let version = Version::after(path, text, seen.lines.clone(), edits, is_everywhere);
    let version = version.map_err(|why| ToolError::Reply(format!("nothing was changed: {why}")))?;
    let Version { text, lines, differences, .. } = version;
    let differences: Vec<&str> = differences.into_iter().collect();
    let remark = match differences.as_slice() {
        [] => String::new(),
        some => format!(
            "; old_text differed from the file in {}, whose other lines were kept",
            some.join(" and in ")
        ),
    };
    Ok(NextVersion { bytes: text.into_bytes(), lines, remark })
}

/// A file during its edits.
struct Version<'a> {
    path: &'a str,
    text: String,
    lines: SeenLines,
    /// The differences that were forgiven.
    differences: BTreeSet<&'static str>,
}

impl<'a> Version<'a> {
    /// Returns the version after all edits. Fails with the reason if one of them has no place.
    fn after(
        path: &'a str,
        text: &str,
        lines: SeenLines,
        edits: &[TextEdit],
        is_everywhere: bool,
    ) -> Result<Self, String> {
        let mut version = Self { path, text: text.to_owned(), lines, differences: BTreeSet::new() };
        for (number, TextEdit { old_text, new_text }) in (1..).zip(edits) {
            let done = if is_everywhere {
                version.replace_all(old_text, new_text)
            } else {
                version.replace(old_text, new_text)
            };
            done.map_err(|why| format!("{}{why}", which(number, edits.len())))?;
        }
        Ok(version)
    }

    fn replace(&mut self, old: &str, new: &str) -> Result<(), String> {
        let Piece { at, old, new, difference } = piece::find(self.path, &self.text, old, new)?;
        self.differences.extend(difference);
        let edit = Edit { text: &self.text, at, old, new: &new };
        check_piece(self.path, &edit, &self.lines)?;
        let lines = self.lines.after(&edit);
        (self.text, self.lines) = (edit.result(), lines);
        Ok(())
    }

    /// Replaces every occurrence, from the last one on, so that the places of the others stay.
    fn replace_all(&mut self, old: &str, new: &str) -> Result<(), String> {
        let places: Vec<usize> = self.text.match_indices(old).map(|(at, _)| at).collect();
        if places.is_empty() {
            return self.replace(old, new);
        }
        if places.len() > MAX_REPLACEMENTS {
            return Err(format!(
                "old_text occurs {} times in {}, and one call replaces at most {MAX_REPLACEMENTS}; use bash (sed)",
                places.len(),
                self.path
            ));
        }
        for at in places.into_iter().rev() {
            let edit = Edit { text: &self.text, at, old, new };
            check_piece(self.path, &edit, &self.lines)?;
            let lines = self.lines.after(&edit);
            (self.text, self.lines) = (edit.result(), lines);
        }
        Ok(())
    }
}
