//! Replaces a file by a draft beside it, and loses no version that another program wrote meanwhile.
//!
//! A lock cannot keep other programs out. So the draft and the file exchange their names in one step, and the
//! displaced version is compared with the one that the new version derives from. If they differ, the names are
//! exchanged again. A version that is neither the old one nor the new one is never removed. Meanwhile a program may
//! have derived its next version from the new one, so the caller gets the displaced version, too.
//!
//! A file system without such an exchange gets a comparison directly before a rename.

use super::{SafePath, SafePathError, open_in, regular};
use crate::os::event::event_loop::check_blocking;
use crate::os::file::lease::{OpenWriters, writers};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat};
use nix::unistd::{AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The polls for the end of a writer, and the pause after each. A writer may be a child of this process that has not
/// executed its program yet, and holds a copy of the descriptor of a draft.
const WRITER_POLLS: u32 = 40;
const WRITER_PAUSE: Duration = Duration::from_millis(5);

/// The next version of a file: durable, in the same folder, under another name.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    target: &'a SafePath,
    file: DraftFile,
    bytes: &'a [u8],
}

/// A file under the name of a draft.
#[derive(Debug)]
pub(crate) struct DraftFile {
    folder: OwnedFd,
    name: OsString,
}

/// The result of [`Draft::place`].
#[derive(Debug)]
pub(crate) enum Placement {
    Placed,
    /// The file was not the expected one. It is left as it is.
    Changed,
    /// Another program has the file open for writing. It is left as it is.
    Busy,
    /// The file was changed in the middle, and has its name again.
    Restored {
        /// The content of the version that was displaced for a moment.
        version: Vec<u8>,
        /// A further version, which has only the name of the draft now.
        displaced: Option<DraftFile>,
    },
}

impl SafePath {
    /// Writes the next version of the file under the name `draft`; missing folders are created. An existing file
    /// passes its mode on. Fails if the file cannot be written, or if the name is taken; nothing is left then.
    pub(crate) fn draft<'a>(
        &'a self,
        draft: &OsStr,
        bytes: &'a [u8],
    ) -> Result<Draft<'a>, SafePathError> {
        let folder = self.make_folders()?;
        let old = self.known(folder.as_fd())?;
        if old.is_some() {
            // A rename ignores the mode of the file, so check that it is writable.
            faccessat(&folder, self.name.as_os_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS)?;
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let written = File::from(openat(&folder, draft, flags, mode)?);
        let file = DraftFile { folder, name: draft.to_owned() };
        if let Err(why) = fill(written, old.as_ref(), bytes) {
            file.discard();
            return Err(why.into());
        }
        Ok(Draft { target: self, file, bytes })
    }

    /// Removes the file if it has the content `expected`. It gets the name `aside` first, is compared there, and gets its
    /// name back if it is another version. Afterwards the name `aside` is free, unless the result contains it.
    pub(crate) fn remove_exactly(
        &self,
        aside: &OsStr,
        expected: &[u8],
    ) -> Result<Placement, SafePathError> {
        if !self.missing.is_empty() {
            return Ok(Placement::Changed);
        }
        let file = DraftFile { folder: self.folder.try_clone()?, name: aside.to_owned() };
        let draft = Draft { target: self, file, bytes: b"" };
        if let Some(refused) = draft.refusal(Some(expected)) {
            return Ok(refused);
        }
        let Draft { file, .. } = draft;
        match move_to_free(&self.folder, &self.name, aside) {
            Err(Errno::ENOENT) => return Ok(Placement::Changed),
            moved => moved?,
        }
        if file.is_exactly(expected) {
            file.discard();
            return Ok(Placement::Placed);
        }
        match move_to_free(&self.folder, aside, &self.name) {
            Ok(()) => Ok(Placement::Changed),
            Err(_) => Ok(Placement::Restored { version: Vec::new(), displaced: Some(file) }),
        }
    }

    /// Returns the file under the name of a draft that an earlier process left beside this file.
    pub(crate) fn leftover(&self, draft: &OsStr) -> Result<Option<DraftFile>, SafePathError> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        let file = DraftFile { folder: self.folder.try_clone()?, name: draft.to_owned() };
        match file.open() {
            Ok(_) => Ok(Some(file)),
            Err(Errno::ENOENT) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }
}

/// Renames a file of a folder to a free name.
fn move_to_free(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> nix::Result<()> {
    match renameat2(folder, from, folder, to, RenameFlags::RENAME_NOREPLACE) {
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            match fstatat(folder, to, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => renameat(folder, from, folder, to),
                Ok(_) => Err(Errno::EEXIST),
                Err(why) => Err(why),
            }
        }
        renamed => renamed,
    }
}

