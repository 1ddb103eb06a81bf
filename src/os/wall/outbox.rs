//! The outbox of a walled command: a file in the private folder of its agent, to which the command appends the mail that
//! its agent is to send after it.
//!
//! The command may put anything at the path of the file. A reader follows no link, never blocks, and reads a bounded part.

use crate::os::file::{Access, At, FileError, open_known};
use crate::wire::limits::{OUTBOX_BYTES, OUTBOX_LINES};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The environment variable of a command with the path of its outbox.
pub(crate) const OUTBOX_VARIABLE: &str = "TEAM_OUTBOX";

/// The beginning of the name of an outbox. Its id follows.
const PREFIX: &str = "outbox-";

/// The maximum number of outboxes that a killed agent leaves: eight in the background, and one besides.
const MOST_LEFT: usize = 16;

/// The outbox of one command. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Outbox {
    path: PathBuf,
    id: String,
}

/// The contents of an outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OutboxText {
    /// The id of the outbox, which never repeats.
    pub(crate) id: String,
    pub(crate) lines: Vec<Vec<u8>>,
    /// The reason for which lines are missing.
    pub(crate) problem: Option<String>,
}

impl Outbox {
    /// Returns a new outbox in this folder. There is no file yet.
    pub(super) fn new(folder: &Path) -> Self {
        let id = uuid::Uuid::now_v7().simple().to_string();
        Self { path: folder.join(format!("{PREFIX}{id}")), id }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the outbox. Call it after the command has ended.
    pub(crate) fn read(&self) -> OutboxText {
        let (lines, problem) = match read(&self.path) {
            Ok((lines, problem)) => (lines, problem.map(ToOwned::to_owned)),
            Err(why) => (Vec::new(), Some(format!("the outbox cannot be read: {why}"))),
        };
        OutboxText { id: self.id.clone(), lines, problem }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

/// Reads the outboxes in the private folder of a killed agent, oldest first.
pub(super) fn read_left(folder: &Path) -> Vec<OutboxText> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let id = |name: String| name.strip_prefix(PREFIX).map(ToOwned::to_owned);
    let is_id = |id: &String| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut ids: Vec<String> = names.filter_map(id).filter(is_id).collect();
    ids.sort();
    let read = |id: String| {
        let (lines, _) = read(&folder.join(format!("{PREFIX}{id}"))).ok()?;
        (!lines.is_empty()).then_some(OutboxText { id, lines, problem: None })
    };
    ids.into_iter().take(MOST_LEFT).filter_map(read).collect()
}

/// Returns the lines of an outbox, and why some are left out. A file that does not exist is empty.
pub(crate) fn read(path: &Path) -> Result<(Vec<Vec<u8>>, Option<&'static str>), FileError> {
    let (file, known) = match open_known(path, Access::Read) {
        Err(why) if why.is_missing() => return Ok((Vec::new(), None)),
        file => file?,
    };
    if known.nlink() > 1 {
        // A second name may be that of a file that the command cannot read.
        return Err(io::Error::other("it has a second name")).at(path);
    }
    let mut text = Vec::new();
    file.take(OUTBOX_BYTES + 1).read_to_end(&mut text).at(path)?;
    let mut problem = None;
    if text.len() as u64 > OUTBOX_BYTES {
        problem = Some("the outbox is longer than 1 MiB; the rest was not sent");
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').unwrap_or_default());
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut lines: Vec<Vec<u8>> = lines.take(OUTBOX_LINES + 1).map(<[u8]>::to_vec).collect();
    if lines.len() > OUTBOX_LINES {
        lines.truncate(OUTBOX_LINES);
        problem = Some("the outbox has more than 100 lines; the rest was not sent");
    }
    Ok((lines, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn put(path: &Path, text: &str) {
        File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_are_read_once_in_order_and_the_file_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::new(folder.path());
        assert_eq!(outbox.read().lines, Vec::<Vec<u8>>::new());
        put(outbox.path(), "one\n\ntwo");
        let text = outbox.read();
        assert_eq!((text.lines.concat(), text.problem.clone()), (b"onetwo".to_vec(), None));
        assert_eq!(read_left(folder.path()), [text]);
        drop(outbox);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_outbox_that_is_too_long_is_cut_at_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::new(folder.path());
        put(outbox.path(), &"x\n".repeat(OUTBOX_LINES + 1));
        let text = outbox.read();
        assert_eq!(text.lines.len(), OUTBOX_LINES);
        assert!(text.problem.unwrap().contains("100 lines"));
        let bytes = usize::try_from(OUTBOX_BYTES).unwrap();
        put(outbox.path(), &format!("short\n{}", "y".repeat(bytes)));
        let text = outbox.read();
        assert_eq!(text.lines, [b"short"]);
        assert!(text.problem.unwrap().contains("1 MiB"));
    }

    #[test]
    fn only_a_regular_file_with_one_name_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        put(&secret, "secret\n");
        for make in [
            |path: &Path, secret: &Path| symlink(secret, path).unwrap(),
            |path: &Path, secret: &Path| fs::hard_link(secret, path).unwrap(),
            |path: &Path, _: &Path| fs::create_dir(path).unwrap(),
            |path: &Path, _: &Path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap(),
        ] {
            let outbox = Outbox::new(folder.path());
            make(outbox.path(), &secret);
            let text = outbox.read();
            assert_eq!(text.lines, Vec::<Vec<u8>>::new(), "{text:?}");
            assert!(text.problem.unwrap().contains("cannot be read"));
            assert_eq!(read_left(folder.path()), []);
            if outbox.path().is_dir() {
                fs::remove_dir(outbox.path()).unwrap();
            }
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret\n");
    }
}
