//! The copies of files that came with messages: `attachments/HASH/NAME`. Those that are not whole yet are in
//! `attachments/.part/`.
//!
//! *Invariants:* a copy is whole or not there, and never changed. It is durable before a line names it. The folder is made by
//! the first attachment.

use super::file::atomic::{Fsync, remove, sync_data, sync_folder, sync_parent};
use super::file::read::{known_if_there, names_in, open_if_there};
use super::teamdir::make_folder;
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, create_new, open, open_or_create};
use crate::os::safe_path::anywhere;
use crate::wire::attachment::{Attachment, MAX_ATTACHMENT_BYTES, is_attachment_name};
use crate::wire::carried::HostName;
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
    #[error("{0}")]
    Unreadable(String),
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

/// A file that can be attached, open. It is copied only if the message can be sent.
#[derive(Debug)]
pub struct AttachableFile {
    name: String,
    file: File,
}

impl AttachableFile {
    /// Opens a file, which may belong to anybody.
    ///
    /// # Errors
    /// The path leads to no file, or to one that is too large or cannot be read.
    pub fn open(path: &Path) -> Result<Self, AttachError> {
        let real =
            fs::canonicalize(path).map_err(|why| AttachError::Unreadable(why.to_string()))?;
        let opened = anywhere(&real).and_then(|place| place.open());
        let file = opened.map_err(|why| AttachError::Unreadable(format!("it {why}")))?;
        let file = file.ok_or_else(|| AttachError::Unreadable("it is gone".into()))?;
        Self::of(&real, file)
    }

    /// Takes an open file, which has the name of this path.
    pub(crate) fn of(path: &Path, file: File) -> Result<Self, AttachError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_attachment_name(&name) || name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(AttachError::Name(name));
        }
        let known = file.metadata().map_err(|why| AttachError::Unreadable(why.to_string()))?;
        if known.len() > MAX_ATTACHMENT_BYTES {
            return Err(AttachError::TooLarge(name, known.len()));
        }
        Ok(Self { name, file })
    }

    /// Keeps a copy in the team folder.
    ///
    /// # Errors
    /// The file has become too large, or cannot be copied.
    pub fn keep(self, dir: &TeamDir, fsync: Fsync) -> Result<Attachment, AttachError> {
        let Self { name, file } = self;
        make_parts_folder(dir)?;
        let (part, mut copy) = new_part(dir)?;
        let copied =
            hash_of(&mut file.take(MAX_ATTACHMENT_BYTES + 1), |piece| copy.write_all(piece));
        let copied = copied.at(&part).map_err(|why| AttachError::Store(why.into()));
        let kept = copied.and_then(|(hash, bytes)| {
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
}

/// Creates the file of a copy that is not whole yet. Programs of several machines or containers may share the folder.
fn new_part(dir: &TeamDir) -> Result<(PathBuf, File), StoreError> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = dir.attachment_part(&format!("{}-{number}", process::id()));
        match create_new(&path, Access::Update) {
            Err(FileError::Io(_, why)) if why.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((path, created?)),
        }
    }
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

/// The file of an attachment that comes from another host. No other transfer has the same: a host that gives something else spoils
/// its own.
fn part_from(dir: &TeamDir, host: &HostName, attachment: &Attachment) -> PathBuf {
    let Attachment { bytes, hash, .. } = attachment;
    let name = ContentHash::of(attachment.name().as_bytes());
    dir.attachment_part(&format!("{host}.{}.{bytes}.{}", hash.as_str(), name.as_str()))
}

/// Returns the number of bytes of an attachment that have come from another host so far; `None` before the first part.
///
/// # Errors
/// The folder cannot be read.
pub fn bytes_that_came(
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
) -> Result<Option<u64>, StoreError> {
    let known = known_if_there(&part_from(dir, host, attachment))?;
    Ok(known.map(|known| known.len()))
}

/// Writes bytes of an attachment that have come from another host.
///
/// # Errors
/// The file cannot be written.
pub fn write_part(
    dir: &TeamDir,
    host: &HostName,
    attachment: &Attachment,
    (offset, bytes): (u64, &[u8]),
) -> Result<(), StoreError> {
    make_parts_folder(dir)?;
    let part = part_from(dir, host, attachment);
    let file = open_or_create(&part, Access::Update)?;
    Ok(file.write_all_at(bytes, offset).at(&part)?)
}

/// Gives an attachment of which all bytes have come its name. Returns whether it is what it should be; if not, what has come is
/// removed.
///
/// # Errors
/// The file cannot be read or renamed. What has come stays.
pub fn finish(dir: &TeamDir, host: &HostName, attachment: &Attachment) -> Result<bool, StoreError> {
    let part = part_from(dir, host, attachment);
    let (hash, bytes) = hash_of(&mut open(&part, Access::Read)?, |_| Ok(())).at(&part)?;
    let is_it = hash == attachment.hash && bytes == attachment.bytes;
    if is_it {
        put(dir, attachment, &part, Fsync::Always)?;
    } else {
        remove(&part)?;
    }
    Ok(is_it)
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

    fn keep(dir: &TeamDir, path: &Path, fsync: Fsync) -> Result<Attachment, AttachError> {
        AttachableFile::open(path)?.keep(dir, fsync)
    }

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
        let [from, liar] = ["ann", "liar"].map(|host| HostName::parse(host).unwrap());
        let came = |host| bytes_that_came(&other, host, &sent).unwrap();
        assert_eq!(read_part(&dir, &sent, (8, 100)).unwrap().unwrap(), b"89");
        assert_eq!(read_part(&other, &sent, (0, 100)).unwrap(), None);
        write_part(&other, &from, &sent, (0, b"01234")).unwrap();
        // Another host that knows the hash spoils nothing, nor does another name or size.
        write_part(&other, &liar, &sent, (0, b"0123456780")).unwrap();
        assert!(!finish(&other, &liar, &sent).unwrap());
        let short = Attachment { bytes: 1, ..sent.clone() };
        write_part(&other, &from, &short, (0, b"x")).unwrap();
        assert!(!finish(&other, &from, &short).unwrap());
        assert_eq!((came(&from), came(&liar)), (Some(5), None));
        write_part(&other, &from, &sent, (5, b"567890")).unwrap();
        assert!(!finish(&other, &from, &sent).unwrap(), "that is too much");
        assert_eq!(came(&from), None);
        write_part(&other, &from, &sent, (0, b"0123456789")).unwrap();
        assert!(!is_here(&other, &sent).unwrap(), "it is not verified yet");
        assert!(finish(&other, &from, &sent).unwrap());
        assert!(is_here(&other, &sent).unwrap());
        assert_eq!(fs::read(path_of(&other, &sent)).unwrap(), b"0123456789");
        assert_eq!(files(&other).unwrap(), [path_of(&other, &sent)]);
    }
}
