//! Disks whose power can be cut: file systems in images, mounted through loop devices.
//!
//! A copy of an image is the state of the disk after a power cut: it lacks the data that the kernel has not written out. The
//! copy must be consistent, so all writers are stopped while it is made.

use crate::mount::{Mounted, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of the image of a file system, in MiB. The image is sparse.
const MEGABYTES: u64 = 512;

/// A kind of file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskKind {
    pub(crate) name: &'static str,
    /// The options of its `mkfs` program.
    make: &'static [&'static str],
    /// The options of `mount`, also for a copy beside the original.
    mount: &'static str,
}

pub(crate) const KINDS: [DiskKind; 3] = [
    DiskKind { name: "ext4", make: &["-q", "-F"], mount: "loop" },
    // It refuses a second mount of the same UUID otherwise.
    DiskKind { name: "xfs", make: &["-q"], mount: "loop,nouuid" },
    DiskKind { name: "btrfs", make: &["-q"], mount: "loop" },
];

/// A file system in a file, mounted until the drop.
pub(crate) struct Disk {
    image: PathBuf,
    /// The path of `/sys/block/…/stat` of its device.
    counters: PathBuf,
    mounted: Mounted,
}

impl Disk {
    /// Makes a file system in a new image, and mounts it.
    ///
    /// # Errors
    /// In words: this machine or this user cannot do it.
    pub(crate) fn make(kind: DiskKind, image: &Path, at: &Path) -> Result<Self, String> {
        fs::File::create(image).unwrap().set_len(MEGABYTES << 20).unwrap();
        run(Command::new(format!("mkfs.{}", kind.name)).args(kind.make).arg(image))?;
        Self::mount(kind, image, at)
    }

    /// Mounts the file system of an image.
    ///
    /// # Errors
    /// In words: this machine or this user cannot do it.
    pub(crate) fn mount(kind: DiskKind, image: &Path, at: &Path) -> Result<Self, String> {
        let mounted = Mounted::image(image, at, kind.mount)?;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let at = format!(" {} ", fs::canonicalize(at).unwrap().display());
        let device = mounts.lines().rfind(|line| line.contains(&at)).unwrap();
        let device = device.split(' ').next().unwrap().trim_start_matches("/dev/");
        let counters = PathBuf::from(format!("/sys/block/{device}/stat"));
        Ok(Self { image: image.into(), counters, mounted })
    }

    /// Returns the folder on which it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.mounted.at
    }

    /// Copies the image. Returns `false` if the device was written to meanwhile.
    pub(crate) fn copy(&self, to: &Path) -> bool {
        let before = self.written();
        run(Command::new("cp").arg("--sparse=always").args([&self.image, &to.to_path_buf()]))
            .unwrap();
        before.is_some() && before == self.written()
    }

    /// The counts of completed writes and of written sectors, or `None` while a request is in progress.
    fn written(&self) -> Option<[u64; 2]> {
        let text = fs::read_to_string(&self.counters).unwrap();
        let counts: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (counts[8] == 0).then_some([counts[4], counts[6]])
    }
}
