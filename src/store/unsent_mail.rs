//! Mail that commands of a killed agent have left in their outboxes, in `run/.state/NAME.outbox-RUN`, until the next
//! process of that agent sends it.
//!
//! *Invariant:* a line keeps its id, so that mail which the killed agent had sent already is delivered once. Only the
//! holder of the agent's life lock removes a file.

use super::file::atomic::{Fsync, json_line, replace};
use super::file::read::{names_in, open_if_there};
use super::{StoreError, TeamDir};
use crate::os::file::{At, FileError};
use crate::os::wall::outbox::OutboxText;
use crate::wire::AgentName;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A line of an outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutboxLine {
    /// The id of the outbox and the number of the line in it.
    pub(crate) id: String,
    /// The text, which a command has written.
    pub(crate) line: String,
}

impl OutboxLine {
    /// Returns the lines of an outbox.
    pub(crate) fn all(text: &OutboxText) -> impl Iterator<Item = Self> {
        let line = |(number, line): (usize, &Vec<u8>)| Self {
            id: format!("{}:{}", text.id, number + 1),
            line: String::from_utf8_lossy(line).into_owned(),
        };
        text.lines.iter().enumerate().map(line)
    }
}

/// Keeps the lines that the commands of a killed process of `name` have left.
pub(crate) fn keep(
    dir: &TeamDir,
    name: &AgentName,
    run_id: &str,
    left: &[OutboxText],
    fsync: Fsync,
) -> Result<(), StoreError> {
    dir.is_still_there()?;
    let path = dir.unsent_mail(name, run_id);
    let mut text = Vec::new();
    for line in left.iter().flat_map(OutboxLine::all) {
        text.extend(json_line(&line, &path)?);
    }
    Ok(replace(&path, &text, fsync)?)
}

/// Returns the files with unsent mail of `name`, those of earlier processes first.
pub(crate) fn files(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let prefix = format!("{name}.outbox-");
    let mut names = names_in(&dir.state(""))?;
    names.retain(|file| file.starts_with(&prefix));
    names.sort();
    Ok(names.into_iter().map(|file| dir.state(&file)).collect())
}

/// Returns the lines of a file with unsent mail. Lines that are not understood are left out.
pub(crate) fn read(path: &Path) -> Result<Vec<OutboxLine>, FileError> {
    let Some((mut file, _)) = open_if_there(path)? else { return Ok(Vec::new()) };
    let mut text = Vec::new();
    file.read_to_end(&mut text).at(path)?;
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn the_lines_of_each_process_are_kept_with_their_ids() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(files(&dir, &alice).unwrap(), Vec::<PathBuf>::new());
        let text = |id: &str| OutboxText {
            id: id.into(),
            lines: vec![b"{}".to_vec(), b"\xff".to_vec()],
            problem: None,
        };
        for run in ["r1", "r2", "r1"] {
            keep(&dir, &alice, run, &[text("a"), text("b")], Fsync::Never).unwrap();
        }
        keep(&dir, &AgentName::lead(), "r1", &[text("c")], Fsync::Never).unwrap();
        let found = files(&dir, &alice).unwrap();
        assert_eq!(found, [dir.unsent_mail(&alice, "r1"), dir.unsent_mail(&alice, "r2")]);
        let lines = read(&found[0]).unwrap();
        let ids: Vec<&str> = lines.iter().map(|line| line.id.as_str()).collect();
        assert_eq!(ids, ["a:1", "a:2", "b:1", "b:2"]);
        assert_eq!((lines[0].line.as_str(), lines[1].line.as_str()), ("{}", "\u{fffd}"));
    }
}
