//! Dead letters: whole lines that could not be delivered, with the reason.
//!
//! A line beyond the length limit is stored as several letters with ascending offsets; their `raw` joined
//! is the line. Bytes that are not UTF-8 are stored in `raw_hex`. A claim that cannot be read is moved to a
//! file that the letter names.

use super::MailNotice;
use crate::store::file::atomic::{Fsync, json_line};
use crate::store::file::jsonl::{Log, each_line};
use crate::store::{StoreError, TeamDir};
use crate::wire::{AgentName, WallTime};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One line of `dead/NAME.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The batch id of the claim.
    #[serde(rename = "gen")]
    pub batch_id: String,
    /// The offset in the claim.
    pub offset: u64,
    /// The reason for the rejection.
    pub reason: String,
    /// The time of the rejection.
    pub at: WallTime,
    /// The line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// The line in hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_hex: Option<String>,
    /// The file that holds the quarantined claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl DeadLetter {
    /// Creates a letter for an offset of a claim, without the line.
    pub(crate) fn new(batch_id: &str, offset: u64, reason: String, at: WallTime) -> Self {
        let batch_id = batch_id.into();
        Self { batch_id, offset, reason, at, raw: None, raw_hex: None, file: None }
    }

    pub(crate) fn notice(&self) -> MailNotice {
        let Self { reason, batch_id, offset, .. } = self.clone();
        MailNotice::Dead { reason, batch_id, offset }
    }

    pub(crate) fn holding(mut self, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.raw = Some(text.into()),
            Err(_) => self.raw_hex = Some(hex(bytes)),
        }
        self
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The dead letters of one mailbox, for its owner. The file is created with the first letter.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    path: PathBuf,
    log: Option<Log>,
}

impl DeadLetters {
    pub(crate) fn of(dir: &TeamDir, name: &AgentName) -> Self {
        Self { path: dir.dead(name), log: None }
    }

    pub(crate) fn append(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        if letters.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for letter in letters {
            text.extend(json_line(letter, &self.path)?);
        }
        let log = match self.log.take() {
            Some(log) => log,
            None => Log::open(self.path.clone())?,
        };
        self.log.insert(log).append(&text)
    }

    /// Makes the appended letters durable.
    pub(crate) fn sync(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        self.log.as_mut().map_or(Ok(()), |log| log.sync(fsync))
    }
}

/// Returns all dead letters of `name`; torn and foreign lines are skipped.
pub fn read_all(dir: &TeamDir, name: &AgentName) -> Result<Vec<DeadLetter>, StoreError> {
    let mut letters = Vec::new();
    each_line(&dir.dead(name), |line| letters.extend(serde_json::from_slice::<DeadLetter>(line)))?;
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn a_dead_letter_holds_every_byte_of_its_line() {
        let (_folder, dir) = test_team();
        let name = AgentName::lead();
        let mut dead = DeadLetters::of(&dir, &name);
        dead.append(&[]).unwrap();
        assert!(!dir.dead(&name).exists());
        let lines: [&[u8]; 3] = [b"plain \"text\"", b"\xff\x00\n", "\u{1b}[31m\u{202e}".as_bytes()];
        let letter = |line| DeadLetter::new("g", 3, "why".into(), 1.5.into()).holding(line);
        let letters = lines.map(letter);
        dead.append(&letters).unwrap();
        dead.sync(Fsync::Always).unwrap();
        assert_eq!(read_all(&dir, &name).unwrap(), letters);
        assert_eq!(letters[1].raw_hex.as_deref(), Some("ff000a"));
    }
}
