//! The git folders of a repository, and the files in them by which git runs code.

use std::fs;
use std::path::{Path, PathBuf};

/// The file that names the folder with the configuration; only linked worktrees have one.
pub(crate) const COMMON_FOLDER: &str = "commondir";

/// The configuration of one worktree.
pub(crate) const WORKTREE_CONFIG: &str = "config.worktree";

/// Names in a git folder by which git runs code.
pub(crate) const RUN_CODE: [&str; 4] = ["config", "hooks", WORKTREE_CONFIG, COMMON_FOLDER];

/// The maximum number of folders that are looked through.
const MOST_FOLDERS: usize = 1000;

/// The name of the folder of all submodules.
const MODULES: &str = "modules";

/// The submodules of a repository.
#[derive(Debug, Default)]
pub(crate) struct Submodules {
    /// The folders that lead to their git folders, and these.
    pub(crate) ways: Vec<PathBuf>,
    /// Their git folders.
    pub(crate) git_folders: Vec<PathBuf>,
}

impl Submodules {
    /// Finds the submodules, also those of submodules, of the repository with this git folder.
    pub(crate) fn of(git: &Path) -> Self {
        let mut found = Self::default();
        let mut ahead = vec![git.join(MODULES)];
        while let Some(folder) = ahead.pop().filter(|_| found.ways.len() < MOST_FOLDERS) {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            found.ways.push(folder.clone());
            if folder.join("HEAD").exists() {
                ahead.push(folder.join(MODULES));
                found.git_folders.push(folder);
            } else {
                // The name of a submodule may have slashes.
                ahead.extend(folders(entries));
            }
        }
        found.ways.sort();
        found
    }
}

/// Returns the git folders of the linked worktrees of the repository with this git folder.
pub(crate) fn of_worktrees(git: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(git.join("worktrees"));
    entries.into_iter().flat_map(folders).take(MOST_FOLDERS).collect()
}

/// Returns the folders among the entries, without links to folders.
fn folders(entries: fs::ReadDir) -> impl Iterator<Item = PathBuf> {
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_folder).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_are_found_below_each_other_and_under_names_with_slashes() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        assert!(Submodules::of(&git).ways.is_empty() && of_worktrees(&git).is_empty());
        let modules = ["modules/libs/one/HEAD", "modules/libs/one/modules/two/HEAD"];
        for path in modules.iter().chain(&["worktrees/a"]) {
            fs::create_dir_all(git.join(path)).unwrap();
        }
        fs::File::create(git.join("worktrees/file")).unwrap();
        let found = Submodules::of(&git);
        let ways = ["", "/libs", "/libs/one", "/libs/one/modules", "/libs/one/modules/two"];
        let ways = ways.map(|path| PathBuf::from(format!("{}/modules{path}", git.display())));
        assert_eq!(found.ways, ways);
        assert_eq!(found.git_folders, [&ways[2], &ways[4]].map(Clone::clone));
        assert_eq!(of_worktrees(&git), [git.join("worktrees/a")]);
    }
}
