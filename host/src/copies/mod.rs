//! Copies of files between hosts: what a person wants to see of other hosts, and the shared tasks of the lead's host.
//!
//! A host asks for a list of files, then for the parts that its copies lack. Nothing of it stays at the server.

mod attachments;
mod fetch;
mod source;
mod tasks;
mod wanted;

pub(crate) use attachments::Transfers;
pub(crate) use source::asked;
pub(crate) use tasks::{ListVersion, TaskListCopies};
pub(crate) use wanted::WantedCopies;

use agent_team::wire::attachment::Attachment;
use agent_team::wire::host_copy::{CopyPath, CopySelection, ListedFile};
use serde::{Deserialize, Serialize};

/// A question for files of another host.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedQuestion {
    v: u32,
    #[serde(flatten)]
    question: CopyQuestion,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum CopyQuestion {
    /// The files that there are.
    Files(CopySelection),
    /// A part of a file.
    Part { path: CopyPath, id: String, offset: u64, most: usize },
    /// A part of an attachment of a message.
    Attachment { attachment: Attachment, offset: u64, most: usize },
}

/// The answer to a question for files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FilesAnswer {
    Files(Vec<ListedFile>),
    Refused(String),
}
