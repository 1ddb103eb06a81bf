//! Role files of the team, the workspace and the user.
//!
//! In the workspace, links are followed within it and never out of it. A file that cannot be read is reported as a
//! problem, not as an error. This module does not interpret roles; it decides which file a name means.

use super::TeamDir;
use super::bounded_text::{read, read_anywhere};
use crate::os::safe_path::SafeRoot;
use crate::wire::front_matter::Problem;
use crate::wire::role::{Role, folded, resembles};
use crate::wire::tool::ToolLookup;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read from a role file.
const LONGEST: usize = 32 * 1024;

/// The folder of the workspace with roles for other programs.
const FOREIGN_ROLES: &str = ".claude/agents";

/// The maximum number of role files that an error lists.
const FILES_LISTED: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleFile {
    /// The path: relative to the workspace, or absolute if the file belongs to the user.
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
    pub(crate) problems: Vec<Problem>,
    /// The file of the same name in a nearer folder, which counts instead of this one.
    pub(crate) hidden_by: Option<PathBuf>,
}

/// The contents of all folders of roles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RoleFiles {
    /// Sorted by name. Of several roles with one name, the nearest comes first and hides the others.
    pub(crate) files: Vec<RoleFile>,
    /// The folders that cannot be read, each with the reason.
    pub(crate) unreadable: Vec<String>,
}

/// The meaning of a role's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoleMatch {
    /// The role of this file.
    File(Box<RoleFile>),
    /// No role file has such a name, so the text restricts nothing.
    FreeText,
    /// The text is not the name of a role, but may mean one.
    Unclear(UnclearRole),
}

impl RoleMatch {
    /// Returns the meaning of a role that came from `known_file` when the member was last started. If the file is
    /// gone, the name must not pass for free text, which restricts nothing.
    pub(crate) fn with_known_file(self, role: &str, known_file: Option<&str>) -> Self {
        let Some(file) = known_file.filter(|_| self == Self::FreeText) else { return self };
        let (similar, all, unreadable) = (Vec::new(), Vec::new(), Vec::new());
        let (given, gone) = (role.into(), Some(file.into()));
        Self::Unclear(UnclearRole { given, similar, all, unreadable, gone })
    }

    /// Returns the limits of an agent in this role. An unclear role has mail only, because the role that it may mean
    /// is perhaps restricted.
    pub(crate) fn limits(self) -> Role {
        match self {
            Self::File(file) => file.role,
            Self::FreeText => Role::default(),
            Self::Unclear(role) => {
                Role { name: role.given, tools: Some(Vec::new()), ..Role::default() }
            }
        }
    }
}

/// The reason for which a text is not accepted as a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}; {}", self.what(), self.why(), self.hint())]
pub(crate) struct UnclearRole {
    given: String,
    /// The names of the similar roles, each with its file.
    similar: Vec<String>,
    /// The names of all roles.
    all: Vec<String>,
    /// The folders of roles that cannot be read, each with the reason.
    unreadable: Vec<String>,
    /// The file of the role, which is gone.
    gone: Option<String>,
}

impl UnclearRole {
    /// Whether it is unclear because a folder of roles cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    pub(crate) fn hint(&self) -> &'static str {
        if self.gone.is_some() {
            "put the file back, or choose other words"
        } else if self.is_unreadable() {
            "make the folder readable, or remove it"
        } else {
            "give the name of a role as it stands there, or choose clearly different words"
        }
    }

    pub(crate) fn what(&self) -> String {
        let shown: String = self.given.chars().take(64).collect();
        format!("the role {shown:?} is unclear")
    }

    pub(crate) fn why(&self) -> String {
        let listed = |names: &[String]| {
            let more = names.len().saturating_sub(FILES_LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown: Vec<&str> = names.iter().take(FILES_LISTED).map(String::as_str).collect();
            shown.join(", ") + &more
        };
        if let Some(file) = &self.gone {
            return format!("its limits are unknown, because its file {file} is gone");
        }
        if self.is_unreadable() {
            let folders = listed(&self.unreadable);
            return format!(
                "its limits are unknown, because a folder of roles cannot be read: {folders}"
            );
        }
        let (similar, all) = (listed(&self.similar), listed(&self.all));
        format!("no role has this name, but it resembles {similar}; the roles are: {all}")
    }
}

