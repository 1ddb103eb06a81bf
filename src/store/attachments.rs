//! The copies of files that came with messages: `attachments/HASH/NAME`. What is not whole yet is in `attachments/.part/`.
//!
//! *Invariants:* a copy is whole or not there, and never changed. It is durable before a line names it. The folder is made by
//! the first attachment.

use super::file::atomic::{Fsync, remove, sync_data, sync_folder, sync_parent};
use super::file::read::{known_if_there, names_in, open_if_there};
use super::teamdir::make_folder;
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, open, open_or_create};
use crate::wire::attachment::{Attachment, MAX_ATTACHMENT_BYTES, is_attachment_name};
use crate::wire::file_view::{ContentHash, ContentHasher};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes that are copied at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The reason for which a file is not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The file cannot be read, or is none.
    #[error(transparent)]
    Unreadable(FileError),
    /// A file of this name cannot be on every host.
    #[error("{0:?} is no name for an attachment: at most 200 bytes, without control characters")]
    Name(String),
    /// The file has this many bytes.
    #[error("{0} has {1} bytes, more than {MAX_ATTACHMENT_BYTES}")]
    TooLarge(String, u64),
    /// The copy cannot be kept.
    #[error("it cannot be kept in the team folder: {0}")]
    Store(#[from] StoreError),
}

/// Keeps a copy of a file in the team folder, for messages.
///
/// # Errors
/// The path leads to no file, or the file is too large, or cannot be read or copied.
pub fn keep(dir: &TeamDir, path: &Path, fsync: Fsync) -> Result<Attachment, AttachError> {
    let path = fs::canonicalize(path).at(path).map_err(AttachError::Unreadable)?;
    let file = open(&path, Access::Read).map_err(AttachError::Unreadable)?;
    keep_file(dir, &path, file, fsync)
}

/// Keeps a copy of an open file, which has the name of this path.
pub(crate) fn keep_file(
    dir: &TeamDir,
    path: &Path,
    mut file: File,
    fsync: Fsync,
) -> Result<Attachment, AttachError> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !is_attachment_name(&name) || name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(AttachError::Name(name));
    }
    let size = file.metadata().at(path).map_err(AttachError::Unreadable)?.len();
    if size > MAX_ATTACHMENT_BYTES {
        return Err(AttachError::TooLarge(name, size));
    }
    make_parts_folder(dir)?;
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let part = dir.attachment_part(&format!("{}-{number}", process::id()));
    let kept = copy(&mut file, &part).map_err(AttachError::from).and_then(|(hash, bytes)| {
        if bytes > MAX_ATTACHMENT_BYTES {
            return Err(AttachError::TooLarge(name.clone(), bytes));
        }
        let path = dir.attachment(hash.as_str(), &name).to_string_lossy().into_owned();
        let attachment = Attachment { path, bytes, hash, missing: false };
        put(dir, &attachment, &part, fsync)?;
        Ok(attachment)
    });
    remove(&part).map_err(StoreError::from)?;
    kept
}

/// Copies a file, and one byte more than is allowed at most.
fn copy(file: &mut File, part: &Path) -> Result<(ContentHash, u64), StoreError> {
    let mut copy = open_or_create(part, Access::Update)?;
    copy.set_len(0).at(part)?;
    let copied = hash_of(&mut file.take(MAX_ATTACHMENT_BYTES + 1), |piece| copy.write_all(piece));
    Ok(copied.at(part)?)
}

