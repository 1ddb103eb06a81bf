//! Clones of mounts with their paths, and empty places over hidden paths in which some of them stay.

use super::mount_calls::{Extent, attach, clone_mounts, mount_memory, open_place, set_read_only};
use super::named_error::named;
use nix::libc;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A path with nothing to read: an empty folder, or an empty file.
#[derive(Debug)]
pub(super) struct Cover {
    pub(super) path: PathBuf,
    /// Paths in the folder that stay readable.
    pub(super) readable: Vec<PathBuf>,
    /// Paths in the folder at which trees are attached afterwards.
    pub(super) writable: Vec<PathBuf>,
}

impl Cover {
    /// Mounts an empty, read-only folder or file over the path: with the `readable` parts of the folder in it, and with
    /// places for the `writable` trees that are attached in it afterwards.
    pub(super) fn put_over(
        &self,
        readable: &[(PathBuf, OwnedFd)],
        writable: &[(PathBuf, OwnedFd)],
    ) -> io::Result<()> {
        let path = &self.path;
        let place = match open_place(path) {
            // A private folder or an outer cover hides it already.
            Err(why) if is_absent(&why) => return Ok(()),
            place => place?,
        };
        if !path.is_dir() {
            let nothing = clone_mounts(&open_place(Path::new("/dev/null"))?)?;
            return attach(&nothing, &place);
        }
        mount_memory(&place, c"mode=755,size=64k")?;
        for (kept, tree) in readable {
            make_place(kept, tree)?;
            set_read_only(tree, Extent::ThisAndBelow)?;
            attach(tree, &open_place(kept)?)?;
        }
        for (path, tree) in writable.iter().filter(|(path, _)| self.writable.contains(path)) {
            make_place(path, tree)?;
        }
        set_read_only(open_place(path)?, Extent::This)
    }
}

/// Clones of mounts, with the paths of the originals.
type Trees = Vec<(PathBuf, OwnedFd)>;

/// Clones the mounts of each path; paths that are gone are left out.
pub(super) fn trees(paths: &[PathBuf]) -> io::Result<Trees> {
    let mut trees = Vec::new();
    for path in paths {
        match open_place(path).and_then(|place| clone_mounts(&place)) {
            Err(why) if is_absent(&why) => {}
            tree => trees.push((path.clone(), at(path, tree)?)),
        }
    }
    Ok(trees)
}

/// Returns covers with clones of what stays readable in them.
pub(super) fn with_trees(covers: &[Cover]) -> io::Result<Vec<(&Cover, Trees)>> {
    covers.iter().map(|cover| Ok((cover, trees(&cover.readable)?))).collect()
}

/// Creates the empty folder or file at which a tree is attached.
pub(super) fn make_place(path: &Path, tree: &OwnedFd) -> io::Result<()> {
    let is_folder = File::from(tree.try_clone()?).metadata()?.is_dir();
    let folder = if is_folder { Some(path) } else { path.parent() };
    if let Some(folder) = folder {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    if !is_folder {
        File::create_new(path)?;
    }
    Ok(())
}

/// Whether a path does not exist or leads through a link.
pub(super) fn is_absent(why: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&why.kind()) || why.raw_os_error() == Some(libc::ELOOP)
}

pub(super) fn at<T>(path: &Path, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|why| named(path.display(), &why))
}
