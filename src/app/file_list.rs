//! The files of a workspace, for completion.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// The most folders and files that are looked at.
const LOOKED_AT: usize = 20_000;

/// Folders of generated files, which nobody names.
const SKIPPED: [&str; 4] = ["target", "node_modules", "__pycache__", "venv"];

/// Returns the files below a folder as relative paths, those near the top first. Hidden files, links and folders of
/// generated files are left out, and so is what a very large workspace has besides.
pub(super) fn list(workspace: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = VecDeque::from([PathBuf::new()]);
    let mut looked_at = 0;
    while let Some(folder) = folders.pop_front() {
        let Ok(entries) = std::fs::read_dir(workspace.join(&folder)) else { continue };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            looked_at += 1;
            if looked_at > LOOKED_AT {
                return files;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = folder.join(name);
            if kind.is_dir() {
                folders.push_back(path);
            } else if kind.is_file() {
                files.push(path.display().to_string());
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all};

    #[test]
    fn files_near_the_top_come_first_and_generated_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b.txt", "src/main.rs", "src/a/b.rs", ".git/config", "target/x", "a.txt"] {
            let path = folder.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap();
        }
        std::os::unix::fs::symlink("/etc", folder.path().join("etc")).unwrap();
        assert_eq!(list(folder.path()), ["a.txt", "b.txt", "src/main.rs", "src/a/b.rs"]);
        assert_eq!(list(&folder.path().join("none")), Vec::<String>::new());
    }
}
