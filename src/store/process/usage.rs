//! What each agent has used, as of its last model call or turn: `run/.state/NAME.used`, written by that agent alone.
//!
//! The roster says the same, but at most once a second. Where a team shares a budget, that is many calls too
//! late: the next one is made only after the counts of all have been read from here. *Invariant:* a count
//! of another life than the roster's is not looked at, and none ever makes an account smaller.

use crate::os::file::{Access, At, open};
use crate::store::file::atomic::{Contents, replace};
use crate::store::{Fsync, StoreError, TeamDir, roster};
use crate::wire::AgentName;
use crate::wire::roster::{Roster, UsageCount};
use crate::wire::unknown_fields::WithUnknownFields;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Longest file.
const LONGEST: u64 = 4096;

/// What stands in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Count {
    /// Which life of the name has counted.
    incarnation: String,
    usage: UsageCount,
}

/// Says what an agent has used until now.
///
/// # Errors
/// The old count stays.
pub fn write(
    dir: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    usage: UsageCount,
) -> Result<(), StoreError> {
    let count = Count { incarnation: incarnation.into(), usage };
    let path = dir.used(name);
    let contents = Contents::json(&count).at(&path)?;
    // After a power cut nobody makes calls any more, and the roster is what is gone by.
    Ok(replace(&path, &contents, Fsync::Never)?)
}

/// The roster, with what everybody has used until now.
///
/// # Errors
/// The roster cannot be read.
pub fn roster_of_now(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
    let mut roster = roster::read(dir)?;
    if let Some(lead) = roster.lead.as_mut() {
        bring_up(dir, &AgentName::lead(), &lead.incarnation.clone(), &mut lead.usage);
    }
    for member in &mut roster.members {
        if let Ok(name) = AgentName::member(&member.name) {
            bring_up(dir, &name, &member.incarnation.clone(), &mut member.usage);
        }
    }
    Ok(roster)
}

/// What cannot be read counts as the roster has it.
fn bring_up(dir: &TeamDir, name: &AgentName, incarnation: &str, usage: &mut UsageCount) {
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
    fn the_newer_count_of_the_same_life_counts() {
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
        assert_eq!(used(), 120, "that was another life");
    }
}
