//! Instructions that people write for agents: `AGENTS.md` and `CLAUDE.md`, and the files that they import.
//!
//! A line `@path` outside of a code block is replaced by that file. The path is relative to the file with the line. An `@`
//! within a line has no effect: there it is mostly the name of a person, a package or a decorator.
//!
//! Links are followed within the workspace and never out of it. What cannot be read is a problem, not an error, and the
//! line stays.

use super::bounded_text::read;
use crate::os::safe_path::SafeRoot;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The files with instructions in a folder. The first one is meant for every agent.
const FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The maximum number of files on the way from an `AGENTS.md` to a file that it imports, as in Claude Code.
const DEEPEST: usize = 5;

/// The maximum number of problems that are named.
const MOST_PROBLEMS: usize = 20;

/// Folders whose files are never imported.
const PRIVATE: [&str; 2] = [".git", ".team"];

/// Whether a real path may not be read.
pub(crate) type Refuses<'a> = &'a dyn Fn(&Path) -> bool;

/// Instructions for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// The text, each file below its name.
    pub(crate) text: String,
    /// Sentences about files that are missing or cut in the text.
    pub(crate) problems: Vec<String>,
}

/// Reads `AGENTS.md` and `CLAUDE.md` of the workspace with what they import, at most `longest` bytes in total.
pub(crate) fn of_workspace(workspace: &Path, longest: usize, refuses: Refuses<'_>) -> Instructions {
    let Ok(root) = SafeRoot::open(workspace) else { return Instructions::default() };
    let mut reader = Reader::new(&root, longest, refuses);
    let mut text = String::new();
    let mut seen: Vec<String> = Vec::new();
    for name in FILES {
        let found = match reader.include(Path::new(name), 0) {
            Ok(found) => found,
            Err(why) => {
                reader.problem(format!("{name} {why}, so it is left out"));
                continue;
            }
        };
        // One file is often a copy of the other, or only a reference to it.
        let Some(found) = found.filter(|found| !found.is_empty() && !seen.contains(found)) else {
            continue;
        };
        let _infallible = write!(text, "[{name}]\n{found}\n");
        seen.push(found);
    }
    Instructions { text, problems: reader.problems }
}

/// The instructions of a folder below the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderInstructions {
    /// The path of their file below the root.
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

/// Reads `AGENTS.md` of a folder, else `CLAUDE.md`, with what it imports, at most `longest` bytes. Returns `None` if there
/// is none that may be read, or if it is known; and sentences about files that are missing or cut in the text.
pub(crate) fn of_folder(
    root: &SafeRoot,
    folder: &Path,
    longest: usize,
    refuses: Refuses<'_>,
    is_known: &dyn Fn(&Path) -> bool,
) -> (Option<FolderInstructions>, Vec<String>) {
    let mut problems = Vec::new();
    for file in FILES.map(|name| folder.join(name)) {
        if is_known(&file) {
            break;
        }
        let mut reader = Reader { checks_all: true, ..Reader::new(root, longest, refuses) };
        let found = reader.include(&file, 0);
        problems.append(&mut reader.problems);
        match found {
            Ok(Some(mut text)) if !text.is_empty() => {
                if reader.is_cut {
                    text.push_str("\n[the rest is cut: read the file]");
                }
                return (Some(FolderInstructions { file, text }), problems);
            }
            Ok(_) => {}
            Err(why) => problems.push(format!("{} {why}, so it is left out", file.display())),
        }
    }
    (None, problems)
}

