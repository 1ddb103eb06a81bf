//! Files and folders of the rig: writing, copying, and temporary folders that a later run removes if this one is
//! killed.

use crate::mount::run;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginning of the names of temporary folders. The process id follows.
const PREFIX: &str = "team-rig-";

/// Writes a file that only its owner may read, without a sync.
pub(crate) fn write_private(path: &Path, bytes: impl AsRef<[u8]>) {
    let mut file = File::create(path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.write_all(bytes.as_ref()).unwrap();
}

/// Copies a folder with everything below it to a path that does not exist.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Creates a temporary folder, and removes those of processes that do not exist anymore.
pub(crate) fn temporary_folder() -> tempfile::TempDir {
    sweep(&std::env::temp_dir());
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().unwrap()
}

/// Removes the folders of killed test processes. Another test process may do the same at the same time.
fn sweep(temporary: &Path) {
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        pid.is_some_and(|pid: u32| !Path::new(&format!("/proc/{pid}")).exists())
    };
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    for stale in entries.map(|entry| entry.path()).filter(is_stale) {
        unmount_below(&stale);
        let _removed_by_another = fs::remove_dir_all(stale);
    }
}

/// Unmounts the disks that a killed test process has left.
fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        let _unmounted_by_another = run(Command::new("umount").arg(place));
    }
}

#[test]
fn a_folder_of_a_process_that_is_gone_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join(format!("{PREFIX}{}-x", std::process::id()));
    let stale = folder.path().join(format!("{PREFIX}{}-x", i32::MAX));
    let foreign = folder.path().join("team-rig-notes");
    for path in [&own, &stale, &foreign] {
        fs::create_dir(path).unwrap();
        write_private(&path.join("file"), "x");
    }
    sweep(folder.path());
    assert_eq!([own.exists(), stale.exists(), foreign.exists()], [true, false, true]);
}
