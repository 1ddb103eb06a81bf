//! The usage and the limits of resources that are scarce for a user: file events and descriptors.
//!
//! Linux only: it reads `/proc`, and sees only the processes of this user.

use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// The inotify instances and watched files of this user, and their limits; 0 for a number that the system does
/// not report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InotifyUsage {
    pub(crate) instances: u64,
    pub(crate) max_instances: u64,
    pub(crate) watches: u64,
    pub(crate) max_watches: u64,
}

pub(crate) fn events() -> InotifyUsage {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    };
    let mut found = InotifyUsage {
        max_instances: limit("max_user_instances"),
        max_watches: limit("max_user_watches"),
        ..InotifyUsage::default()
    };
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if process.file_name().to_string_lossy().parse::<u32>().is_ok() {
            count(&process.path(), &mut found);
        }
    }
    found
}

/// Adds the numbers of one process; adds nothing for a process that exits meanwhile or belongs to another user.
fn count(process: &Path, found: &mut InotifyUsage) {
    for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        let target = fs::read_link(descriptor.path());
        if target.is_ok_and(|target| target.as_os_str() == "anon_inode:inotify") {
            let info = process.join("fdinfo").join(descriptor.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            let watches = info.lines().filter(|line| line.starts_with("inotify wd:")).count();
            found.instances += 1;
            found.watches += u64::try_from(watches).unwrap_or_default();
        }
    }
}

pub(crate) fn max_descriptors() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::watch::Watch;

    #[test]
    fn inotify_instances_and_watches_of_a_process_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new().unwrap();
        watch.add(folder.path()).unwrap();
        let mut own = InotifyUsage::default();
        count(Path::new("/proc/self"), &mut own);
        assert!(own.instances >= 1 && own.watches >= 1, "{own:?}");
        let all = events();
        assert!(all.instances >= own.instances.min(1) && all.max_instances > 0, "{all:?}");
        assert!(max_descriptors() > Some(16));
    }
}
