//! Reports changes of files without polling: by inotify, or by a fifo that writers notify if the user has no
//! inotify instance left.
//!
//! *Invariant:* no descriptor of this module blocks.

use super::{At, FileError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags as On, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC,
    XFS_SUPER_MAGIC, fstatfs,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The fewest events in a read after which there may be more: one reads 4096 bytes, and an event has at most 272.
const FEWEST_IN_FULL_READ: usize = 15;

/// A watched file, independent of its current name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(WatchDescriptor);

#[derive(Debug, Default)]
pub(crate) struct Written {
    watch_ids: BTreeSet<WatchId>,
    /// Whether the queue has overflowed, so that events were lost.
    is_incomplete: bool,
}

impl Written {
    /// Whether a file may be among them; `true` for a file without a watch.
    pub(crate) fn may_have(&self, watch_id: Option<WatchId>) -> bool {
        self.is_incomplete || watch_id.is_none_or(|watch_id| self.watch_ids.contains(&watch_id))
    }
}

/// Whether this user can create another inotify instance now.
pub(crate) fn is_to_be_had() -> bool {
    Watch::new().and_then(|watch| watch.add_folder(Path::new("/"))).is_ok()
}

/// File events of single files. A watch follows the inode through renames and ends with it.
#[derive(Debug)]
pub(crate) struct Watch(Inotify);

impl Watch {
    /// Creates an inotify instance; a user has only 128 of them.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?))
    }

    /// Watches the file that is at `path` now. Opening and reading the file cause no event.
    pub(crate) fn add(&self, path: &Path) -> io::Result<WatchId> {
        self.on(path, On::IN_MODIFY | On::IN_ATTRIB | On::IN_MOVE_SELF | On::IN_DELETE_SELF)
    }

    /// Watches a folder for files that are created, removed or written.
    pub(crate) fn add_folder(&self, path: &Path) -> io::Result<()> {
        let in_it = On::IN_MODIFY | On::IN_CREATE | On::IN_MOVE | On::IN_DELETE;
        self.on(path, in_it | On::IN_ONLYDIR).map(drop)
    }

    /// Watches a folder for files that are written, and for those that were open for writing and are closed, as all are when a
    /// process exits.
    pub(crate) fn add_writers(&self, path: &Path) -> io::Result<()> {
        self.on(path, On::IN_MODIFY | On::IN_CLOSE_WRITE | On::IN_ONLYDIR).map(drop)
    }

    /// Watches a folder for its own move or removal.
    pub(crate) fn add_place(&self, path: &Path) -> io::Result<()> {
        self.on(path, On::IN_MOVE_SELF | On::IN_DELETE_SELF | On::IN_ONLYDIR).map(drop)
    }

    fn on(&self, path: &Path, events: On) -> io::Result<WatchId> {
        Ok(WatchId(self.0.add_watch(path, events | On::IN_DONT_FOLLOW)?))
    }

    /// Consumes the pending events of a folder; returns the names of the files that have come or were written to. `None` if
    /// events were lost.
    pub(crate) fn changed_names(&self) -> io::Result<Option<BTreeSet<OsString>>> {
        let mut names = Some(BTreeSet::new());
        loop {
            match self.0.read_events() {
                Ok(events) => {
                    for event in events {
                        if event.mask.contains(On::IN_Q_OVERFLOW) {
                            names = None;
                        }
                        let has_come =
                            event.mask.intersects(On::IN_MODIFY | On::IN_CREATE | On::IN_MOVED_TO);
                        if let (true, Some(names)) = (has_come, &mut names) {
                            names.extend(event.name);
                        }
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(names),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Consumes the pending events; records which files were written to.
    pub(crate) fn acknowledge(&self, written: &mut Written) -> io::Result<()> {
        loop {
            match self.0.read_events() {
                Ok(events) => {
                    let are_all = events.len() < FEWEST_IN_FULL_READ;
                    for event in events {
                        written.is_incomplete |= event.mask.contains(On::IN_Q_OVERFLOW);
                        if event.mask.contains(On::IN_MODIFY) {
                            written.watch_ids.insert(WatchId(event.wd));
                        }
                    }
                    if are_all {
                        return Ok(());
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(why) => return Err(why.into()),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// File systems that change only by calls to this kernel, which creates an event for each.
const LOCAL: [FsType; 6] = [
    EXT4_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
    BTRFS_SUPER_MAGIC,
    TMPFS_MAGIC,
    OVERLAYFS_SUPER_MAGIC,
    FsType(0xf2f5_2010), // F2FS
];

/// Whether every change of a file creates an event, because the file is on a local disk.
pub(crate) fn is_local(file: &File) -> bool {
    fstatfs(file).is_ok_and(|known| LOCAL.contains(&known.filesystem_type()))
}

/// Causes an event for a watched file without changing its contents.
pub(crate) fn touch(file: &File) -> io::Result<()> {
    Ok(fchmod(file, Mode::from_bits_truncate(0o600))?)
}

/// Whether nothing is pending at a descriptor.
pub(crate) fn is_quiet(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::ZERO) == Ok(0)
}

/// A fifo; its descriptor is readable after a notification.
#[derive(Debug)]
pub(crate) struct Fifo(File);

impl Fifo {
    /// Creates and opens the fifo at `path`, which must be free or a fifo.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        match nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(why) => return Err(io::Error::from(why)).at(path),
        }
        // Also open for writing: a fifo without writers reports end of file.
        Ok(Self(open_pipe(path, OpenOptions::new().read(true).write(true)).at(path)?))
    }

    pub(crate) fn acknowledge(&self) -> io::Result<()> {
        match io::copy(&mut &self.0, &mut io::sink()) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(()),
            read => read.map(drop),
        }
    }
}

impl AsFd for Fifo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Notifies the owner of a fifo, if there is one; returns whether there is.
pub(crate) fn notify(path: &Path) -> bool {
    let Ok(mut pipe) = open_pipe(path, OpenOptions::new().write(true)) else { return false };
    // A full fifo holds a notification already.
    drop(pipe.write(b"!"));
    true
}

fn open_pipe(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let pipe = options.custom_flags(flags).open(path)?;
    if pipe.metadata()?.file_type().is_fifo() {
        Ok(pipe)
    } else {
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "not a pipe"))
    }
}

/// Removes a fifo that has no reader any more; leaves any other object alone.
pub(crate) fn remove_fifo(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|known| known.file_type().is_fifo()) {
        drop(fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tempfile::tempdir;

    fn is_ready(source: &impl AsFd) -> bool {
        !is_quiet(source.as_fd())
    }

    fn woke(watch: &Watch) -> bool {
        let woke = is_ready(watch);
        watch.acknowledge(&mut Written::default()).unwrap();
        woke
    }

    #[test]
    fn a_write_wakes_and_a_read_does_not() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = File::create(&path).unwrap();
        let watch = Watch::new().unwrap();
        let watch_id = Some(watch.add(&path).unwrap());
        let acknowledge = || {
            let mut written = Written::default();
            watch.acknowledge(&mut written).unwrap();
            written.may_have(watch_id)
        };
        fs::read(&path).unwrap();
        assert!(!is_ready(&watch));
        file.write_all(b"x").unwrap();
        assert!(is_ready(&watch));
        assert!(acknowledge() && !is_ready(&watch));
        fs::rename(&path, folder.path().join("moved")).unwrap();
        touch(&file).unwrap();
        assert!(is_ready(&watch) && !acknowledge(), "nothing was written");
        file.write_all(b"y").unwrap();
        assert!(is_ready(&watch) && acknowledge());
        assert!(Written::default().may_have(None), "nothing is known without a watch_id");
    }

    #[test]
    fn more_events_than_the_kernel_keeps_count_for_every_file() {
        let folder = tempdir().unwrap();
        let watch = Watch::new().unwrap();
        let [(mut a, _), (mut b, _), (mut last, watch_id)] = ["a", "b", "last"].map(|name| {
            let path = folder.path().join(name);
            (File::create(&path).unwrap(), watch.add(&path).unwrap())
        });
        let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        // Equal events in a row are merged, so two files take turns.
        for _ in 0..=kept.trim().parse::<u32>().unwrap() / 2 {
            a.write_all(b"x").unwrap();
            b.write_all(b"x").unwrap();
        }
        last.write_all(b"x").unwrap();
        let mut written = Written::default();
        watch.acknowledge(&mut written).unwrap();
        assert!(!written.watch_ids.contains(&watch_id), "its event was dropped");
        assert!(written.may_have(Some(watch_id)), "so every file may have been written to");
        assert!(!is_ready(&watch));
        last.write_all(b"y").unwrap();
        assert!(is_ready(&watch), "later events come as ever");
    }

    #[test]
    fn a_watch_reports_changed_files_or_a_move_of_the_folder() {
        let top = tempdir().unwrap();
        let folder = top.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let [files, place] = [(); 2].map(|()| Watch::new().unwrap());
        files.add_folder(&folder).unwrap();
        place.add_place(&folder).unwrap();
        let path = folder.join("file");
        let mut file = File::create(&path).unwrap();
        assert!(woke(&files), "a file came");
        fs::read(&path).unwrap();
        fs::read_dir(&folder).unwrap().count();
        assert!(!woke(&files), "it was only read");
        file.write_all(b"x").unwrap();
        assert!(woke(&files), "it grew");
        fs::rename(&path, folder.join("moved")).unwrap();
        assert!(woke(&files), "it has another name");
        fs::remove_file(folder.join("moved")).unwrap();
        assert!(!woke(&place), "only its files changed");
        fs::rename(&folder, top.path().join("moved")).unwrap();
        assert!(woke(&place), "it was moved");
    }

    #[test]
    fn a_watch_of_a_folder_tells_the_names_of_files_that_came_or_were_written_to() {
        let folder = tempdir().unwrap();
        let watch = Watch::new().unwrap();
        watch.add_folder(folder.path()).unwrap();
        let names = || watch.changed_names().unwrap().unwrap();
        let mut file = File::create(folder.path().join("a")).unwrap();
        drop(File::create(folder.path().join("b")).unwrap());
        assert_eq!(names(), BTreeSet::from(["a".into(), "b".into()]));
        file.write_all(b"x").unwrap();
        fs::rename(folder.path().join("b"), folder.path().join("c")).unwrap();
        assert_eq!(names(), BTreeSet::from(["a".into(), "c".into()]));
        fs::remove_file(folder.path().join("c")).unwrap();
        assert_eq!(names(), BTreeSet::new());
    }

    #[test]
    fn files_that_change_without_events_are_not_local() {
        for unseen in ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            assert!(!File::open(unseen).is_ok_and(|file| is_local(&file)), "{unseen}");
        }
    }

    #[test]
    fn a_fifo_is_notified_while_it_is_open_and_that_never_blocks() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(!notify(&path) && !path.exists());
        let fifo = Fifo::open(&path).unwrap();
        assert!(!is_ready(&fifo));
        for _ in 0..100_000 {
            assert!(notify(&path));
        }
        assert!(is_ready(&fifo));
        fifo.acknowledge().unwrap();
        assert!(!is_ready(&fifo));
        drop(fifo);
        // A child that another test has just forked holds the reading end until its exec.
        let deadline = Instant::now() + Duration::from_secs(60);
        while notify(&path) {
            assert!(Instant::now() < deadline, "the FIFO is closed");
        }
        remove_fifo(&path);
        assert!(!path.exists());
        // A file is neither notified nor replaced.
        File::create(&path).unwrap();
        assert!(!notify(&path) && Fifo::open(&path).is_err());
        remove_fifo(&path);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
