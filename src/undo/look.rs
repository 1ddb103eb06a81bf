//! Finds the changes of a command in a checkout of git, by a look at its files before and after it.
//!
//! A look takes the metadata of all tracked files and of the untracked ones that are not ignored. Before a command, the
//! content of each file must be known: git has that of tracked files without changes, and the others are copied, if they
//! are new since the last look. After the command, only files with other metadata are read. Links are not followed.

use super::unreadable::{UnreadableFiles, UnreadableNow};
use crate::os::git::{Git, GitError, split};
use crate::os::safe_path::{SafePathError, anywhere};
use crate::store::TeamDir;
use crate::store::undo::{UndoStore, has};
use crate::store::{Fsync, StoreError};
use crate::wire::WallTime;
use crate::wire::file_view::ContentHash;
use crate::wire::limits::{UNDO_COMPARED_FILES, UNDO_COPIED_BYTES, UNDO_FILE_BYTES, UNDO_FILES};
use crate::wire::undo::{ChangeSource, FileChange, FileState, LostReason};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NO_CHECKOUT: &str =
    "changes made by commands are not covered here: the folder is not a git checkout";

const OLD_CLONE: &str = "changes made by commands are not covered in this clone, which an earlier version made: \
    `team work diff` shows them";

/// The settings of filters, which would run as programs.
const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";

/// The files in which commands of an agent make changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Checkout {
    /// The checkout of the user that contains this folder.
    Around(PathBuf),
    /// The clone of an agent. Git reads nothing that the agent can change but the files: the configuration and the objects
    /// are those of the user's repository, and the index is the one with which the clone began.
    Clone { top: PathBuf, repository: PathBuf, index: PathBuf },
}

impl Checkout {
    /// Returns the folder whose changes are found. Fails with the reason if they are not.
    fn top(&self) -> Result<PathBuf, String> {
        match self {
            Self::Around(folder) => {
                let folder = real(folder);
                let top = folder.ancestors().find(|above| above.join(".git").exists());
                top.map(Path::to_owned).ok_or_else(|| NO_CHECKOUT.to_owned())
            }
            Self::Clone { top, index, .. } if index.exists() => Ok(real(top)),
            Self::Clone { .. } => Err(OLD_CLONE.to_owned()),
        }
    }

    /// Returns git for the files of the checkout, their folder, and the index. No filter runs: the user's configuration may
    /// name a program in the checkout, which an agent can change.
    fn open(&self, environment: &[(String, String)]) -> Result<(Git, PathBuf, PathBuf), LookError> {
        let git = |folder: &Path| Git::new(folder, environment).within(GIT_LIMIT);
        let absolute = |words: [&'static str; 2]| {
            ["rev-parse", "--path-format=absolute", words[0], "--git-path", words[1]]
        };
        let (git, top, index) = match self {
            Self::Around(folder) => {
                let text = git(folder).run(&absolute(["--show-toplevel", "index"]))?;
                let (top, index) = text.split_once('\n').ok_or(LookError::Place)?;
                (git(top.as_ref()), top.into(), index.into())
            }
            Self::Clone { top, repository, index } => {
                let own = git(repository).run(&["rev-parse", "--absolute-git-dir"])?;
                let top = real(top);
                let git = git(&top).with("GIT_DIR", own.as_ref()).with("GIT_WORK_TREE", &top);
                (git.with("GIT_INDEX_FILE", index), top, index.clone())
            }
        };
        let asked = ["config", "-z", "--name-only", "--get-regexp", FILTERS];
        let keys = split(&git.call(&asked, b"")?.stdout);
        let off = |key: String| {
            let value = if key.ends_with(".required") { "false" } else { "" };
            (key, value.to_owned())
        };
        Ok((git.with_settings(keys.into_iter().map(off)), top, index))
    }
}

/// The time after which a call of git is killed: an agent waits for it. A folder in which that happens is not looked at
/// again, since a command may have made it so.
const GIT_LIMIT: Duration = Duration::from_secs(10);

/// Lists the changed files. A `.gitmodules` of an agent could have git look into a submodule, where filters of its own
/// configuration would run.
const DIFF_FILES: [&str; 4] = ["diff-files", "--ignore-submodules=all", "--name-only", "-z"];

