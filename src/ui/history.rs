//! The history of typed lines: one JSON string per line, so that a pasted paragraph is one entry.
//!
//! The caller names the file. If it cannot be read or written, the session goes on without history.
//! (rustyline's own file history would change the umask of the whole process.)

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The most entries that are offered again.
pub(super) const OFFERED: usize = 1000;
/// The bytes that are read from the end of the file: many times the usual size of the entries.
const READ_BYTES: u64 = 4 * 1024 * 1024;

/// The file; `None` after an error.
#[derive(Debug)]
pub(super) struct History {
    pub(super) file: Option<PathBuf>,
}

impl History {
    /// The last entries, oldest first.
    pub(super) fn load(&self) -> Vec<String> {
        let text = self.file.as_ref().and_then(|file| tail(file).ok()).unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n');
        let mut entries: Vec<String> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        entries.split_off(entries.len().saturating_sub(OFFERED))
    }

    pub(super) fn keep(&mut self, entry: &str) {
        if let Some(file) = &self.file
            && append(file, entry).is_err()
        {
            self.file = None;
        }
    }
}

fn tail(file: &PathBuf) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).open(file)?;
    let length = file.metadata()?.len();
    io::Seek::seek(&mut file, io::SeekFrom::Start(length.saturating_sub(READ_BYTES)))?;
    let mut text = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn append(file: &PathBuf, entry: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    let line = serde_json::Value::from(entry).to_string() + "\n";
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn entries_keep_their_line_ends_and_the_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        let mut history = History { file: Some(file.clone()) };
        assert!(history.load().is_empty());
        history.keep("one");
        history.keep("two\nlines");
        append(&file, "three").unwrap();
        assert_eq!(history.load(), ["one", "two\nlines", "three"]);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_or_unwritable_file_is_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        let mut damaged = fs::File::create(&file).unwrap();
        damaged.write_all(b"\"a\"\n\"torn\n\xff\n\"b\"\n").unwrap();
        assert_eq!(History { file: Some(file) }.load(), ["a", "b"]);
        let mut refused = History { file: Some(folder.path().join("no/such/folder")) };
        refused.keep("x");
        assert_eq!(refused.file, None);
    }
}
