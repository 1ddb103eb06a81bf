//! The content of images that a model was shown, in `transcript/images/NAME-HASH`. The transcript of NAME has the hash.
//!
//! *Invariant:* an agent has at most [`MOST_BYTES`] of them; the one that was shown longest ago is removed first.

use super::file::atomic::{remove, replace};
use super::file::read::{known_if_there, names_in, open_if_there};
use super::teamdir::make_folder;
use super::{Fsync, StoreError, TeamDir};
use crate::os::file::At;
use crate::wire::AgentName;
use crate::wire::file_view::ContentHash;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The maximum size of all images of one agent, in bytes.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Held while an image is written: calls of one agent run at the same time.
static WRITES: Mutex<()> = Mutex::new(());

/// Keeps an image for an agent, and returns its hash.
pub(crate) fn keep(
    dir: &TeamDir,
    name: &AgentName,
    bytes: &[u8],
) -> Result<ContentHash, StoreError> {
    let _writes = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    make_folder(&dir.images())?;
    let hash = ContentHash::of(bytes);
    let path = dir.image(name, hash.as_str());
    replace(&path, bytes, Fsync::Never)?;
    let mut size = bytes.len() as u64;
    let mut earlier = all(dir, name)?;
    earlier.retain(|(_, _, other)| *other != path);
    earlier.sort();
    for (_, bytes, path) in earlier.into_iter().rev() {
        size = size.saturating_add(bytes);
        if size > MOST_BYTES {
            remove(&path)?;
        }
    }
    Ok(hash)
}

/// Returns the content of an image; `None` if it is not kept any more.
pub(crate) fn load(
    dir: &TeamDir,
    name: &AgentName,
    hash: &ContentHash,
) -> Result<Option<Vec<u8>>, StoreError> {
    // The hash comes from a file: it names an image, and nothing else.
    if !hash.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let path = dir.image(name, hash.as_str());
    let Some((mut file, known)) = open_if_there(&path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    if known.is_file() && known.len() <= MOST_BYTES {
        file.read_to_end(&mut bytes).at(&path)?;
    }
    Ok(Some(bytes).filter(|bytes| ContentHash::of(bytes) == *hash))
}

/// Returns the time, the size and the path of every image of an agent.
fn all(dir: &TeamDir, name: &AgentName) -> Result<Vec<(SystemTime, u64, PathBuf)>, StoreError> {
    let mut images = Vec::new();
    for file in names_in(&dir.images())? {
        let is_own = file.rsplit_once('-').is_some_and(|(owner, _)| owner == name.as_str());
        let path = dir.images().join(&file);
        if let Some(known) = known_if_there(&path)?.filter(|_| is_own) {
            let time = known.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            images.push((time, known.len(), path));
        }
    }
    Ok(images)
}

/// Returns the path of every image of an agent.
pub(super) fn paths(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
    Ok(all(dir, name)?.into_iter().map(|(_, _, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn an_image_is_found_by_its_hash_and_the_oldest_is_removed_first() {
        let (_folder, dir) = test_team();
        let [alice, other] = ["a", "a-b"].map(|name| AgentName::member(name).unwrap());
        let hash = keep(&dir, &alice, b"one").unwrap();
        assert_eq!(keep(&dir, &alice, b"one").unwrap(), hash);
        let others = keep(&dir, &other, b"one").unwrap();
        assert_eq!(load(&dir, &alice, &hash).unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(load(&dir, &alice, &ContentHash::of(b"two")).unwrap(), None);
        let large = vec![0; usize::try_from(MOST_BYTES).unwrap()];
        let second = keep(&dir, &alice, &large).unwrap();
        assert_eq!(load(&dir, &alice, &hash).unwrap(), None);
        assert_eq!(load(&dir, &alice, &second).unwrap().map(|it| it.len()), Some(large.len()));
        assert!(load(&dir, &other, &others).unwrap().is_some(), "another agent keeps its own");
    }
}