/// Lists the files that git neither tracks nor ignores.
const UNTRACKED: [&str; 4] = ["ls-files", "--others", "--exclude-standard", "-z"];

/// Lists the files that git tracks, too.
const ALL: [&str; 5] = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];

/// The metadata of an object, in which each change of a file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mode: u32,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The content of a file before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// Git has it, as the object with this id.
    Object(String),
    Kept(ContentHash),
    Lost(LostReason),
}

#[derive(Debug, Clone)]
struct SeenFile {
    stamp: Stamp,
    content: Content,
}

/// The knowledge of an agent about a checkout, from its last look.
#[derive(Debug, Default)]
pub(super) struct Looker {
    /// The checkout with its git, once they were looked at.
    opened: Option<(Checkout, Git)>,
    top: PathBuf,
    index_path: PathBuf,
    index_stamp: Option<Stamp>,
    /// The ids of the objects of tracked files, by path below the top.
    index: BTreeMap<String, String>,
    /// The files before the last command.
    files: BTreeMap<String, SeenFile>,
    /// The reason for which no further look is made.
    broken: Option<String>,
}

/// The look before a command.
#[derive(Debug)]
pub(super) struct CommandLook {
    git: Git,
    stored: u64,
}

/// The reason for which a look failed.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("git did not report its folder")]
    Place,
    #[error("the checkout has more than {UNDO_COMPARED_FILES} files")]
    TooLarge,
}

/// The changes of a command.
#[derive(Debug, Default)]
pub(super) struct FoundChanges {
    /// Without turn and time.
    pub(super) changes: Vec<FileChange>,
    pub(super) uncovered: Option<String>,
    /// The number of bytes that were stored for them.
    pub(super) stored: u64,
}

impl Stamp {
    fn of(known: &Metadata) -> Self {
        Self {
            size: known.len(),
            mode: known.mode(),
            inode: known.ino(),
            modified: (known.mtime(), known.mtime_nsec()),
            changed: (known.ctime(), known.ctime_nsec()),
        }
    }

    fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().filter(|known| !known.is_dir()).map(|it| Self::of(&it))
    }

    /// Returns the reason for which the content of the object is not kept, if there is one.
    fn refusal(self) -> Option<LostReason> {
        const KIND: u32 = 0o170_000;
        match self.mode & KIND {
            0o100_000 if self.size > UNDO_FILE_BYTES => Some(LostReason::TooLarge),
            0o100_000 => None,
            0o120_000 => Some(LostReason::Link),
            _ => Some(LostReason::NotRegular),
        }
    }

    fn permissions(self) -> u32 {
        self.mode & 0o7777
    }
}

impl Looker {
    /// Returns the folder in which changes of commands are found. Fails with the reason if they are not.
    pub(super) fn top(&self, checkout: &Checkout) -> Result<PathBuf, String> {
        self.broken.clone().map_or_else(|| checkout.top(), Err)
    }

    /// Looks at the files of a checkout.
    pub(super) fn before(
        &mut self,
        dir: &TeamDir,
        checkout: &Checkout,
        environment: &[(String, String)],
        unreadable: &UnreadableFiles,
    ) -> Result<CommandLook, String> {
        let looked = self.git(checkout, environment).and_then(|git| {
            let stored = self.fill(dir, &git, unreadable)?;
            Ok(CommandLook { git, stored })
        });
        looked.map_err(|why| self.failed(&why))
    }

    /// Returns git for a checkout, and forgets another one.
    fn git(
        &mut self,
        checkout: &Checkout,
        environment: &[(String, String)],
    ) -> Result<Git, LookError> {
        if let Some((_, git)) = self.opened.as_ref().filter(|(opened, _)| opened == checkout) {
            return Ok(git.clone());
        }
        let (git, top, index_path) = checkout.open(environment)?;
        let opened = Some((checkout.clone(), git.clone()));
        *self = Self { opened, top, index_path, ..Self::default() };
        Ok(git)
    }

