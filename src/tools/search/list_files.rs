//! `list_files`: finds files by their names, as `rg --files` does.

use super::page::Page;
use super::tree::{Scope, Step, Tree};
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use crate::tools::registry::{Tool, ToolParts, parameters};
use crate::wire::tool::ParameterType::{Boolean, Count, Text};
use crate::wire::tool::{AfterCrash, Effect, Supersedes, ToolSpec};
use std::sync::{Mutex, PoisonError};

/// The number of files of a page.
const PAGE_FILES: usize = 500;

/// The number of files that a search keeps.
const MAX_FILES: usize = 500_000;

parameters!(ListFiles {
    path: Option<String> = optional(Text, "A folder; the workspace if left out."),
    glob: Option<String> = optional(Text, "Only files that match, such as *.rs or src/**/test_*."),
    depth: Option<usize> = optional(Count { most: None }, "1 shows one folder."),
    all: Option<bool> = optional(Boolean, "Also hidden and ignored files."),
    offset: Option<usize> = optional(Count { most: None }, ""),
});

impl Tool for ListFiles {
    const SPEC: ToolSpec = ToolSpec {
        name: "list_files",
        aliases: &["Glob", "LS"],
        description: "Lists the files of the workspace by path, without hidden and ignored ones. Without a glob \
                      begin with depth 1 or 2.",
        effect: Effect::Reads,
        after_crash: AfterCrash::Repeat,
        supersedes: Supersedes::SameCall,
        of_subagents: true,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let scope = Scope {
            path: self.path.as_deref(),
            glob: self.glob.as_deref(),
            has_all: self.all.unwrap_or_default(),
            depth: self.depth,
        };
        let (tree, _end) = Tree::new(&parts.files.workspace, parts.files.search_limits(), scope)?;
        let offset = self.offset;
        Ok(offload(move || show(&tree, offset)).await)
    }
}

fn show(tree: &Tree, offset: Option<usize>) -> String {
    let paths = Mutex::new(Vec::new());
    let is_whole = tree.walk(|| {
        let paths = &paths;
        move |entry| {
            let end = if entry.is_folder { "/" } else { "" };
            let path = format!("{}{end}", entry.path.display());
            let mut paths = paths.lock().unwrap_or_else(PoisonError::into_inner);
            paths.push(path);
            if paths.len() > MAX_FILES { Step::End } else { Step::Next }
        }
    });
    let mut paths = paths.into_inner().unwrap_or_else(PoisonError::into_inner);
    paths.sort_unstable();
    let page = Page::new(offset, PAGE_FILES, paths.len(), !is_whole);
    let note = page.note("files");
    let shown = paths.get(page.shown).unwrap_or_default();
    let none = (shown.is_empty() && note.is_none()).then(|| {
        let why = if is_whole {
            "no file matches; `all` also shows hidden and ignored ones"
        } else {
            "no file matches in what was searched: the search took too long; give a path"
        };
        why.to_owned()
    });
    let notes = none.into_iter().chain(note).chain(tree.passed_over());
    shown.iter().cloned().chain(notes).collect::<Vec<_>>().join("\n")
}
