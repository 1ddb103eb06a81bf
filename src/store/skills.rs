//! Skills that people write for agents: folders with a `SKILL.md`, in the workspace and in the user's home.
//!
//! In the workspace, links are followed within it and never out of it; those of the user may lead anywhere. A folder
//! that is no skill is reported as a problem, not as an error.

use super::bounded_text::{BoundedText, read, read_anywhere};
use crate::os::safe_path::{SafePath, SafeRoot};
use crate::wire::skill::Skill;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The folders of the workspace with skills, nearest first.
const FOLDERS: [&str; 2] = [".agents/skills", ".claude/skills"];

const FILE: &str = "SKILL.md";

/// The maximum size of a `SKILL.md`: more than a model is shown of any output.
const LONGEST: usize = 128 * 1024;

/// The maximum number of skills that are read from one folder.
const MOST_SKILLS: usize = 500;

/// The limits of the list of the files beside a `SKILL.md`: files, folders that are looked into, and depth.
const MOST_FILES: usize = 50;
const MOST_FOLDERS: usize = 50;
const DEEPEST: usize = 4;

/// The folder of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillFolder {
    /// The workspace; `None` for a skill of the user.
    workspace: Option<PathBuf>,
    /// The path without links.
    real: PathBuf,
    /// The path for people: relative to the workspace, or absolute if the skill belongs to the user.
    shown: PathBuf,
}

/// A skill without its instructions, which are read when they are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillFile {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) folder: SkillFolder,
}

/// The contents of all folders of skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SkillFiles {
    /// Sorted by name.
    pub(crate) skills: Vec<SkillFile>,
    /// Sentences about skills that are not used, since a nearer one has the same name.
    pub(crate) hidden: Vec<String>,
    /// Sentences about folders that are no skills.
    pub(crate) problems: Vec<String>,
}

/// The files beside a `SKILL.md`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FilesBeside {
    /// Paths below the folder of the skill, sorted.
    pub(crate) paths: Vec<String>,
    /// Whether there are more.
    pub(crate) has_more: bool,
}