    fn fill(
        &mut self,
        dir: &TeamDir,
        git: &Git,
        unreadable: &UnreadableFiles,
    ) -> Result<u64, LookError> {
        let untracked = git.start(&UNTRACKED, b"")?;
        let clean = self.read_index(git)?;
        let (team, unreadable) = (real(dir.root()), unreadable.now());
        let mut copies = Copies { dir, bytes: 0, stored: 0 };
        let mut files = BTreeMap::new();
        let mut see = |path: &String, id: Option<&String>| -> Result<(), LookError> {
            let real = self.top.join(path);
            // Nothing of the team is a file of the workspace.
            if real.starts_with(&team) {
                return Ok(());
            }
            let Some(stamp) = Stamp::at(&real) else { return Ok(()) };
            let known = self.files.get(path).filter(|known| known.stamp == stamp);
            let content = match (known, id) {
                // A version that did not fit is not copied again and again.
                (Some(SeenFile { content: Content::Kept(hash), .. }), _) if !has(dir, hash) => {
                    Content::Lost(LostReason::NotKept)
                }
                (Some(known), _) => known.content.clone(),
                (None, _) if unreadable.contains(&real) => Content::Lost(LostReason::Unreadable),
                (None, Some(id)) if clean.get(path) == Some(&stamp) => Content::Object(id.clone()),
                (None, _) => copies.keep(&real, stamp)?,
            };
            files.insert(path.clone(), SeenFile { stamp, content });
            Ok(())
        };
        if self.index.len() <= UNDO_COMPARED_FILES {
            self.index.iter().try_for_each(|(path, id)| see(path, Some(id)))?;
        }
        let untracked = paths(&untracked.output()?);
        if self.index.len() + untracked.len() > UNDO_COMPARED_FILES {
            *self = Self::default();
            return Err(LookError::TooLarge);
        }
        untracked.iter().try_for_each(|path| see(path, None))?;
        self.files = files;
        Ok(copies.stored)
    }

    /// Reads the index of git if it has changed. Then it returns the tracked files without changes.
    fn read_index(&mut self, git: &Git) -> Result<BTreeMap<String, Stamp>, GitError> {
        let stamp = Stamp::at(&self.index_path);
        if stamp.is_some() && stamp == self.index_stamp {
            return Ok(BTreeMap::new());
        }
        let listed = git.checked(&["ls-files", "--stage", "-v", "-z"], b"")?;
        let listed: Vec<_> = split(&listed).iter().filter_map(|line| staged(line)).collect();
        let compared = listed.iter().filter(|tracked| tracked.is_compared);
        // The metadata come first: a file that is changed after the comparison has others.
        let stamps =
            compared.filter_map(|it| Some((it.path.clone(), Stamp::at(&self.top.join(&it.path))?)));
        let mut clean: BTreeMap<String, Stamp> = stamps.collect();
        for path in split(&git.checked(&DIFF_FILES, b"")?) {
            clean.remove(&path);
        }
        self.index = listed.into_iter().map(|tracked| (tracked.path, tracked.id)).collect();
        self.index_stamp = stamp;
        Ok(clean)
    }

    /// Finds what has changed since a look.
    pub(super) fn after(
        &mut self,
        dir: &TeamDir,
        look: Result<CommandLook, String>,
        unreadable: &UnreadableFiles,
    ) -> FoundChanges {
        let look = match look {
            Ok(look) => look,
            Err(why) => return FoundChanges { uncovered: Some(why), ..FoundChanges::default() },
        };
        let stored = look.stored;
        match self.compare(dir, &look, unreadable) {
            Ok(found) => FoundChanges { stored: found.stored + stored, ..found },
            Err(why) => {
                let uncovered = Some(self.failed(&why));
                FoundChanges { uncovered, stored, ..FoundChanges::default() }
            }
        }
    }

    /// Returns the text about a look that failed. After a call of git that was killed, no further look is made.
    fn failed(&mut self, why: &LookError) -> String {
        let text = format!("changes made by a command are not covered: {why}");
        if matches!(why, LookError::Git(GitError::Io(_))) {
            *self = Self { broken: Some(text.clone()), ..Self::default() };
        }
        text
    }

