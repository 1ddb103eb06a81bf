//! The way of one message through the files: each step with the file and the line that show it.

use super::{Letter, Stage};
use crate::store::sight::{Place, Sight};
use crate::store::tail::Tail;
use crate::store::{StoreError, TeamDir, roster};
use crate::wire::AgentName;
use crate::wire::transcript::{Entry, Line};
use serde::Serialize;
use std::path::Path;

/// Longest line that is shown whole.
const LINE_CHARS: usize = 4000;

/// Something on disk that shows a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Proof {
    /// Which step.
    pub(crate) stage: Stage,
    /// The file, below the team folder.
    pub(crate) file: String,
    /// The line in it, counted from 1.
    pub(crate) line: usize,
    /// What stands there, cut.
    pub(crate) text: String,
    /// In a transcript: the claim that the message came from, and its byte offset there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<(String, u64)>,
}

/// What the files still show of a message, in the order of its steps.
///
/// # Errors
/// A file refused.
pub(crate) fn of(dir: &TeamDir, id: &str) -> Result<Vec<Proof>, StoreError> {
    let roster = roster::read(dir)?;
    let members = roster.members.iter().filter_map(|it| AgentName::member(&it.name).ok());
    let names: Vec<AgentName> =
        [AgentName::lead(), AgentName::user()].into_iter().chain(members).collect();
    let proof = |stage, file: &Path, line, text: &str| Proof {
        stage,
        file: file.strip_prefix(dir.root()).unwrap_or(file).display().to_string(),
        line,
        text: text.chars().take(LINE_CHARS).collect(),
        claim: None,
    };
    let mut found = Vec::new();
    for seen in Sight::of(dir).look(&names)? {
        let stage = match seen.place {
            Place::Inbox => Stage::Appended,
            Place::Claim => Stage::Claimed,
        };
        let letter = Letter::read(seen.owner.as_str(), &seen.object, stage);
        if letter.is_some_and(|letter| letter.id == id) {
            let text = serde_json::to_string(&*seen.object).unwrap_or_default();
            found.push(proof(stage, &seen.file, seen.line, &text));
        }
    }
    for name in &names {
        // The call that sends it carries the rest of the id.
        let call = id.strip_prefix(&format!("{name}:")).filter(|call| !call.is_empty());
        let path = dir.transcript(name);
        let mut is_unanswered = false;
        for (number, raw) in (1..).zip(Tail::new(path.clone()).read_new()?) {
            let text = String::from_utf8_lossy(&raw);
            let is_sending =
                call.is_some_and(|call| call.split(':').next().is_some_and(|c| text.contains(c)));
            if !is_sending && !is_unanswered && !text.contains(id) {
                continue;
            }
            match Line::read(&raw).map(|line| line.entry) {
                Some(Entry::Mail { message, claim, offset }) => {
                    let letter = Letter::read(name.as_str(), &message, Stage::Acknowledged);
                    if letter.is_some_and(|letter| letter.id == id) {
                        let claim = Some((claim, offset));
                        let here = proof(Stage::Acknowledged, &path, number, &text);
                        found.push(Proof { claim, ..here });
                        is_unanswered = true;
                    }
                }
                Some(Entry::Assistant { .. }) if is_unanswered => {
                    found.push(proof(Stage::Answered, &path, number, &text));
                    is_unanswered = false;
                }
                Some(Entry::Assistant { .. }) if is_sending => {
                    found.push(proof(Stage::Sent, &path, number, &text));
                }
                _ => {}
            }
        }
    }
    found.sort_by_key(|proof| proof.stage);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    #[test]
    fn each_step_is_shown_by_a_line() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        let write = |path: &Path, text: &str| {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        let message = json!({"type":"message","from":"user","content":"hi","id":"user:1"});
        write(&dir.inbox(&AgentName::lead()), &format!("{{\"from\":\"x\"}}\n{message}\n"));
        let steps = of(&dir, "user:1").unwrap();
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].stage, steps[0].line), (Stage::Appended, 2));
        let entry = Entry::Mail {
            claim: "000000000001-0123abcd".into(),
            offset: 13,
            message: message.as_object().unwrap().clone(),
        };
        write(&dir.transcript(&AgentName::lead()), &Line { at: 1.0, entry }.text());
        let steps = of(&dir, "user:1").unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[1].claim, Some(("000000000001-0123abcd".into(), 13)));
        assert!(steps[1].file.starts_with("transcript/"));
        assert!(of(&dir, "user:2").unwrap().is_empty());
    }
}
