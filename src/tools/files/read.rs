//! The `read_file` tool.

use super::access::{FileAccess, load, missing};
use crate::protocol::permission::PermissionSubject;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::command::output::CappedOutput;
use crate::tools::registry::Registration;
use crate::wire::tool::{Audience, Effect, Parameter, ParameterType, SubjectArgument, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "read_file",
        aliases: &["Read"],
        description: "Reads a text file of the workspace. Of more than 50,000 characters the middle is \
                      cut: then ask for parts by offset and limit.",
        parameters: &[
            Parameter::required("path", ParameterType::Text, "Path in the workspace."),
            Parameter::optional(
                "offset",
                ParameterType::Count { most: None },
                "First line, from 1.",
            ),
            Parameter::optional("limit", ParameterType::Count { most: None }, "Number of lines."),
        ],
        compact: Some(Audience::Teammate),
        effect: Effect::Reads,
        subject: SubjectArgument::File("path"),
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ReadFile(Rc::clone(&parts.files)))),
};

pub(super) struct ReadFile(pub(super) Rc<FileAccess>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl ReadFile {
    fn read(&self, call: &Call) -> Result<String, ToolError> {
        let input: Arguments = arguments(call)?;
        let path = &input.path;
        let spot = self.0.to_read(call, path)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        if bytes.contains(&0) {
            return Err(ToolError::Reply(format!(
                "{path} is binary ({} bytes); look at it with bash (file, xxd, strings)",
                bytes.len()
            )));
        }
        self.0.mark_seen(&spot, &bytes);
        excerpt(&input, &String::from_utf8_lossy(&bytes))
    }
}

impl Tool for ReadFile {
    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: Arguments = arguments(call)?;
        self.0.subject_to_read(call, &input.path)
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async { self.read(call) })
    }
}

/// The requested lines, and below them their place in the file unless they are all.
fn excerpt(input: &Arguments, text: &str) -> Result<String, ToolError> {
    let total = text.lines().count();
    if total == 0 {
        return Ok("(the file is empty)".into());
    }
    let first = input.offset.unwrap_or(1).max(1);
    if first > total {
        return Err(ToolError::Reply(format!(
            "{} has only {total} lines; give an offset from 1 to {total}",
            input.path
        )));
    }
    let last = total.min(first.saturating_add(input.limit.unwrap_or(total).max(1)) - 1);
    let mut shown = CappedOutput::default();
    for line in text.split_inclusive('\n').skip(first - 1).take(last - first + 1) {
        shown.push_text(line);
    }
    let mut shown = shown.finish();
    if last - first + 1 < total {
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        let note = format!("[lines {first} to {last} of {total}]");
        shown.push_str(&note);
    }
    Ok(shown)
}
