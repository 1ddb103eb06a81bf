//! The tools that search the workspace: [`grep`] in the content of files, [`list_files`] by their names.
//!
//! Both walk it as ripgrep does, with the same libraries: hidden files and those of `.gitignore` are left out unless they
//! are asked for. Results are sorted by path, and shown in pages.

mod grep;
mod left_out;
mod list_files;
mod page;
#[cfg(test)]
mod tests;
mod tree;

pub(super) use grep::Grep;
pub(super) use list_files::ListFiles;