    fn compare(
        &mut self,
        dir: &TeamDir,
        look: &CommandLook,
        unreadable: &UnreadableFiles,
    ) -> Result<FoundChanges, LookError> {
        // A new file may be tracked by now.
        let is_index_new = Stamp::at(&self.index_path) != self.index_stamp;
        let listed = if is_index_new { &ALL[..] } else { &UNTRACKED[..] };
        let listed = look.git.start(listed, b"")?;
        let mut changed = Vec::new();
        for (path, old) in &self.files {
            let now = Stamp::at(&self.top.join(path));
            if Some(old.stamp) != now {
                changed.push((path.clone(), Some(old), now));
            }
        }
        let team = real(dir.root());
        let mut new = paths(&listed.output()?);
        new.retain(|path| !self.files.contains_key(path));
        for path in new {
            let real = self.top.join(&path);
            let now = Stamp::at(&real).filter(|_| !real.starts_with(&team));
            changed.extend(now.map(|now| (path, None, Some(now))));
        }
        changed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut found = FoundChanges::default();
        let surplus = changed.len().saturating_sub(UNDO_FILES);
        if surplus > 0 {
            changed.truncate(UNDO_FILES);
            found.uncovered =
                Some(format!("a command changed {surplus} more files, which are not covered"));
        }
        let objects = objects(&look.git, &changed);
        let unreadable = unreadable.now();
        let mut known = Vec::new();
        for (path, old, now) in changed {
            let change = Compared { real: self.top.join(&path), old, now };
            let change = change.change(dir, &objects, &unreadable, &mut found.stored);
            found.changes.extend(change?);
            known.extend(old.map(|_| path));
        }
        for path in known {
            self.files.remove(&path);
        }
        Ok(found)
    }
}

/// A tracked file.
struct Tracked {
    path: String,
    /// The id of its object.
    id: String,
    /// Whether git compares the file with its object.
    is_compared: bool,
}

/// Parses a line of `git ls-files --stage -v`, unless it is a submodule or in conflict.
fn staged(line: &str) -> Option<Tracked> {
    let (about, path) = line.split_once('\t')?;
    let mut about = about.split(' ');
    let (tag, mode, id) = (about.next()?, about.next()?, about.next()?);
    let is_file = mode != "160000" && about.next()? == "0" && is_below(path);
    let (path, id, is_compared) = (path.to_owned(), id.to_owned(), tag == "H");
    is_file.then_some(Tracked { path, id, is_compared })
}

/// Parses a list of paths. A name that is not text is not covered, and the name of a nested repository ends with a slash.
fn paths(listed: &[u8]) -> Vec<String> {
    let mut paths = split(listed);
    paths.retain(|path| is_below(path));
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Whether a path names a file below the top. A command can write an index with any paths.
fn is_below(path: &str) -> bool {
    !path.contains('\u{fffd}') && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Reads the objects that were the contents of changed files from git, as many as fit the limit.
fn objects(
    git: &Git,
    changed: &[(String, Option<&SeenFile>, Option<Stamp>)],
) -> BTreeMap<String, Vec<u8>> {
    let mut asked = Vec::new();
    let mut left = UNDO_COPIED_BYTES;
    for old in changed.iter().filter_map(|(_, old, _)| *old) {
        if let Content::Object(id) = &old.content
            && old.stamp.size <= UNDO_FILE_BYTES.min(left)
        {
            left -= old.stamp.size;
            asked.extend_from_slice(id.as_bytes());
            asked.push(b'\n');
        }
    }
    if asked.is_empty() {
        return BTreeMap::new();
    }
    let read = git.checked(&["cat-file", "--batch"], &asked);
    read.map(|output| parse_batch(&output)).unwrap_or_default()
}

/// Parses the output of `git cat-file --batch`: lines `ID blob SIZE`, each followed by the content and a newline.
fn parse_batch(mut output: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    while let Some(end) = output.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = output.split_at(end);
        output = rest.get(1..).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let (Some(id), Some("blob"), Some(size)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Some(content) = size.parse().ok().and_then(|size: usize| output.get(..size)) else {
            break;
        };
        found.insert(id.to_owned(), content.to_vec());
        output = output.get(content.len() + 1..).unwrap_or_default();
    }
    found
}

/// The copies of one look.
struct Copies<'a> {
    dir: &'a TeamDir,
    /// The number of bytes that were read.
    bytes: u64,
    stored: u64,
}

impl Copies<'_> {
    /// Keeps the content of a file, unless the limit of the look is reached.
    fn keep(&mut self, real: &Path, stamp: Stamp) -> Result<Content, StoreError> {
        if let Some(why) = stamp.refusal() {
            return Ok(Content::Lost(why));
        }
        if self.bytes + stamp.size > UNDO_COPIED_BYTES {
            return Ok(Content::Lost(LostReason::NotKept));
        }
        self.bytes += stamp.size;
        // A file that changes now, or may not be read, is not covered.
        let Some(bytes) = read(real, stamp) else { return Ok(Content::Lost(LostReason::NotKept)) };
        let (hash, stored) = UndoStore::lock(self.dir)?.keep(&bytes, Fsync::Never)?;
        self.stored += stored;
        Ok(Content::Kept(hash))
    }
}

