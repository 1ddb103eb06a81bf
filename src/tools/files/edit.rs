//! The `edit_file` tool.

use super::access::{FileAccess, Knowledge, changed, load, missing};
use crate::protocol::permission::PermissionSubject;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{Parameter, ParameterType, SubjectArgument, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "edit_file",
        aliases: &["Edit", "MultiEdit"],
        description: "Replaces one piece of text in a file that you have read with read_file. old_text \
                      must occur exactly once.",
        parameters: &[
            Parameter::required("path", ParameterType::Text, "Path in the workspace."),
            Parameter::required("old_text", ParameterType::Text, "The text as it stands there."),
            Parameter::required("new_text", ParameterType::Text, "What replaces it."),
        ],
        subject: SubjectArgument::File("path"),
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(EditFile(Rc::clone(&parts.files)))),
};

pub(super) struct EditFile(pub(super) Rc<FileAccess>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    old_text: String,
    new_text: String,
}

impl EditFile {
    async fn edit(&self, call: &Call) -> Result<String, ToolError> {
        let Arguments { path, old_text, new_text } = &arguments(call)?;
        if old_text.is_empty() {
            return Err(ToolError::reply(
                "old_text is empty; give the text to replace, or use write_file",
            ));
        }
        if old_text == new_text {
            return Err(ToolError::reply("old_text and new_text are the same"));
        }
        let spot = self.0.to_write(call, path)?;
        let bytes = load(path, &spot)?.ok_or_else(|| missing(path))?;
        match self.0.knowledge(&spot, &bytes) {
            Knowledge::Never => {
                return Err(ToolError::Reply(format!(
                    "{path} has not been read by you yet; read it first with read_file"
                )));
            }
            Knowledge::Stale => return Err(changed(path)),
            Knowledge::Current => {}
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(ToolError::Reply(format!(
                "{path} is not UTF-8 text; change it with bash (sed, python)"
            )));
        };
        let count = text.matches(old_text.as_str()).count();
        if count != 1 {
            return Err(wrong_count(path, text, count));
        }
        let edited = text.replacen(old_text.as_str(), new_text, 1).into_bytes();
        self.0.replace(path, spot, edited).await?;
        Ok(format!("edited {path}"))
    }
}

impl Tool for EditFile {
    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: Arguments = arguments(call)?;
        self.0.subject_to_write(call, &input.path)
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(self.edit(call))
    }
}

fn wrong_count(path: &str, text: &str, count: usize) -> ToolError {
    let advice = match count {
        0 if text.contains("\r\n") => "the file's lines end in \\r\\n: give them so",
        0 => "copy it exactly from read_file, with its spaces and line breaks",
        _ => "give more of the text around it, so that it occurs once",
    };
    ToolError::Reply(format!("old_text occurs {count} times in {path}; {advice}"))
}
