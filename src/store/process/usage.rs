//! The usage of each agent as of its last model call, in `run/.state/NAME.used`; only that agent writes it.
//!
//! The roster has the same counts, at most once a second. For a shared budget that is many calls too late,
//! so the counts of all are read from here before the next call. *Invariant:* a count of another
//! incarnation is ignored, and no count decreases an account.

use crate::os::file::{Access, At, open};
use crate::store::file::atomic::{Contents, replace};
use crate::store::{Fsync, StoreError, TeamDir, roster};
use crate::wire::AgentName;
use crate::wire::roster::{Roster, UsageCount};
use crate::wire::unknown_fields::WithUnknownFields;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The longest file in bytes.
const LONGEST: u64 = 4096;

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Count {
    /// The incarnation that has counted.
    incarnation: String,
    usage: UsageCount,
}

/// Writes the usage of an agent. On an error the old count stays.
pub fn write(
    dir: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    usage: UsageCount,
) -> Result<(), StoreError> {
    let count = Count { incarnation: incarnation.into(), usage };
    let path = dir.used(name);
    let contents = Contents::json(&count).at(&path)?;
    // Not synced: after a power cut no agent makes calls, and the roster is used.
    Ok(replace(&path, &contents, Fsync::Never)?)
}

/// Reads the roster with the current usage of every agent. Fails if the roster cannot be read.
pub fn roster_of_now(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
    let mut roster = roster::read(dir)?;
    if let Some(lead) = roster.lead.as_mut() {
        update_usage(dir, &AgentName::lead(), &lead.incarnation.clone(), &mut lead.usage);
    }
    for member in &mut roster.members {
        if let Ok(name) = AgentName::member(&member.name) {
            update_usage(dir, &name, &member.incarnation.clone(), &mut member.usage);
        }
    }
    Ok(roster)
}

/// An unreadable count leaves the one of the roster.
fn update_usage(dir: &TeamDir, name: &AgentName, incarnation: &str, usage: &mut UsageCount) {
    let count = read(dir, name).ok().flatten().filter(|count| count.incarnation == incarnation);
    let is_newer =
        |count: &Count| count.usage.tokens() > usage.tokens() || count.usage.turns > usage.turns;
    if let Some(count) = count.filter(is_newer) {
        *usage = count.usage;
    }
}

fn read(dir: &TeamDir, name: &AgentName) -> Result<Option<Count>, StoreError> {
    let path = dir.used(name);
    let file = match open(&path, Access::Read) {
        Err(why) if why.is_missing() => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).at(&path)?;
    Ok(serde_json::from_slice(&text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roster::Lead;

    #[test]
    fn the_newer_count_of_the_same_incarnation_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let [lead, alice] = [AgentName::lead(), AgentName::member("alice").unwrap()];
        let tokens = |input_tokens| UsageCount { input_tokens, ..UsageCount::default() };
        roster::update(&dir, Fsync::Never, |roster| {
            let entry = Lead { incarnation: "l1".into(), usage: tokens(10), ..Lead::default() };
            roster.lead = Some(entry.into());
            let member = roster.enter("alice", 1.0);
            (member.incarnation, member.usage) = ("a1".into(), tokens(100));
        })
        .unwrap();
        let used = || roster_of_now(&dir).unwrap().used().tokens();
        assert_eq!(used(), 110);
        write(&dir, &alice, "a1", tokens(500)).unwrap();
        write(&dir, &lead, "l1", tokens(20)).unwrap();
        assert_eq!(used(), 520);
        write(&dir, &alice, "a1", tokens(99)).unwrap();
        assert_eq!(used(), 120, "an account never shrinks");
        let turn = UsageCount { turns: 1, ..tokens(100) };
        write(&dir, &alice, "a1", turn).unwrap();
        assert_eq!(roster_of_now(&dir).unwrap().used().turns, 1);
        write(&dir, &alice, "a0", tokens(5000)).unwrap();
        assert_eq!(used(), 120, "that was another incarnation");
    }
}
