//! The usage of each agent as of its last model call, in `run/.state/NAME.used`; only that agent writes it.
//!
//! The roster has the same counts, but they are written at most once a second. For a shared budget that is many
//! calls too late, so the counts of all agents are read from these files before the next call. *Invariant:* a
//! count of another incarnation is ignored, and no count lowers that of the roster.

use crate::store::file::atomic::{json, replace};
use crate::store::file::read::read_state;
use crate::store::{Fsync, StoreError, TeamDir, roster};
use crate::wire::AgentName;
use crate::wire::roster::{Roster, UsageCount};
use crate::wire::unknown_fields::WithUnknownFields;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Count {
    incarnation: String,
    usage: UsageCount,
}

/// Writes the usage of an agent. On an error the old count stays.
pub(crate) fn write(
    dir: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    usage: UsageCount,
) -> Result<(), StoreError> {
    let count = Count { incarnation: incarnation.into(), usage };
    let path = dir.used(name);
    // Not synced: after a power cut no agent makes calls, and the counts of the roster are used.
    Ok(replace(&path, &json(&count, &path)?, Fsync::Never)?)
}

/// Reads the roster with the current usage of every agent. Fails if the roster cannot be read.
pub(crate) fn roster_of_now(dir: &TeamDir) -> Result<WithUnknownFields<Roster>, StoreError> {
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

/// Replaces the count of the roster by a higher one in the file. An unreadable file changes nothing.
fn update_usage(dir: &TeamDir, name: &AgentName, incarnation: &str, usage: &mut UsageCount) {
    if let Ok(Some(count)) = read_state::<Count>(&dir.used(name))
        && count.incarnation == incarnation
        && (count.usage.tokens() > usage.tokens() || count.usage.turns > usage.turns)
    {
        *usage = count.usage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use crate::wire::roster::Lead;

    #[test]
    fn the_newer_count_of_the_same_incarnation_is_used() {
        let (_folder, dir) = test_team();
        let [lead, alice] = [AgentName::lead(), AgentName::member("alice").unwrap()];
        let tokens = |input_tokens| UsageCount { input_tokens, ..UsageCount::default() };
        roster::update(&dir, Fsync::Never, |roster| {
            let entry = Lead { incarnation: "l1".into(), usage: tokens(10), ..Lead::default() };
            roster.lead = Some(entry.into());
            let member = roster.enter("alice", 1.0);
            (member.incarnation, member.usage) = ("a1".into(), tokens(100));
        })
        .unwrap();
        let used = || roster_of_now(&dir).unwrap().used();
        assert_eq!(used().tokens(), 110);
        let turn = UsageCount { turns: 1, ..tokens(100) };
        for (name, incarnation, usage, total, turns, case) in [
            (&alice, "a1", tokens(500), 510, 0, "a newer count of a member"),
            (&lead, "l1", tokens(20), 520, 0, "a newer count of the lead"),
            (&alice, "a1", tokens(99), 120, 0, "an account never shrinks"),
            (&alice, "a1", turn, 120, 1, "a turn without tokens"),
            (&alice, "a0", tokens(5000), 120, 0, "that was another incarnation"),
        ] {
            write(&dir, name, incarnation, usage).unwrap();
            assert_eq!((used().tokens(), used().turns), (total, turns), "{case}");
        }
    }
}
