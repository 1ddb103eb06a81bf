//! Copies of files between hosts: what a person wants to see of other hosts, and the shared tasks of the lead's host.
//!
//! A host asks for a list of files, then for the parts that its copies lack. Nothing of it stays at the server.

mod fetch;
mod source;
mod tasks;
mod wanted;

pub(crate) use source::asked;
pub(crate) use tasks::{ListVersion, TaskListCopies};
pub(crate) use wanted::WantedCopies;

use agent_team::wire::host_copy::{CopyPath, CopySelection, ListedFile};
use serde::{Deserialize, Serialize};

/// The most bytes of a part.
const MOST_BYTES: usize = 256 * 1024;

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
}

/// The answer to a question for files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FilesAnswer {
    Files(Vec<ListedFile>),
    Refused(String),
}

/// The first line of the answer to a question for a part; the bytes follow it.
#[derive(Debug, Serialize, Deserialize)]
struct PartHead {
    is_there: bool,
}