/// Reads files with instructions, each at most once.
struct Reader<'a> {
    root: &'a SafeRoot,
    longest: usize,
    /// The number of bytes that may still be read.
    left: usize,
    refuses: Refuses<'a>,
    /// Whether the first file may be refused, too.
    checks_all: bool,
    /// Whether a part of a file is missing in the text.
    is_cut: bool,
    seen: BTreeSet<PathBuf>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(root: &'a SafeRoot, longest: usize, refuses: Refuses<'a>) -> Self {
        let (seen, problems) = (BTreeSet::new(), Vec::new());
        let (checks_all, is_cut) = (false, false);
        Self { root, longest, left: longest, refuses, checks_all, is_cut, seen, problems }
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Returns the text of a file below the root with what it imports; empty if it was read before, and `None` if there is
    /// none. `depth` is the number of imports that lead to it.
    fn include(&mut self, path: &Path, depth: usize) -> Result<Option<String>, String> {
        let real = self.root.find(path).map_err(|why| why.to_string())?.path();
        if self.seen.contains(&real) {
            return Ok(Some(String::new()));
        }
        let is_private = real.components().any(|name| {
            PRIVATE.iter().any(|private| name.as_os_str().eq_ignore_ascii_case(private))
        });
        if is_private {
            return Err("is in a folder that is not for agents".into());
        }
        // The files of the root are part of every prompt; what they import is chosen by a text.
        if (depth > 0 || self.checks_all) && (self.refuses)(&self.root.path().join(&real)) {
            return Err("may not be read by this agent".into());
        }
        let Some(read) = read(self.root, &real, self.left)? else { return Ok(None) };
        self.seen.insert(real.clone());
        self.left = self.left.saturating_sub(read.bytes.len());
        if read.is_cut {
            self.is_cut = true;
            let (path, longest) = (path.display(), self.longest);
            self.problem(format!("{path} is cut: {longest} bytes go into a prompt"));
        }
        let text = read.lossy();
        let mut whole = Vec::new();
        let mut code = CodeBlocks::default();
        for line in text.lines() {
            let is_code = code.contains(line);
            let imported = import_of(line).filter(|_| !is_code);
            match imported.map(|path| self.import(&real, path, depth + 1)) {
                Some(Some(text)) if text.is_empty() => {}
                Some(Some(text)) => whole.push(text),
                Some(None) | None => whole.push(line.to_owned()),
            }
        }
        Ok(Some(whole.join("\n").trim().to_owned()))
    }

    /// Returns the text of a file that another one imports, below its name; `None` if it cannot be read.
    fn import(&mut self, importer: &Path, path: &str, depth: usize) -> Option<String> {
        let beside = importer.parent().unwrap_or(Path::new("")).join(path);
        let found = if depth > DEEPEST {
            Err(format!("is more than {DEEPEST} imports away"))
        } else if path.starts_with('~') {
            Err("leads out of the folder".into())
        } else {
            self.include(&beside, depth)
        };
        let why = match found {
            Ok(Some(text)) if text.is_empty() => return Some(text),
            Ok(Some(text)) => return Some(format!("[{}]\n{text}", beside.display())),
            Ok(None) => "does not exist".to_owned(),
            Err(why) => why,
        };
        let importer = importer.display();
        self.problem(format!("{importer} imports {path}, which {why}, so it is left out"));
        None
    }
}

/// Returns the path of a line that imports a file, which may be an item of a list.
fn import_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
    let path = item.trim_start().strip_prefix('@')?;
    (!path.is_empty() && !path.contains(char::is_whitespace)).then_some(path)
}

/// Tells the lines of fenced code blocks from others.
#[derive(Debug, Default)]
struct CodeBlocks {
    /// The fence that closes the block; `None` outside of a block.
    fence: Option<String>,
}