fn fill(mut file: File, old: Option<&FileStat>, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Some(old) = old {
        // Only root may set the owner; otherwise the file becomes this user's, as with an editor.
        let (user, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        fchown(&file, Some(user), Some(group)).unwrap_or_default();
        fchmod(&file, Mode::from_bits_truncate(old.st_mode))?;
    }
    check_blocking("fsync");
    file.sync_data()
}

impl DraftFile {
    fn open(&self) -> nix::Result<File> {
        open_in(&self.folder, &self.name)
    }

    /// Returns the content. Fails for an object that is not a regular file.
    pub(crate) fn read(&self) -> Result<Vec<u8>, SafePathError> {
        let mut file = self.open()?;
        regular(fstat(&file)?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn remove(&self) -> Result<(), SafePathError> {
        Ok(unlinkat(&self.folder, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes a file that is not needed. If that fails, the file is a [`SafePath::leftover`].
    fn discard(&self) {
        drop(self.remove());
    }

    fn is_exactly(&self, expected: &[u8]) -> bool {
        self.open().is_ok_and(|file| is_exactly(file, expected))
    }
}

/// Waits until no program can write to the file. Returns whether that was so within a moment.
fn has_ended(file: &File) -> bool {
    check_blocking("writer");
    for _ in 0..WRITER_POLLS {
        if writers(file) != OpenWriters::Present {
            return true;
        }
        std::thread::park_timeout(WRITER_PAUSE);
    }
    false
}

/// Whether a regular file has exactly this content, and no program can still write to it.
fn is_exactly(file: File, expected: &[u8]) -> bool {
    // The writers are checked first: after an exchange, a later one would have to open the file under the name of the
    // draft.
    let is_settled = fstat(&file).is_ok_and(|stat| regular(stat).is_ok())
        && writers(&file) != OpenWriters::Present;
    if !is_settled {
        return false;
    }
    let mut bytes = Vec::with_capacity(expected.len() + 1);
    let longest = u64::try_from(expected.len()).unwrap_or(u64::MAX).saturating_add(1);
    file.take(longest).read_to_end(&mut bytes).is_ok() && bytes == expected
}

impl Draft<'_> {
    /// Returns the permission bits that the file will have.
    pub(crate) fn mode(&self) -> Option<u32> {
        let known = fstat(self.file.open().ok()?).ok()?;
        Some(known.st_mode & 0o7777)
    }

    /// Sets the permission bits that the file will have.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), SafePathError> {
        fchmod(self.file.open()?, Mode::from_bits_truncate(mode & 0o7777))?;
        Ok(())
    }

    /// Removes the draft instead of placing it.
    pub(crate) fn discard(self) {
        self.file.discard();
    }

    /// Gives the draft the name of the file, in one step, if the file has the content `expected`; `None` stands for
    /// no file. Afterwards the name of the draft is free, unless the result contains it.
    pub(crate) fn place(self, expected: Option<&[u8]>) -> Result<Placement, SafePathError> {
        // The exchange finds out the same, but other programs see the draft meanwhile.
        if let Some(refused) = self.refusal(expected) {
            self.file.discard();
            return Ok(refused);
        }
        let how = match expected {
            Some(_) => RenameFlags::RENAME_EXCHANGE,
            None => RenameFlags::RENAME_NOREPLACE,
        };
        match (self.rename(how), expected) {
            (Ok(()), Some(expected)) if !self.file.is_exactly(expected) => Ok(self.undo(expected)),
            (Ok(()), Some(_)) => {
                self.file.discard();
                Ok(Placement::Placed)
            }
            (Ok(()), None) => Ok(Placement::Placed),
            (Err(Errno::EEXIST | Errno::ENOENT), _) => {
                self.file.discard();
                Ok(Placement::Changed)
            }
            (Err(Errno::EINVAL | Errno::ENOSYS), _) => self.rename_over(),
            (Err(why), _) => {
                self.file.discard();
                Err(why.into())
            }
        }
    }

    /// Returns the result if the file is not the expected one, or another program can write to it.
    fn refusal(&self, expected: Option<&[u8]>) -> Option<Placement> {
        let (folder, name) = (&self.file.folder, &self.target.name);
        match (open_in(folder, name), expected) {
            (Ok(file), Some(_)) if !has_ended(&file) => Some(Placement::Busy),
            (Ok(file), Some(expected)) => {
                (!is_exactly(file, expected)).then_some(Placement::Changed)
            }
            (Err(Errno::ENOENT), None) => None,
            (Ok(_), None) | (Err(_), _) => Some(Placement::Changed),
        }
    }

    fn rename(&self, how: RenameFlags) -> nix::Result<()> {
        let DraftFile { folder, name } = &self.file;
        renameat2(folder, name.as_os_str(), folder, self.target.name.as_os_str(), how)
    }

    /// Gives the displaced version its name back.
    fn undo(self, expected: &[u8]) -> Placement {
        let version = self.file.read().ok().filter(|version| version != expected);
        let is_undone = match self.rename(RenameFlags::RENAME_EXCHANGE) {
            // Another program removed the new version meanwhile, so its name is free.
            Err(Errno::ENOENT) => {
                let renamed = self.rename(RenameFlags::RENAME_NOREPLACE);
                return self.restored(version, renamed.is_err());
            }
            exchanged => exchanged.is_ok() && self.file.is_exactly(self.bytes),
        };
        if is_undone {
            self.file.discard();
        }
        self.restored(version, !is_undone)
    }

    fn restored(self, version: Option<Vec<u8>>, is_displaced: bool) -> Placement {
        match (version, is_displaced.then_some(self.file)) {
            (None, None) => Placement::Changed,
            (version, displaced) => {
                Placement::Restored { version: version.unwrap_or_default(), displaced }
            }
        }
    }

    /// Replaces the file on a file system that cannot exchange names. A write since the comparison is lost.
    fn rename_over(self) -> Result<Placement, SafePathError> {
        let DraftFile { folder, name } = &self.file;
        let renamed = renameat(folder, name.as_os_str(), folder, self.target.name.as_os_str());
        if renamed.is_err() {
            self.file.discard();
        }
        renamed?;
        Ok(Placement::Placed)
    }
}