/// Reads the skills of a workspace and of these folders of the user, nearest first. Leaves out those whose `SKILL.md`
/// is refused, by its real path.
pub(crate) fn find(
    workspace: &Path,
    users: &[PathBuf],
    refuses: &dyn Fn(&Path) -> bool,
) -> SkillFiles {
    let mut found = SkillFiles::default();
    let root = match SafeRoot::open(workspace) {
        Ok(root) => Some(root),
        Err(why) => {
            found.problems.push(format!("{} cannot be opened: {why}", workspace.display()));
            None
        }
    };
    let own = FOLDERS.iter().filter_map(|folder| Some((root.as_ref()?, Path::new(folder))));
    let own = own.map(|(root, folder)| (Some(root), folder));
    let mut seen: Vec<PathBuf> = Vec::new();
    for (root, folder) in own.chain(users.iter().map(|folder| (None, folder.as_path()))) {
        for skill in folders_in(root, folder, &mut found.problems) {
            // One folder is often a link to another, and the home of the user may be the workspace.
            if !seen.contains(&skill.real) {
                seen.push(skill.real.clone());
                found.add(skill, refuses);
            }
        }
    }
    found.skills.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

impl SkillFiles {
    fn add(&mut self, folder: SkillFolder, refuses: &dyn Fn(&Path) -> bool) {
        let Some(name) = folder.shown.file_name() else { return };
        let name = name.to_string_lossy().into_owned();
        // The real path is what rules and walls know.
        if folder.real_file().is_some_and(|real| refuses(&real)) {
            return;
        }
        let Skill { name, description, .. } = match folder.skill(&name) {
            Ok(Some(skill)) => skill,
            Ok(None) => return,
            Err(why) => {
                let file = folder.shown.join(FILE);
                self.problems.push(format!("{}: {why}, so it is left out", file.display()));
                return;
            }
        };
        if let Some(nearer) = self.skills.iter().find(|nearer| nearer.name == name) {
            let (shown, nearer) = (folder.shown.display(), nearer.folder.shown.display());
            self.hidden.push(format!("{shown} is not used: {nearer} has the same name"));
            return;
        }
        self.skills.push(SkillFile { name, description, folder });
    }
}

/// Returns the folders in a folder of the workspace, or of the user if there is no `root`, in order of their names.
fn folders_in(
    root: Option<&SafeRoot>,
    folder: &Path,
    problems: &mut Vec<String>,
) -> Vec<SkillFolder> {
    let real_of = |path: &Path| -> Result<PathBuf, String> {
        match root {
            Some(root) => root.resolve(path).map(|inside| root.path().join(inside)),
            None => path.canonicalize().map_err(Into::into),
        }
        .map_err(|why| format!("{} {why}", path.display()))
    };
    let names = match root.map_or_else(|| Ok(folder.to_owned()), |_| real_of(folder)) {
        Ok(real) => names_in(&real).map_err(|why| format!("{}: {why}", folder.display())),
        Err(why) => Err(why),
    };
    let mut names = names.unwrap_or_else(|why| {
        problems.push(format!("{why}, so its skills are left out"));
        Vec::new()
    });
    names.sort();
    if names.len() > MOST_SKILLS {
        let folder = folder.display();
        problems.push(format!("{folder} has more than {MOST_SKILLS} entries: others are left out"));
        names.truncate(MOST_SKILLS);
    }
    let mut found = Vec::new();
    for shown in names.iter().map(|name| folder.join(name)) {
        match real_of(&shown) {
            Ok(real) if real.is_dir() => {
                let workspace = root.map(|root| root.path().to_owned());
                found.push(SkillFolder { workspace, real, shown });
            }
            Ok(_) => {}
            // A link of the user that leads nowhere is no skill.
            Err(_) if root.is_none() => {}
            Err(why) => problems.push(format!("{why}, so it is left out")),
        }
    }
    found
}

/// Returns the names in a folder; none if there is no such folder.
fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = match fs::read_dir(folder) {
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    entries.take(MOST_SKILLS + 1).map(|entry| Ok(entry?.file_name())).collect()
}

impl SkillFolder {
    /// Returns the path for people.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns the path without links.
    pub(crate) fn path(&self) -> &Path {
        &self.real
    }

    /// Returns the path of the `SKILL.md` without links; `None` if there is none.
    pub(crate) fn real_file(&self) -> Option<PathBuf> {
        self.real.join(FILE).canonicalize().ok()
    }

    /// Reads the skill of this name; `None` if the folder has no `SKILL.md`. Fails if that defines no skill, or leads out
    /// of the workspace.
    pub(crate) fn skill(&self, name: &str) -> Result<Option<Skill>, String> {
        let path = self.real.join(FILE);
        let text = match &self.workspace {
            Some(workspace) => {
                let root = SafeRoot::open(workspace).map_err(|why| why.to_string())?;
                read(&root, &path, LONGEST)?
            }
            None if fs::symlink_metadata(&path).is_err() => None,
            None => read_anywhere(&path, LONGEST)?,
        };
        let Some(BoundedText { bytes, is_cut }) = text else { return Ok(None) };
        if is_cut {
            return Err(format!("it has more than {LONGEST} bytes"));
        }
        let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
        Skill::parse(name, &text).map(Some)
    }

    /// Opens a file in this folder, and returns its real path with it; `None` if there is none. Fails for a path that
    /// leads out of the folder.
    pub(crate) fn open(&self, path: &Path) -> Result<Option<(PathBuf, File)>, String> {
        let root = SafeRoot::open(&self.real).map_err(|why| why.to_string())?;
        let spot: SafePath = root.find(path).map_err(|why| why.to_string())?;
        let file = spot.open().map_err(|why| why.to_string())?;
        Ok(file.map(|file| (root.path().join(spot.path()), file)))
    }

    /// Lists the files beside the `SKILL.md`. Links and hidden files are left out.
    pub(crate) fn files(&self) -> FilesBeside {
        let mut found = FilesBeside::default();
        let mut folders = vec![(PathBuf::new(), 0)];
        let mut looked = 0;
        while let Some((inside, depth)) = folders.pop() {
            looked += 1;
            if looked > MOST_FOLDERS || depth > DEEPEST {
                found.has_more = true;
                continue;
            }
            let entries = fs::read_dir(self.real.join(&inside)).into_iter().flatten().flatten();
            for entry in entries.take(MOST_SKILLS) {
                let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
                let path = inside.join(&name);
                if name.as_encoded_bytes().starts_with(b".") || path == Path::new(FILE) {
                    continue;
                }
                if kind.is_dir() {
                    folders.push((path, depth + 1));
                } else if kind.is_file() {
                    found.paths.push(path.display().to_string());
                }
            }
        }
        found.paths.sort();
        found.has_more |= found.paths.len() > MOST_FILES;
        found.paths.truncate(MOST_FILES);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const SKILL: &str = "---\nname: NAME\ndescription: About NAME.\n---\nDo NAME.\n";

    #[expect(clippy::disallowed_methods, reason = "a test fixture")]
    fn put(folder: &Path, path: &str, text: impl AsRef<[u8]>) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn skill(folder: &Path, path: &str) {
        let name = Path::new(path).file_name().unwrap().to_str().unwrap();
        put(folder, &format!("{path}/SKILL.md"), SKILL.replace("NAME", name));
    }

    fn find_all(workspace: &Path, users: &[PathBuf]) -> SkillFiles {
        find(workspace, users, &|_| false)
    }

    fn names(files: &SkillFiles) -> Vec<(&str, PathBuf)> {
        let shown = |it: &SkillFile| it.folder.shown().to_owned();
        files.skills.iter().map(|it| (it.name.as_str(), shown(it))).collect()
    }

    #[test]
    fn the_nearest_skill_of_a_name_is_used_and_the_others_are_named() {
        let (work, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let users = [".agents/skills", ".claude/skills"].map(|folder| home.path().join(folder));
        for path in [".claude/skills/b", ".claude/skills/a", ".agents/skills/b"] {
            skill(work.path(), path);
        }
        for path in [".agents/skills/c", ".claude/skills/c", ".claude/skills/a", "kept/linked"] {
            skill(home.path(), path);
        }
        // Folders may be links; a real folder counts once.
        symlink("../../.claude/skills/a", work.path().join(".agents/skills/a")).unwrap();
        symlink("../../kept/linked", users[1].join("linked")).unwrap();
        symlink("nowhere", users[1].join("dangling")).unwrap();
        put(work.path(), ".claude/skills/README.md", "no skill");
        put(work.path(), ".claude/skills/shared/x.py", "no skill");
        let found = find_all(work.path(), &users);
        let expected = [
            ("a", ".agents/skills/a".into()),
            ("b", ".agents/skills/b".into()),
            ("c", users[0].join("c")),
            ("linked", users[1].join("linked")),
        ];
        assert_eq!(names(&found), expected);
        assert_eq!(found.problems, [""; 0]);
        assert_eq!(found.hidden.len(), 3, "{:?}", found.hidden);
        let told = ".claude/skills/b is not used: .agents/skills/b has the same name";
        assert_eq!(found.hidden[0], told);
        let linked = &found.skills[3].folder;
        assert_eq!(linked.skill("linked").unwrap().unwrap().body, "Do linked.");
        // Those of the home are found once where it is the workspace.
        assert_eq!(find_all(home.path(), &users).hidden.len(), 1);
        // A refused one is not listed, and no problem.
        let refuses = |path: &Path| path.starts_with(home.path().canonicalize().unwrap());
        let found = find(work.path(), &users, &refuses);
        assert_eq!((found.skills.len(), found.problems.len()), (2, 0));
        assert_eq!(find_all(&work.path().join("none"), &[]).problems.len(), 1);
    }

    #[test]
    fn a_broken_skill_is_left_out_with_the_reason() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join(".claude/skills");
        put(&folder, "bare/SKILL.md", "Just text.");
        put(&folder, "bytes/SKILL.md", b"---\nname: bytes\ndescription: \xff\n---\n");
        put(&folder, "other/SKILL.md", SKILL.replace("NAME", "another"));
        let huge = SKILL.replace("NAME", "huge") + &"x".repeat(LONGEST);
        put(&folder, "huge/SKILL.md", huge);
        fs::create_dir_all(folder.join("folder/SKILL.md")).unwrap();
        let found = find_all(work.path(), &[]);
        assert_eq!(names(&found), []);
        let reasons = ["front matter", "UTF-8", "is a folder", "more than 131072", "its folder"];
        assert_eq!(found.problems.len(), reasons.len(), "{:?}", found.problems);
        for (problem, reason) in found.problems.iter().zip(reasons) {
            assert!(problem.contains(reason), "{problem}: {reason}");
            assert!(problem.starts_with(".claude/skills/") && problem.contains("left out"));
        }
    }

    #[test]
    fn no_skill_of_the_workspace_leads_out_of_it() {
        let (work, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["a", "b", "c"] {
            skill(outside.path(), name);
        }
        let folder = work.path().join(".claude/skills");
        fs::create_dir_all(folder.join("b")).unwrap();
        symlink(outside.path().join("a"), folder.join("a")).unwrap();
        symlink(outside.path().join("b/SKILL.md"), folder.join("b/SKILL.md")).unwrap();
        fs::create_dir_all(work.path().join(".agents")).unwrap();
        symlink(outside.path(), work.path().join(".agents/skills")).unwrap();
        let found = find_all(work.path(), &[]);
        assert_eq!((names(&found), found.problems.len()), (vec![], 3), "{:?}", found.problems);
        assert!(found.problems.iter().all(|it| it.contains("leads out of the folder")));
    }

    #[test]
    fn files_beside_a_skill_are_listed_and_opened_within_its_folder() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join(".claude/skills/a");
        skill(work.path(), ".claude/skills/a");
        put(work.path(), "secret", "secret");
        put(&folder, "reference.md", "More.");
        put(&folder, "scripts/run.sh", "true");
        put(&folder, ".hidden", "");
        symlink("../../../secret", folder.join("out")).unwrap();
        let found = find_all(work.path(), &[]);
        let skill = &found.skills[0].folder;
        let files = skill.files();
        assert_eq!(files.paths, ["reference.md", "scripts/run.sh"]);
        assert!(!files.has_more);
        let (real, _) = skill.open(Path::new("scripts/../reference.md")).unwrap().unwrap();
        assert_eq!(real, folder.canonicalize().unwrap().join("reference.md"));
        assert!(skill.open(Path::new("none")).unwrap().is_none());
        for out in ["out", "../../../secret", "/etc/passwd"] {
            assert!(skill.open(Path::new(out)).is_err(), "{out}");
        }
        for number in 0..MOST_FILES {
            put(&folder, &format!("many/{number}"), "");
        }
        let files = skill.files();
        assert!(files.has_more && files.paths.len() == MOST_FILES);
    }
}
