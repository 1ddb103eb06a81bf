//! Control groups: processes that have little of something.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A limit as the two versions of control groups say it: a folder, and what to write into which files.
pub(crate) type Limit<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// A group of processes; it must be empty when it goes.
pub(crate) struct Group(PathBuf);

impl Group {
    /// The first of these that can be had; says so, where none can.
    pub(crate) fn new(what: &str, limits: &[Limit<'_>]) -> Option<Self> {
        for (root, files) in limits {
            let folder = Path::new(root).join(format!("team-it-{what}-{}", std::process::id()));
            if fs::create_dir(&folder).is_ok() {
                let group = Self(folder);
                if files.iter().all(|(file, value)| group.set(file, value)) {
                    return Some(group);
                }
            }
        }
        eprintln!("SKIPPED: no control group may be made here: nobody is in want of {what}");
        None
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> bool {
        let file = fs::OpenOptions::new().write(true).open(self.0.join(name));
        file.and_then(|mut file| file.write_all(value.as_bytes())).is_ok()
    }

    /// The shell's words by which a process goes into the group.
    pub(crate) fn entrance(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap_or_else(|why| eprintln!("{}: {why}", self.0.display()));
    }
}
