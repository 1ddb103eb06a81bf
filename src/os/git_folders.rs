//! The git folders of submodules: their hooks and configuration run code as well.

use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of folders of a repository that are looked through.
const MOST_FOLDERS: usize = 1000;

/// The name of the folder of all submodules.
const MODULES: &str = "modules";

/// The files of a git folder that run code.
const RUN_CODE: [&str; 3] = ["config", "config.worktree", "hooks"];

/// The paths of the submodules of a repository. Paths that do not exist may be among them.
#[derive(Debug, Default)]
pub(super) struct SubmodulePaths {
    /// Folders that must not be replaced.
    pub(super) pinned: Vec<PathBuf>,
    /// Files that must not be changed.
    pub(super) protected: Vec<PathBuf>,
}

impl SubmodulePaths {
    /// Finds the submodules, also those of submodules, of the repository with this git folder.
    pub(super) fn of(git: &Path) -> Self {
        let mut found = Self::default();
        let mut ahead = vec![git.join(MODULES)];
        while let Some(folder) = ahead.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            if found.pinned.len() == MOST_FOLDERS {
                break;
            }
            found.pinned.push(folder.clone());
            if folder.join("HEAD").exists() {
                found.protected.extend(RUN_CODE.map(|name| folder.join(name)));
                ahead.push(folder.join(MODULES));
            } else {
                // The name of a submodule may have slashes.
                let is_folder =
                    |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
                ahead.extend(entries.flatten().filter(is_folder).map(|entry| entry.path()));
            }
        }
        // A folder becomes a mount point before those in it do.
        found.pinned.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_are_found_below_each_other_and_under_names_with_slashes() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        assert!(SubmodulePaths::of(&git).pinned.is_empty());
        for path in ["modules/libs/one/HEAD", "modules/libs/one/modules/two/HEAD"] {
            fs::create_dir_all(git.join(path)).unwrap();
        }
        let found = SubmodulePaths::of(&git);
        let folders = ["", "/libs", "/libs/one", "/libs/one/modules", "/libs/one/modules/two"];
        let folders = folders.map(|path| PathBuf::from(format!("{}/modules{path}", git.display())));
        assert_eq!(found.pinned, folders);
        for path in ["libs/one/config", "libs/one/modules/two/hooks"] {
            assert!(found.protected.contains(&git.join(MODULES).join(path)), "{path}");
        }
        assert_eq!(found.protected.len(), 6);
    }
}
