//! Control groups that limit a resource of a few processes.

use super::skips::skipped;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A limit for one version of control groups: the root folder, and the value of each control file.
pub(crate) type Limit<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// A control group. It must have no processes when it is dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    /// Creates a group with the first of these limits that this machine supports, or prints that the test is
    /// skipped.
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
        skipped(&format!("no control group may be made here: nobody is in want of {what}"));
        None
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> bool {
        let file = fs::OpenOptions::new().write(true).open(self.0.join(name));
        file.and_then(|mut file| file.write_all(value.as_bytes())).is_ok()
    }

    /// Returns a shell command that moves the shell into the group.
    pub(crate) fn entrance(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap_or_else(|why| eprintln!("{}: {why}", self.0.display()));
    }
}
