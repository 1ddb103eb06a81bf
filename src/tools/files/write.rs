//! The `write_file` tool.

use super::access::{FileAccess, Knowledge, changed, load};
use crate::protocol::permission::PermissionSubject;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{Audience, Parameter, ParameterType, SubjectArgument, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "write_file",
        aliases: &["Write"],
        description: "Writes a whole file of the workspace, new or instead of the old one; folders on \
                      the way are made. To change a part of a file use edit_file.",
        parameters: &[
            Parameter::required("path", ParameterType::Text, "Path in the workspace."),
            Parameter::required("content", ParameterType::Text, "All that the file will hold."),
        ],
        compact: Some(Audience::Teammate),
        subject: SubjectArgument::File("path"),
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(WriteFile(Rc::clone(&parts.files)))),
};

pub(super) struct WriteFile(pub(super) Rc<FileAccess>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
}

impl WriteFile {
    async fn write(&self, call: &Call) -> Result<String, ToolError> {
        let Arguments { path, content } = arguments(call)?;
        let path = path.as_str();
        let spot = self.0.to_write(call, path)?;
        let current = load(path, &spot)?;
        if current.is_some_and(|bytes| self.0.knowledge(&spot, &bytes) == Knowledge::Stale) {
            return Err(changed(path));
        }
        let size = content.len();
        self.0.replace(path, spot, content.into_bytes()).await?;
        Ok(format!("wrote {size} bytes to {path}"))
    }
}

impl Tool for WriteFile {
    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        let input: Arguments = arguments(call)?;
        self.0.subject_to_write(call, &input.path)
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(self.write(call))
    }
}