impl TeamDir {
    /// Reads all role files of the team, the workspace and the user.
    pub(crate) fn role_files(&self, find: ToolLookup) -> RoleFiles {
        let workspace = self.workspace();
        let root = match SafeRoot::open(workspace) {
            Ok(root) => root,
            Err(why) => {
                let unreadable = vec![format!("{} ({why})", workspace.display())];
                return RoleFiles { files: Vec::new(), unreadable };
            }
        };
        let own = [self.roles(), workspace.join(FOREIGN_ROLES)].map(|folder| (folder, Some(&root)));
        let users = self.user_roles().iter().map(|folder| (folder.clone(), None));
        let mut seen: Vec<PathBuf> = Vec::new();
        let RoleFiles { files: mut found, mut unreadable } = RoleFiles::default();
        for (folder, root) in own.into_iter().chain(users) {
            let (real, mut files) = match markdown_in(&folder) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(why) => {
                    unreadable.push(format!("{} ({why})", folder.display()));
                    continue;
                }
            };
            // The home of a user may be the workspace.
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            files.sort();
            for path in files {
                let mut file = read_role(workspace, root, &path, find);
                let name = folded(&file.role.name);
                let nearer = found.iter().find(|nearer| folded(&nearer.role.name) == name);
                file.hidden_by = nearer.map(|nearer| nearer.path.clone());
                found.push(file);
            }
        }
        found.sort_by_cached_key(|file| folded(&file.role.name));
        RoleFiles { files: found, unreadable }
    }

    /// Finds the role that a name means. Case does not matter, and `_`, `-` and spaces are alike.
    pub(crate) fn find_role(&self, name: &str, find: ToolLookup) -> RoleMatch {
        let RoleFiles { mut files, unreadable } = self.role_files(find);
        files.retain(|file| file.hidden_by.is_none());
        let wanted = folded(name);
        if let Some(at) = files.iter().position(|file| folded(&file.role.name) == wanted) {
            return RoleMatch::File(Box::new(files.swap_remove(at)));
        }
        let similar = files.iter().filter(|file| resembles(name, &file.role.name));
        let similar: Vec<String> =
            similar.map(|file| format!("{} ({})", file.role.name, file.path.display())).collect();
        if similar.is_empty() && unreadable.is_empty() {
            return RoleMatch::FreeText;
        }
        let all = files.into_iter().map(|file| file.role.name).collect();
        let given = name.into();
        RoleMatch::Unclear(UnclearRole { given, similar, all, unreadable, gone: None })
    }
}

/// Returns the real path of a folder, and its files of roles; `None` if there is no such folder.
fn markdown_in(folder: &Path) -> io::Result<Option<(PathBuf, Vec<PathBuf>)>> {
    let real = match folder.canonicalize() {
        Ok(real) => real,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(why) => return Err(why),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "md") {
            files.push(path);
        }
    }
    Ok(Some((real, files)))
}

