//! The job of the long run. The team works on a copy of this project's source tree: every Rust file of `src/`
//! gets a licence line and an entry in an index. A shell script tests the result.

use crate::support::child_process::write;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The line with which every file must begin.
pub(super) const LICENCE: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// The folder of generated files, which is not copied.
const MADE: &str = "target";

/// The tests of the job: a shell script that checks the named files or all.
const TESTS: &str = r#"#!/bin/sh
# check.sh FILE...: each begins with the licence, and nothing else of it has changed.
# check.sh: so do all of src, each is in the index once with its lines, and rustfmt can read them.
set -eu
one() {
  [ "$(head -n 1 "$1")" = "// SPDX-License-Identifier: MIT OR Apache-2.0" ] || { echo "$1: no licence"; exit 1; }
  tail -n +2 "$1" | cmp - ".pristine/$1" || exit 1
}
if [ $# -gt 0 ]; then
  for file; do one "$file"; done
  echo "$# checked"
  exit
fi
find src -name '*.rs' | LC_ALL=C sort >.all
while read -r file; do one "$file"; done <.all
while read -r file; do echo "$file $(grep -c '' "$file")"; done <.all >.expected
cat index/* | LC_ALL=C sort | cmp - .expected
if command -v rustfmt >/dev/null; then
  while read -r file; do rustfmt --check --edition 2024 <"$file"; done <.all
else
  echo "SKIPPED: there is no rustfmt"
fi
echo "all $(grep -c '' .all) green"
"#;

/// The folder of the copied tree, and the files of each member.
#[derive(Debug)]
pub(super) struct Job {
    folder: PathBuf,
    shares: Vec<Vec<String>>,
}

/// The next step for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    License,
    Describe,
    Check,
}

impl Job {
    /// Creates a tree with at most this many files for each member.
    pub(super) fn lay_out(folder: &Path, members: usize, each: usize) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        copy(source, folder);
        let mut files = BTreeSet::new();
        rust_files(&folder.join("src"), folder, &mut files);
        for file in files.iter().skip(members * each) {
            fs::remove_file(folder.join(file)).unwrap();
        }
        let files: Vec<String> = files.into_iter().take(members * each).collect();
        for file in &files {
            let pristine = folder.join(".pristine").join(file);
            fs::create_dir_all(pristine.parent().unwrap()).unwrap();
            fs::copy(folder.join(file), pristine).unwrap();
        }
        fs::create_dir(folder.join("index")).unwrap();
        fs::create_dir(folder.join("done")).unwrap();
        write(&folder.join("check.sh"), TESTS);
        let share = |member| files.iter().skip(member).step_by(members).cloned().collect();
        Self { folder: folder.to_path_buf(), shares: (0..members).map(share).collect() }
    }

    /// The number of files.
    pub(super) fn files(&self) -> usize {
        self.shares.iter().map(Vec::len).sum()
    }

    /// The files of a member.
    pub(super) fn share(&self, member: usize) -> &[String] {
        &self.shares[member]
    }

    fn text(&self, inside: &str) -> String {
        fs::read_to_string(self.folder.join(inside)).unwrap_or_default()
    }

    /// The effects of a member's commands. Each line names a step and its file.
    pub(super) fn effects(&self, member: usize) -> Vec<String> {
        self.text(&format!("done/t{member}")).lines().map(str::to_owned).collect()
    }

    /// The number of files that were checked, which is the last step.
    pub(super) fn checked(&self) -> usize {
        let of =
            |member| self.effects(member).iter().filter(|it| it.starts_with("checked ")).count();
        (0..self.shares.len()).map(of).sum()
    }

    /// The next step of a member, with the index of the file in its share. `None` if all files are checked.
    pub(super) fn next(&self, member: usize) -> Option<(usize, Step)> {
        let effects = self.effects(member);
        let has = |what: &str, file: &str| effects.contains(&format!("{what} {file}"));
        let share = self.shares[member].iter().enumerate();
        let mut open = share.filter_map(|(at, file)| {
            let step = if has("checked", file) {
                return None;
            } else if !self.text(file).starts_with(LICENCE) {
                Step::License
            } else if !has("described", file) {
                Step::Describe
            } else {
                Step::Check
            };
            Some((at, step))
        });
        open.next()
    }

    /// The shortest prefix of a file, in whole lines, that occurs in it once.
    pub(super) fn beginning(&self, file: &str) -> String {
        let text = self.text(file);
        let mut beginning = String::new();
        for line in text.split_inclusive('\n') {
            beginning.push_str(line);
            if text.matches(beginning.as_str()).count() == 1 {
                break;
            }
        }
        beginning
    }

    /// The repeated effects, as text. Empty if no command ran more than once.
    pub(super) fn twice(&self) -> String {
        let mut found = String::new();
        for member in 0..self.shares.len() {
            let mut seen = BTreeSet::new();
            for effect in self.effects(member) {
                if !seen.insert(effect.clone()) {
                    write!(found, "{effect}; ").unwrap();
                }
            }
        }
        found
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Hidden files are skipped, except for the tool settings that the tests of the job need.
        if name == MADE || name.starts_with('.') && name != ".rustfmt.toml" {
            continue;
        }
        let path = to.join(&name);
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&path).unwrap();
            copy(&entry.path(), &path);
        } else {
            fs::copy(entry.path(), path).unwrap();
        }
    }
}

fn rust_files(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, root, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
}
