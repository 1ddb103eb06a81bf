//! Files that people write for agents: role files of the team and of the workspace, and the instructions of
//! the workspace.
//!
//! Links are followed within the workspace and never out of it. A file that cannot be read is reported as a
//! problem, not as an error. This module does not interpret roles.

use super::TeamDir;
use crate::os::safe_path::SafeRoot;
use crate::wire::front_matter::Problem;
use crate::wire::role::Role;
use crate::wire::tool::ToolLookup;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read from a role file.
const LONGEST: usize = 32 * 1024;

/// The folder of the workspace with roles for other programs.
const FOREIGN_ROLES: &str = ".claude/agents";

const INSTRUCTIONS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleFile {
    /// The path, relative to the workspace.
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
    pub(crate) problems: Vec<Problem>,
}

/// The instructions of a workspace for every agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// The text, each file below its name.
    pub(crate) text: String,
    /// The files that are missing or cut in the text, with reasons.
    pub(crate) problems: Vec<String>,
}

impl TeamDir {
    /// Returns all roles, sorted by name. Of several roles with one name, the team's comes first; each other one
    /// has a problem that names the first.
    pub(crate) fn role_files(&self, find: ToolLookup) -> Vec<RoleFile> {
        let Ok(root) = SafeRoot::open(self.workspace()) else { return Vec::new() };
        let mut found: Vec<RoleFile> = Vec::new();
        for folder in [self.roles(), self.workspace().join(FOREIGN_ROLES)] {
            let mut files = markdown_in(&folder);
            files.sort();
            for path in files {
                let mut file = read_role(self.workspace(), &root, &path, find);
                if let Some(first) = found.iter().find(|first| first.role.name == file.role.name) {
                    let what = format!("{} has this name, too, and counts", first.path.display());
                    file.problems.push(Problem { line: 1, what });
                }
                found.push(file);
            }
        }
        found.sort_by(|one, other| one.role.name.cmp(&other.role.name));
        found
    }

    /// Returns the role file for a name, if there is one: a role may also be free text.
    pub(crate) fn role(&self, name: &str, find: ToolLookup) -> Option<RoleFile> {
        self.role_files(find).into_iter().find(|file| file.role.name == name)
    }

    /// Reads `AGENTS.md` and `CLAUDE.md` of the workspace, at most `longest` bytes in total.
    pub(crate) fn workspace_instructions(&self, longest: usize) -> Instructions {
        let mut instructions = Instructions::default();
        let Ok(root) = SafeRoot::open(self.workspace()) else { return instructions };
        let mut seen: Vec<String> = Vec::new();
        let mut left = longest;
        for name in INSTRUCTIONS {
            let (text, cut) = match read(&root, Path::new(name), left) {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(why) => {
                    instructions.problems.push(format!("{name} {why}, so it is left out"));
                    continue;
                }
            };
            if cut {
                let why = format!("{name} is cut: {longest} bytes go into a prompt");
                instructions.problems.push(why);
            }
            // One file is often a link or a reference to the other.
            if text.is_empty() || text == "@AGENTS.md" || seen.contains(&text) {
                continue;
            }
            left = left.saturating_sub(text.len());
            let _infallible = write!(instructions.text, "[{name}]\n{text}\n");
            seen.push(text);
        }
        instructions
    }
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

fn read_role(workspace: &Path, root: &SafeRoot, path: &Path, find: ToolLookup) -> RoleFile {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let shown = path.strip_prefix(workspace).unwrap_or(path).to_owned();
    let problem = |what: String| Problem { line: 1, what };
    let why = match read(root, path, LONGEST) {
        Ok(Some((text, cut))) => {
            let (role, mut problems) = Role::parse(&stem, &text, find);
            if cut {
                problems.push(problem(format!("longer than {LONGEST} bytes: the rest is cut")));
            }
            return RoleFile { path: shown, role, problems };
        }
        Ok(None) => "it is gone".into(),
        Err(why) => why,
    };
    // An allow-list that cannot be read allows nothing.
    let role = Role { name: stem, tools: Some(Vec::new()), ..Role::default() };
    RoleFile { path: shown, role, problems: vec![problem(why)] }
}

/// Reads at most `longest` bytes of a file; returns the text and whether it is cut.
fn read(root: &SafeRoot, path: &Path, longest: usize) -> Result<Option<(String, bool)>, String> {
    let spot = root.find(path).map_err(|why| why.to_string())?;
    let Some(file) = spot.open().map_err(|why| why.to_string())? else { return Ok(None) };
    let (mut bytes, most) = (Vec::new(), u64::try_from(longest).unwrap_or(u64::MAX));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    let cut = bytes.len() > longest;
    bytes.truncate(longest);
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    Ok(Some((text, cut)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::os::unix::fs::symlink;

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn roles_of_the_team_come_before_those_of_other_programs() {
        let (folder, dir) = test_team();
        write(folder.path(), ".team/roles/coder.md", "---\nname: coder\n---\nCode.\n");
        write(folder.path(), ".claude/agents/coder.md", "Other.");
        write(folder.path(), ".claude/agents/b.md", "---\nname: auditor\nwhim: 1\n---\nAudit.");
        write(folder.path(), ".claude/agents/notes.txt", "no role");
        let files = dir.role_files(|_| None);
        let names: Vec<_> = files.iter().map(|file| file.role.name.as_str()).collect();
        assert_eq!(names, ["auditor", "coder", "coder"]);
        assert_eq!(dir.role("coder", |_| None).unwrap().role.instructions, "Code.");
        let auditor = dir.role("auditor", |_| None).unwrap();
        assert_eq!(auditor.path, Path::new(".claude/agents/b.md"));
        assert_eq!(auditor.problems.len(), 1);
        assert!(
            files.last().unwrap().problems.iter().any(|problem| problem.what.contains("counts"))
        );
        for role in ["", "tester", "../settings", "Coder", "a/b"] {
            assert_eq!(dir.role(role, |_| None), None, "{role}");
        }
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_followed() {
        let (folder, dir) = test_team();
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "secret.md", "secret");
        write(folder.path(), ".team/roles/a.md", "inside");
        symlink(outside.path().join("secret.md"), folder.path().join("AGENTS.md")).unwrap();
        symlink(outside.path().join("secret.md"), dir.roles().join("b.md")).unwrap();
        let instructions = dir.workspace_instructions(LONGEST);
        assert_eq!(instructions.text, "");
        assert!(instructions.problems[0].contains("AGENTS.md leads out"), "{instructions:?}");
        let role = dir.role("b", |_| None).unwrap();
        assert_eq!((&*role.role.instructions, role.problems.len()), ("", 1));
        assert_eq!(role.role.tools.as_deref(), Some(&[][..]), "an unreadable role has no tools");
    }

    #[test]
    fn instructions_of_the_workspace_are_deduplicated_and_cut() {
        let (folder, dir) = test_team();
        assert_eq!(dir.workspace_instructions(LONGEST), Instructions::default());
        write(folder.path(), "AGENTS.md", "Use tabs.\n");
        symlink("AGENTS.md", folder.path().join("CLAUDE.md")).unwrap();
        assert_eq!(dir.workspace_instructions(LONGEST).text, "[AGENTS.md]\nUse tabs.\n");
        fs::remove_file(folder.path().join("CLAUDE.md")).unwrap();
        write(folder.path(), "CLAUDE.md", &"é".repeat(LONGEST));
        let cut = dir.workspace_instructions(LONGEST);
        assert!(cut.text.len() < LONGEST + 64 && cut.problems.len() == 1, "{:?}", cut.problems);
    }
}
