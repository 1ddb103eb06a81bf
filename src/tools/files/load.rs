//! Loads files for file tools, and puts their errors into words for the model.

use super::read_log::FileStamp;
use crate::os::safe_path::{SafePath, SafePathError};
use crate::tools::call::ToolError;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;

/// The maximum size of a file that file tools load, in bytes.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// A loaded file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) bytes: Vec<u8>,
    pub(super) stamp: Option<FileStamp>,
    /// The permission bits.
    pub(super) mode: u32,
}

/// Loads a file; `None` if it does not exist. Fails if it cannot be read or is too large.
pub(super) fn load(path: &str, spot: &SafePath) -> Result<Option<Loaded>, ToolError> {
    let failed = |why: io::Error| path_error(path, &why.into());
    let Some(file) = spot.open().map_err(|why| path_error(path, &why))? else { return Ok(None) };
    let mut bytes = Vec::new();
    let known = file.metadata().map_err(failed)?;
    let (size, stamp) = (known.len(), FileStamp::of(&known));
    let mode = known.permissions().mode() & 0o7777;
    // One byte more than allowed: the reported size may be wrong or may grow.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolError::Reply(format!(
            "{path} has {size} bytes, file tools take up to {MAX_FILE_BYTES}; look at parts of it with \
             bash (head, tail, sed -n, grep)"
        )));
    }
    Ok(Some(Loaded { bytes, stamp, mode }))
}

pub(super) fn path_error(path: &str, why: &SafePathError) -> ToolError {
    let advice = match why {
        SafePathError::Link => "give the real path",
        SafePathError::Outside => "file tools stay inside the workspace; give a path inside it",
        SafePathError::Folder => "give the path of a file; `ls` it with bash",
        SafePathError::Special(_) => "only regular files can be read and written",
        SafePathError::Nowhere => "give the path without `..`",
        SafePathError::Io(_) => "check with `ls -la` what is there",
    };
    let path: String = path.chars().take(256).collect();
    ToolError::Reply(format!("{path}: {why}; {advice}"))
}
