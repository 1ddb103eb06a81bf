//! Reads files that people write for agents: at most a given number of bytes, below a folder that no path leaves.

use crate::os::safe_path::SafeRoot;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;

/// The content of a file, as far as it was read.
pub(super) struct BoundedText {
    pub(super) bytes: Vec<u8>,
    /// Whether the file has more bytes.
    pub(super) is_cut: bool,
}

impl BoundedText {
    /// Returns the text without blank space around it; invalid UTF-8 is replaced. A character that was cut is left out.
    pub(super) fn lossy(&self) -> String {
        let last = self.bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_cut =
            self.is_cut && str::from_utf8(last).is_err_and(|why| why.error_len().is_none());
        let whole = self.bytes.len() - if is_cut { last.len() } else { 0 };
        String::from_utf8_lossy(self.bytes.get(..whole).unwrap_or_default()).trim().to_owned()
    }
}

/// Reads at most `longest` bytes of a file; `None` if there is none.
pub(super) fn read(
    root: &SafeRoot,
    path: &Path,
    longest: usize,
) -> Result<Option<BoundedText>, String> {
    let spot = root.find(path).map_err(|why| why.to_string())?;
    let Some(file) = spot.open().map_err(|why| why.to_string())? else { return Ok(None) };
    let (mut bytes, most) = (Vec::new(), u64::try_from(longest).unwrap_or(u64::MAX));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    let is_cut = bytes.len() > longest;
    bytes.truncate(longest);
    Ok(Some(BoundedText { bytes, is_cut }))
}

/// Reads a file of the user, whose links may lead anywhere.
pub(super) fn read_anywhere(path: &Path, longest: usize) -> Result<Option<BoundedText>, String> {
    let real = path.canonicalize().map_err(|why| why.to_string())?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    let root = SafeRoot::open(folder).map_err(|why| why.to_string())?;
    read(&root, Path::new(real.file_name().unwrap_or(OsStr::new("."))), longest)
}
