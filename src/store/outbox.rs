//! Appends to the outbox of a walled command, from a program of that command.

use super::StoreError;
use super::file::lock::try_for;
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::os::wall::outbox::read;
use crate::wire::limits::{LOCK_TIMEOUT, OUTBOX_BYTES, OUTBOX_LINES};
use std::io::{self, Write};
use std::path::Path;

/// Appends a line, given without its newline, to an outbox. Fails if the outbox would become longer than its reader
/// reads.
pub(crate) fn append(path: &Path, line: &str) -> Result<(), StoreError> {
    let mut file = open_or_create(path, Access::Append)?;
    if !try_for(&file, LOCK_TIMEOUT).at(path)? {
        return Err(refused(path, "another process holds its lock"));
    }
    let (lines, problem) = read(path)?;
    let bytes = file.metadata().at(path)?.len() + line.len() as u64;
    if problem.is_some() || lines.len() >= OUTBOX_LINES || bytes >= OUTBOX_BYTES {
        return Err(refused(path, "it is full"));
    }
    Ok(file.write_all(format!("{line}\n").as_bytes()).at(path)?)
}

fn refused(path: &Path, why: &str) -> StoreError {
    FileError::Io(path.to_owned(), io::Error::other(why)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_until_the_outbox_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox");
        for number in 0..OUTBOX_LINES {
            append(&path, &number.to_string()).unwrap();
        }
        assert!(append(&path, "one more").unwrap_err().to_string().contains("it is full"));
        assert_eq!(read(&path).unwrap().0.len(), OUTBOX_LINES);
        std::fs::remove_file(&path).unwrap();
        let bytes = usize::try_from(OUTBOX_BYTES).unwrap();
        assert!(append(&path, &"x".repeat(bytes)).unwrap_err().to_string().contains("full"));
        append(&path, &"x".repeat(bytes - 2)).unwrap();
        assert_eq!(read(&path).unwrap().1, None);
    }
}
