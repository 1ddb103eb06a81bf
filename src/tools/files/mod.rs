//! File tools, and the part of the file system that they reach.

mod access;
mod edit;
mod external_paths;
mod read;
#[cfg(test)]
mod tests;
mod workspace;
mod write;

pub(super) use access::FileAccess;
#[cfg(test)]
pub(crate) use tests::file_tools;

use super::registry::Registration;

/// The tools of this folder.
pub(super) const TOOLS: &[Registration] = &[read::TOOL, write::TOOL, edit::TOOL];