/// Reads to the end. Returns the hash and the number of bytes.
fn hash_of(
    content: &mut impl Read,
    mut meet: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(ContentHash, u64)> {
    let (mut hasher, mut bytes) = (ContentHasher::default(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = content.read(&mut piece)?;
        let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
            return Ok((hasher.finish(), bytes));
        };
        hasher.update(read);
        meet(read)?;
        bytes += read.len() as u64;
    }
}

/// Gives a copy that is whole its name.
fn put(
    dir: &TeamDir,
    attachment: &Attachment,
    part: &Path,
    fsync: Fsync,
) -> Result<(), StoreError> {
    let path = path_of(dir, attachment);
    let folder = path.parent().unwrap_or(&path);
    make_folder(folder)?;
    sync_data(&open(part, Access::Read)?, part, fsync)?;
    fs::rename(part, &path).at(&path)?;
    sync_parent(&path, fsync)?;
    sync_parent(folder, fsync)?;
    Ok(sync_folder(dir.root(), fsync)?)
}

fn make_parts_folder(dir: &TeamDir) -> Result<(), StoreError> {
    dir.is_still_there()?;
    make_folder(&dir.attachments())?;
    Ok(make_folder(&dir.attachment_parts())?)
}

/// Returns the path of the copy on this host, whatever the path in the attachment is.
pub fn path_of(dir: &TeamDir, attachment: &Attachment) -> PathBuf {
    dir.attachment(attachment.hash.as_str(), attachment.name())
}

/// Whether the copy is on this host.
///
/// # Errors
/// The folder cannot be read.
pub fn is_here(dir: &TeamDir, attachment: &Attachment) -> Result<bool, StoreError> {
    let known = known_if_there(&path_of(dir, attachment))?;
    Ok(known.is_some_and(|known| known.is_file() && known.len() == attachment.bytes))
}

/// Reads a part of a copy, at most so many bytes; empty at its end. `None` if it is not on this host.
///
/// # Errors
/// The file cannot be read.
pub fn read_part(
    dir: &TeamDir,
    attachment: &Attachment,
    (offset, most): (u64, usize),
) -> Result<Option<Vec<u8>>, StoreError> {
    let path = path_of(dir, attachment);
    let Some((file, known)) = open_if_there(&path)? else { return Ok(None) };
    let left = usize::try_from(known.len().saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; most.min(left)];
    file.read_exact_at(&mut bytes, offset).at(&path)?;
    Ok(Some(bytes))
}

/// Returns the number of bytes of an attachment that have come from another host so far.
///
/// # Errors
/// The folder cannot be read.
pub fn bytes_that_came(dir: &TeamDir, attachment: &Attachment) -> Result<u64, StoreError> {
    let known = known_if_there(&dir.attachment_part(attachment.hash.as_str()))?;
    Ok(known.map_or(0, |known| known.len()))
}

/// Writes bytes of an attachment that have come from another host. Once all have come, it gets its name, unless its content is
/// another one: then what has come is removed.
///
/// # Errors
/// The file cannot be written.
pub fn write_part(
    dir: &TeamDir,
    attachment: &Attachment,
    (offset, bytes): (u64, &[u8]),
) -> Result<(), StoreError> {
    make_parts_folder(dir)?;
    let part = dir.attachment_part(attachment.hash.as_str());
    let mut file = open_or_create(&part, Access::Update)?;
    file.write_all_at(bytes, offset).at(&part)?;
    if offset + (bytes.len() as u64) < attachment.bytes {
        return Ok(());
    }
    // The position of the descriptor is still at the beginning.
    let (hash, size) = hash_of(&mut file, |_| Ok(())).at(&part)?;
    if hash == attachment.hash && size == attachment.bytes {
        put(dir, attachment, &part, Fsync::Always)
    } else {
        Ok(remove(&part)?)
    }
}

/// Returns all copies, and what is left of unfinished ones.
pub(super) fn files(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = Vec::new();
    for folder in names_in(&dir.attachments())? {
        let folder = dir.attachments().join(folder);
        files.extend(names_in(&folder)?.iter().map(|name| folder.join(name)));
    }
    Ok(files)
}

/// Removes a copy, and its folder if nothing else is in it.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    remove(path)?;
    if let Some(folder) = path.parent() {
        drop(fs::remove_dir(folder));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn write(path: &Path, content: &[u8]) {
        File::create(path).unwrap().write_all(content).unwrap();
    }

    #[test]
    fn a_file_is_kept_as_it_was_and_only_its_owner_reads_it() {
        let (folder, dir) = test_team();
        let plot = folder.path().join("plot.png");
        write(&plot, b"one");
        let kept = keep(&dir, &plot, Fsync::Always).unwrap();
        write(&plot, b"two, later");
        assert_eq!((kept.name(), kept.bytes), ("plot.png", 3));
        assert_eq!(fs::read(&kept.path).unwrap(), b"one");
        assert_eq!(path_of(&dir, &kept), Path::new(&kept.path));
        assert!(is_here(&dir, &kept).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(Path::new(&kept.path)), 0o600);
        assert_eq!(mode(&dir.attachments()), 0o700);
        // A link of the person leads to a file; the same content twice is one copy.
        let link = folder.path().join("link");
        symlink(&plot, &link).unwrap();
        let again = keep(&dir, &link, Fsync::Never).unwrap();
        assert_eq!(again.name(), "plot.png");
        assert_ne!(again.hash, kept.hash);
        assert_eq!(keep(&dir, &plot, Fsync::Never).unwrap(), again);
        assert_eq!(files(&dir).unwrap().len(), 2, "nothing is left of copying");
        for file in files(&dir).unwrap() {
            remove_file(&file).unwrap();
        }
        assert_eq!(names_in(&dir.attachments()).unwrap(), [".part"]);
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused_and_leaves_nothing() {
        let (folder, dir) = test_team();
        let refused = |path: &Path| keep(&dir, path, Fsync::Never).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("is a folder"), "{}", refused(folder.path()));
        assert!(refused(&folder.path().join("none")).contains("No such file"));
        let odd = folder.path().join("a\nb");
        write(&odd, b"x");
        assert!(refused(&odd).contains("no name for an attachment"));
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(MAX_ATTACHMENT_BYTES + 1).unwrap();
        assert!(refused(&large).contains("more than 67108864"));
        assert_eq!(files(&dir).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn an_attachment_comes_in_parts_and_another_content_is_not_kept() {
        let (folder, dir) = test_team();
        let (_other_folder, other) = test_team();
        let path = folder.path().join("data");
        write(&path, b"0123456789");
        let sent = keep(&dir, &path, Fsync::Never).unwrap();
        assert_eq!(read_part(&dir, &sent, (8, 100)).unwrap().unwrap(), b"89");
        assert_eq!(read_part(&other, &sent, (0, 100)).unwrap(), None);
        write_part(&other, &sent, (0, b"01234")).unwrap();
        assert_eq!(bytes_that_came(&other, &sent).unwrap(), 5);
        assert!(!is_here(&other, &sent).unwrap());
        write_part(&other, &sent, (5, b"56780")).unwrap();
        assert!(!is_here(&other, &sent).unwrap(), "that is something else");
        assert_eq!(bytes_that_came(&other, &sent).unwrap(), 0);
        write_part(&other, &sent, (0, b"0123456789")).unwrap();
        assert!(is_here(&other, &sent).unwrap());
        assert_eq!(fs::read(path_of(&other, &sent)).unwrap(), b"0123456789");
        assert_eq!(files(&other).unwrap(), [path_of(&other, &sent)]);
    }
}
