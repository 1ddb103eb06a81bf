//! The instructions of folders below the workspace: the agent is told of them once it has read or written a file there.
//!
//! *Invariant:* which instructions the model was told is a function of the transcript. After a compaction none were, since
//! the memory has none of them left.

use super::readable::ReadLimits;
use crate::os::safe_path::SafeRoot;
use crate::store::asynchronous::offload;
use crate::store::instructions::{FolderInstructions, of_folder};
use crate::wire::transcript::Entry;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders with files of other people or of programs: their instructions are not for this workspace.
const FOREIGN: [&str; 8] =
    [".git", ".hg", ".jj", ".svn", ".team", ".venv", "node_modules", "site-packages"];

/// The maximum size of instructions of folders, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NestedLimits {
    /// Of one file with what it imports.
    pub(crate) each: usize,
    /// Of all of them in a memory.
    pub(crate) total: usize,
}

/// The instructions of folders below the workspace, for one agent.
#[derive(Debug)]
pub(crate) struct NestedInstructions {
    sizes: NestedLimits,
    limits: Option<ReadLimits>,
    state: RefCell<Told>,
}

#[derive(Debug, Clone, Default)]
struct Told {
    /// The files that the agent has read or written since the last look.
    touched: BTreeSet<PathBuf>,
    /// The files of instructions in the agent's memory, and the size of their texts in bytes.
    files: BTreeSet<PathBuf>,
    bytes: usize,
}

/// A look for instructions, as work for another thread.
struct Look {
    root: Arc<SafeRoot>,
    sizes: NestedLimits,
    limits: Option<ReadLimits>,
    told: Told,
}

impl NestedInstructions {
    pub(crate) fn new(sizes: NestedLimits, limits: Option<ReadLimits>) -> Self {
        Self { sizes, limits, state: RefCell::default() }
    }

    /// Returns the instructions for a conversation of its own with the same limits.
    pub(in crate::tools) fn for_subagent(&self) -> Self {
        Self::new(self.sizes, self.limits.clone())
    }

    /// Follows an entry of the transcript.
    pub(in crate::tools) fn follow(&self, entry: &Entry) {
        let mut told = self.state.borrow_mut();
        if let Entry::ToolResult { file, more_files, .. } = entry {
            for view in file.iter().map(Box::as_ref).chain(more_files) {
                let path = Path::new(&view.path);
                let is_below = path.parent().is_some_and(|folder| folder != Path::new(""));
                if path.is_relative() && is_below {
                    told.touched.insert(path.to_owned());
                }
            }
        } else if let Entry::Instructions { file, content } = entry {
            told.files.insert(PathBuf::from(file));
            told.bytes += content.len();
        } else if let Entry::Compacted { .. } = entry {
            *told = Told::default();
        }
    }

    /// Returns the instructions for the files that the agent has read or written since the last look and of which it was
    /// not told, those of outer folders first.
    pub(in crate::tools) async fn next(&self, root: &Arc<SafeRoot>) -> Vec<FolderInstructions> {
        let told = {
            let mut state = self.state.borrow_mut();
            if state.touched.is_empty() {
                return Vec::new();
            }
            let told = state.clone();
            state.touched.clear();
            told
        };
        let (sizes, limits) = (self.sizes, self.limits.clone());
        let look = Look { root: Arc::clone(root), sizes, limits, told };
        offload(move || look.run()).await
    }
}

impl Look {
    fn run(mut self) -> Vec<FolderInstructions> {
        let mut found = Vec::new();
        for file in std::mem::take(&mut self.told.touched) {
            let folders: Vec<&Path> = file.ancestors().skip(1).collect();
            for folder in folders.into_iter().rev().filter(|folder| *folder != Path::new("")) {
                if folder.file_name().is_some_and(is_foreign) {
                    break;
                }
                if let Some(next) = self.of_folder(folder, &file) {
                    found.push(next);
                }
            }
        }
        found
    }

    /// Returns the instructions of a folder in which the agent has used `file`, unless they are that file.
    fn of_folder(&mut self, folder: &Path, file: &Path) -> Option<FolderInstructions> {
        let limits = self.limits.as_ref();
        let refuses = |path: &Path| limits.is_some_and(|limits| limits.refuses(path));
        let is_known = |path: &Path| path == file || self.told.files.contains(path);
        let (found, problems) = of_folder(&self.root, folder, self.sizes.each, &refuses, &is_known);
        for problem in &problems {
            tracing::warn!(problem, "the instructions of a folder are incomplete");
        }
        let mut found = found?;
        if self.told.bytes + found.text.len() > self.sizes.total {
            found.text.clear();
        }
        self.told.bytes += found.text.len();
        self.told.files.insert(found.file.clone());
        Some(found)
    }
}