/// Reads a regular file that has this stamp before and after. No folder on the way to it is a link: a command could let
/// one lead to files that the agent may not read.
fn read(real: &Path, stamp: Stamp) -> Option<Vec<u8>> {
    let open = || -> Result<Option<Vec<u8>>, SafePathError> {
        let Some(file) = anywhere(real)?.open()? else { return Ok(None) };
        if Stamp::of(&file.metadata()?) != stamp {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        (&file).take(UNDO_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok((Stamp::of(&file.metadata()?) == stamp).then_some(bytes))
    };
    open().ok().flatten()
}

/// A file whose metadata differ between two looks.
struct Compared<'a> {
    real: PathBuf,
    old: Option<&'a SeenFile>,
    now: Option<Stamp>,
}

impl Compared<'_> {
    /// Returns the change, if the content or the permissions differ. Keeps the content before.
    fn change(
        &self,
        dir: &TeamDir,
        objects: &BTreeMap<String, Vec<u8>>,
        unreadable: &UnreadableNow<'_>,
        stored: &mut u64,
    ) -> Result<Option<FileChange>, StoreError> {
        let Some(path) = self.real.to_str() else { return Ok(None) };
        if unreadable.contains(&self.real) {
            return Ok(Some(unreadable_change(path)));
        }
        let mut lost = None;
        let after = match self.now {
            None => None,
            Some(stamp) => match (stamp.refusal(), read(&self.real, stamp)) {
                (None, Some(bytes)) => {
                    Some(FileState { hash: ContentHash::of(&bytes), mode: stamp.permissions() })
                }
                (why, _) => {
                    lost = Some(why.unwrap_or(LostReason::NotKept));
                    None
                }
            },
        };
        let before = match self.old {
            None => None,
            Some(SeenFile { stamp, content }) => {
                let version = match content {
                    Content::Kept(hash) if has(dir, hash) => Ok(Version::Kept(hash.clone())),
                    Content::Kept(_) => Err(LostReason::NotKept),
                    Content::Lost(why) => Err(*why),
                    // A filter of git may have changed the size.
                    Content::Object(id) => objects
                        .get(id)
                        .filter(|bytes| bytes.len() as u64 == stamp.size)
                        .map(Version::Read)
                        .ok_or(stamp.refusal().unwrap_or(LostReason::NotKept)),
                };
                let hash = version.as_ref().map(|version| match version {
                    Version::Kept(hash) => hash.clone(),
                    Version::Read(bytes) => ContentHash::of(bytes),
                });
                let state = hash.ok().map(|hash| FileState { hash, mode: stamp.permissions() });
                if state.is_some() && state == after && lost.is_none() {
                    return Ok(None);
                }
                match version {
                    Ok(Version::Read(bytes)) => {
                        *stored += UndoStore::lock(dir)?.keep(bytes, Fsync::Never)?.1;
                    }
                    Ok(Version::Kept(_)) => {}
                    Err(why) => lost = lost.or(Some(why)),
                }
                state
            }
        };
        let (path, by, at) = (path.to_owned(), ChangeSource::Command, WallTime::default());
        Ok(Some(FileChange { turn: 0, at, path, before, after, by, lost }))
    }
}

/// Returns the change of a file that may not be read.
fn unreadable_change(path: &str) -> FileChange {
    let (path, by, at) = (path.to_owned(), ChangeSource::Command, WallTime::default());
    let lost = Some(LostReason::Unreadable);
    FileChange { turn: 0, at, path, before: None, after: None, by, lost }
}

/// Returns the path of a folder without links.
fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

enum Version<'a> {
    Kept(ContentHash),
    Read(&'a Vec<u8>),
}