/// Reads a role file. Without `root` it belongs to the user, whose links may lead anywhere.
fn read_role(workspace: &Path, root: Option<&SafeRoot>, path: &Path, find: ToolLookup) -> RoleFile {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let shown = match root {
        Some(_) => path.strip_prefix(workspace).unwrap_or(path).to_owned(),
        None => path.to_owned(),
    };
    let problem = |what: String| Problem { line: 1, what };
    let text = match root {
        Some(root) => read(root, path, LONGEST),
        None => read_anywhere(path, LONGEST),
    };
    let why = match text {
        Ok(Some(text)) if text.lossy().contains('\u{fffd}') => {
            "it is not UTF-8 text, so the role has mail only".into()
        }
        Ok(Some(text)) => {
            let (role, mut problems) = Role::parse(&stem, &text.lossy(), find);
            if text.is_cut {
                problems.push(problem(format!("longer than {LONGEST} bytes: the rest is cut")));
            }
            return RoleFile { path: shown, role, problems, hidden_by: None };
        }
        Ok(None) => "it is gone".into(),
        Err(why) => why,
    };
    // An allow-list that cannot be read allows nothing.
    let role = Role { name: stem, tools: Some(Vec::new()), ..Role::default() };
    RoleFile { path: shown, role, problems: vec![problem(why)], hidden_by: None }
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

    fn file_of(dir: &TeamDir, name: &str) -> RoleFile {
        match dir.find_role(name, |_| None) {
            RoleMatch::File(file) => *file,
            RoleMatch::FreeText | RoleMatch::Unclear(_) => panic!("{name} has no file"),
        }
    }

    #[test]
    fn a_role_of_a_nearer_folder_hides_those_of_the_same_name() {
        let (folder, dir) = test_team();
        let home = tempfile::tempdir().unwrap();
        let users = [home.path().join("team/roles"), home.path().join(".claude/agents")];
        let dir = dir.with_user_roles(users.to_vec());
        write(folder.path(), ".team/roles/coder.md", "---\nname: coder\n---\nCode.\n");
        write(folder.path(), ".claude/agents/coder.md", "Other.");
        write(folder.path(), ".claude/agents/b.md", "---\nname: auditor\nwhim: 1\n---\nAudit.");
        write(folder.path(), ".claude/agents/notes.txt", "no role");
        write(home.path(), "team/roles/CODER.md", "Third.");
        write(home.path(), "team/roles/data_base.md", "Data.");
        write(home.path(), "kept/linked.md", "Linked.");
        write(home.path(), ".claude/agents/data-base.md", "Hidden.");
        symlink("../../kept/linked.md", users[1].join("linked.md")).unwrap();
        let files = dir.role_files(|_| None).files;
        let found: Vec<_> = files
            .iter()
            .map(|file| (&*file.role.name, file.hidden_by.as_deref().map(Path::to_owned)))
            .collect();
        let nearest = Some(PathBuf::from(".team/roles/coder.md"));
        let data = users[0].join("data_base.md");
        let expected = [
            ("auditor", None),
            ("coder", None),
            ("coder", nearest.clone()),
            ("CODER", nearest),
            ("data_base", None),
            ("data-base", Some(data.clone())),
            ("linked", None),
        ];
        assert_eq!(found, expected);
        assert_eq!(file_of(&dir, "coder").role.instructions, "Code.");
        assert_eq!(file_of(&dir, "linked").role.instructions, "Linked.");
        assert_eq!(file_of(&dir, "Data Base").path, data);
        let auditor = file_of(&dir, "AUDITOR");
        assert_eq!(auditor.path, Path::new(".claude/agents/b.md"));
        assert_eq!(auditor.problems.len(), 1);
        // The workspace may be the home of the user: its folder counts once.
        let at_home = dir.with_user_roles(vec![folder.path().join(".claude/agents")]);
        assert_eq!(at_home.role_files(|_| None).files.len(), 3);
    }

    #[test]
    fn a_text_that_may_mean_a_role_is_unclear_and_any_other_is_free() {
        let (folder, dir) = test_team();
        write(folder.path(), ".team/roles/auditor.md", "---\ntools: read\n---\nAudit.");
        write(folder.path(), ".team/roles/coder.md", "Code.");
        for role in ["", "tester", "../settings", "a/b", "backend developer"] {
            assert_eq!(dir.find_role(role, |_| None), RoleMatch::FreeText, "{role}");
        }
        let RoleMatch::Unclear(unclear) = dir.find_role("code auditors", |_| None) else {
            panic!("it is clear");
        };
        let told = "the role \"code auditors\" is unclear: no role has this name, but it resembles auditor \
                    (.team/roles/auditor.md); the roles are: auditor, coder; give the name of a role as it \
                    stands there, or choose clearly different words";
        assert_eq!(unclear.to_string(), told);
        let limits = RoleMatch::Unclear(unclear).limits();
        assert_eq!(limits.tools.as_deref(), Some(&[][..]), "it has mail only");
    }

    #[test]
    fn while_a_folder_of_roles_cannot_be_read_no_role_is_free_text() {
        let (folder, dir) = test_team();
        write(folder.path(), ".claude/agents/coder.md", "Code.");
        symlink("roles", dir.roles()).unwrap();
        let RoleMatch::Unclear(unclear) = dir.find_role("auditor", |_| None) else {
            panic!("it has all tools");
        };
        let told = unclear.to_string();
        assert!(told.contains(".team/roles (Too many levels"), "{told}");
        assert!(told.contains("make the folder readable"), "{told}");
        assert_eq!(file_of(&dir, "coder").role.instructions, "Code.");
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_followed() {
        let (folder, dir) = test_team();
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "secret.md", "secret");
        write(folder.path(), ".team/roles/a.md", "inside");
        symlink(outside.path().join("secret.md"), dir.roles().join("b.md")).unwrap();
        let role = file_of(&dir, "b");
        assert_eq!((&*role.role.instructions, role.problems.len()), ("", 1));
        assert_eq!(role.role.tools.as_deref(), Some(&[][..]), "an unreadable role has no tools");
    }
}