fn is_foreign(name: &OsStr) -> bool {
    FOREIGN.iter().any(|foreign| name.eq_ignore_ascii_case(foreign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::Usage;
    use crate::wire::file_view::{ContentHash, FileView};
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Fixture {
        folder: tempfile::TempDir,
        nested: NestedInstructions,
    }

    impl Fixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let sizes = NestedLimits { each: 200, total: 500 };
            let folder = tempfile::tempdir().unwrap();
            for (path, text) in files {
                put(folder.path(), path, text);
            }
            Self { folder, nested: NestedInstructions::new(sizes, None) }
        }

        /// Uses a file, and returns what the agent is told, as its transcript says it.
        fn used(&self, path: &str) -> Vec<(String, String)> {
            self.nested.follow(&used(path));
            let root = Arc::new(SafeRoot::open(self.folder.path()).unwrap());
            let found = super::super::tests::block_on(self.nested.next(&root));
            let told = found.into_iter().map(|it| (it.file.display().to_string(), it.text));
            let told: Vec<_> = told.collect();
            for (file, content) in told.clone() {
                self.nested.follow(&Entry::Instructions { file, content });
            }
            told
        }

        fn files(&self, path: &str) -> Vec<String> {
            self.used(path).into_iter().map(|(file, _)| file).collect()
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn put(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn used(path: &str) -> Entry {
        let view = FileView { path: path.into(), hash: ContentHash::of(b""), lines: vec![] };
        let (tool_use_id, content) = (String::new(), String::new());
        Entry::tool_result(tool_use_id, content, false, vec![view])
    }

    fn compacted() -> Entry {
        let (summary, situation) = (String::new(), String::new());
        Entry::Compacted { summary, situation, usage: Usage::default(), context_tokens: None }
    }

    #[test]
    fn instructions_of_the_folders_of_a_file_are_told_once_from_the_outside_in() {
        let fixture = Fixture::new(&[
            ("AGENTS.md", "Root."),
            ("a/AGENTS.md", "A."),
            ("a/CLAUDE.md", "Not read."),
            ("a/b/c/CLAUDE.md", "C.\n@more.md"),
            ("a/b/c/more.md", "More."),
            ("d/AGENTS.md", "D."),
        ]);
        assert_eq!(fixture.used("main.rs"), []);
        assert_eq!(fixture.used("/a/outside"), []);
        let told = fixture.used("a/b/c/x.rs");
        let expected = [("a/AGENTS.md", "A."), ("a/b/c/CLAUDE.md", "C.\n[a/b/c/more.md]\nMore.")];
        assert_eq!(told, expected.map(|(file, text)| (file.to_owned(), text.to_owned())));
        assert_eq!((fixture.used("a/b/c/x.rs"), fixture.used("a/y.rs")), (vec![], vec![]));
        // An agent that reads the instructions as a file is told of them at the next file.
        assert_eq!(
            (fixture.used("d/AGENTS.md"), fixture.files("d/x")),
            (vec![], vec!["d/AGENTS.md".into()])
        );
        fixture.nested.follow(&compacted());
        assert_eq!(fixture.files("a/y.rs"), ["a/AGENTS.md"]);
    }

    #[test]
    fn instructions_that_are_not_of_the_workspace_are_not_told() {
        let outside = tempfile::tempdir().unwrap();
        put(outside.path(), "AGENTS.md", "Outside.");
        let fixture = Fixture::new(&[
            ("node_modules/x/AGENTS.md", "Foreign."),
            (".git/AGENTS.md", "Git."),
            (".TEAM/AGENTS.md", "Team."),
            ("empty/AGENTS.md", " "),
            ("empty/CLAUDE.md", "Second."),
            ("out/x", ""),
        ]);
        symlink(outside.path().join("AGENTS.md"), fixture.folder.path().join("out/AGENTS.md"))
            .unwrap();
        symlink("../.git/AGENTS.md", fixture.folder.path().join("out/CLAUDE.md")).unwrap();
        for path in ["node_modules/x/y", ".git/x", ".TEAM/x", "out/x"] {
            assert_eq!(fixture.used(path), [], "{path}");
        }
        assert_eq!(fixture.files("empty/x"), ["empty/CLAUDE.md"]);
    }

    #[test]
    fn instructions_are_cut_and_those_without_room_are_only_named() {
        let long = "é".repeat(300);
        let names = ["a", "b", "c", "d"].map(|name| format!("{name}/AGENTS.md"));
        let fixture = Fixture::new(&names.each_ref().map(|name| (name.as_str(), long.as_str())));
        let told = ["a/x", "b/x", "c/x", "d/x"].map(|path| fixture.used(path).remove(0).1);
        let cut = format!("{}\n[the rest is cut: read the file]", "é".repeat(100));
        assert_eq!(told, [cut.clone(), cut, String::new(), String::new()]);
    }
}