impl CodeBlocks {
    /// Whether this line, which comes next, belongs to a code block.
    fn contains(&mut self, line: &str) -> bool {
        let line = line.trim();
        let marks = |mark: char| line.chars().take_while(|c| *c == mark).collect::<String>();
        let fence = [marks('`'), marks('~')].into_iter().find(|fence| fence.len() >= 3);
        match (&self.fence, fence) {
            (Some(open), Some(fence)) if fence.starts_with(open.as_str()) && fence == line => {
                self.fence = None;
                true
            }
            (None, Some(fence)) => {
                self.fence = Some(fence);
                true
            }
            (open, _) => open.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const LONGEST: usize = 32 * 1024;

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn put(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            put(folder.path(), path, text);
        }
        folder
    }

    fn read_all(folder: &Path) -> Instructions {
        of_workspace(folder, LONGEST, &|_| false)
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_followed() {
        let (inside, outside) = (folder(&[]), folder(&[("secret.md", "secret")]));
        symlink(outside.path().join("secret.md"), inside.path().join("AGENTS.md")).unwrap();
        let instructions = read_all(inside.path());
        assert_eq!(instructions.text, "");
        assert!(instructions.problems[0].contains("AGENTS.md leads out"), "{instructions:?}");
    }

    #[test]
    fn instructions_of_the_workspace_are_deduplicated_and_cut() {
        let folder = folder(&[]);
        assert_eq!(read_all(folder.path()), Instructions::default());
        put(folder.path(), "AGENTS.md", "Use tabs.\n");
        symlink("AGENTS.md", folder.path().join("CLAUDE.md")).unwrap();
        assert_eq!(read_all(folder.path()).text, "[AGENTS.md]\nUse tabs.\n");
        fs::remove_file(folder.path().join("CLAUDE.md")).unwrap();
        for copy in ["Use tabs.", "@AGENTS.md", "- @./AGENTS.md\n"] {
            put(folder.path(), "CLAUDE.md", copy);
            assert_eq!(read_all(folder.path()).text, "[AGENTS.md]\nUse tabs.\n", "{copy}");
        }
        put(folder.path(), "CLAUDE.md", &"é".repeat(LONGEST));
        let cut = read_all(folder.path());
        assert!(cut.text.len() < LONGEST + 64 && cut.problems.len() == 1, "{:?}", cut.problems);
        assert!(!cut.text.contains('\u{fffd}'), "it is cut between two characters");
    }

    #[test]
    fn a_line_with_a_path_is_replaced_by_the_file_outside_of_code() {
        let folder = folder(&[
            (
                "AGENTS.md",
                "First.\n@docs/a.md\n- @docs/b.md\nAsk @docs/b.md or `@x`.\n@/etc/passwd\n```\n@docs/c.md\n```\nLast.",
            ),
            ("docs/a.md", "A.\n@sub/d.md\n@b.md\n"),
            ("docs/b.md", "B.\n"),
            ("docs/c.md", "C.\n"),
            ("docs/sub/d.md", "D.\n@../../AGENTS.md\n@../a.md"),
        ]);
        let found = read_all(folder.path());
        let expected = "[AGENTS.md]\nFirst.\n[docs/a.md]\nA.\n[docs/sub/d.md]\nD.\n[docs/b.md]\nB.\n\
                        Ask @docs/b.md or `@x`.\n@/etc/passwd\n```\n@docs/c.md\n```\nLast.\n";
        assert_eq!(found.text, expected);
        let told =
            "AGENTS.md imports /etc/passwd, which leads out of the folder, so it is left out";
        assert_eq!(found.problems, [told]);
    }

    #[test]
    fn what_cannot_be_imported_is_a_problem_and_the_line_stays() {
        let outside = folder(&[("secret.md", "secret")]);
        let text =
            "@none.md\n@~/x.md\n@../x.md\n@link.md\n@.git/x\n@.TEAM/x\n@hidden/x\n@docs\n@1.md";
        let inside =
            folder(&[("AGENTS.md", text), (".git/x", "g"), (".TEAM/x", "t"), ("hidden/x", "h")]);
        put(inside.path(), "docs/x", "");
        symlink(outside.path().join("secret.md"), inside.path().join("link.md")).unwrap();
        for number in 1..=7 {
            put(inside.path(), &format!("{number}.md"), &format!("N{number}\n@{}.md", number + 1));
        }
        let hidden = inside.path().canonicalize().unwrap().join("hidden");
        let found = of_workspace(inside.path(), LONGEST, &|path| path.starts_with(&hidden));
        for kept in text.lines().take(8) {
            assert!(found.text.lines().any(|line| line == kept), "{kept}: {found:?}");
        }
        assert!(found.text.contains("\nN5\n@6.md") && !found.text.contains("secret"), "{found:?}");
        let reasons = [
            "none.md, which does not exist",
            "~/x.md, which leads out",
            "../x.md, which leads out",
            "link.md, which leads out",
            ".git/x, which is in a folder that is not for agents",
            ".TEAM/x, which is in a folder",
            "hidden/x, which may not be read",
            "docs, which is a folder",
            "5.md imports 6.md, which is more than 5 imports away",
        ];
        assert_eq!(found.problems.len(), reasons.len(), "{:?}", found.problems);
        for (problem, reason) in found.problems.iter().zip(reasons) {
            assert!(problem.contains(reason), "{problem}: {reason}");
        }
    }

    #[test]
    fn fences_of_code_are_closed_by_the_same_mark() {
        let mut code = CodeBlocks::default();
        let lines = ["a", "````md", "```", "~~~", "`````", "b", "~~~ x", "```", "~~~", "c"];
        let inside: Vec<bool> = lines.iter().map(|line| code.contains(line)).collect();
        let expected = [false, true, true, true, true, false, true, true, true, false];
        assert_eq!(inside, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_graph_of_imports_ends_with_each_file_at_most_once(
            imports in proptest::collection::vec(proptest::collection::vec(0_usize..6, 0..4), 6),
            longest in 10_usize..400,
        ) {
            let folder = tempfile::tempdir().unwrap();
            for (at, imports) in imports.iter().enumerate() {
                let name = if at == 0 { "AGENTS.md".to_owned() } else { format!("{at}.md") };
                let lines = imports.iter().map(|to| match to { 0 => "@AGENTS.md\n".to_owned(), to => format!("@{to}.md\n") });
                put(folder.path(), &name, &format!("FILE{at} é漢\n{}", lines.collect::<Vec<_>>().concat()));
            }
            let found = of_workspace(folder.path(), longest, &|_| false);
            // Each file adds its name to its text.
            prop_assert!(found.text.len() <= longest + 6 * "[AGENTS.md]\n\n".len(), "{}", found.text);
            let has_torn_character = found.text.contains('\u{fffd}');
            prop_assert!(!has_torn_character);
            for at in 0..6 {
                let count = found.text.matches(&format!("FILE{at}")).count();
                prop_assert!(count <= 1);
            }
        }
    }
}
