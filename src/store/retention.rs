//! Removes earlier conversations that a person does not want to keep, and tells the sizes of what a team keeps.
//!
//! *Invariants:* nothing is removed without a limit. The transcripts stay by which repeated mail is recognized, and by
//! which a claim is finished ([`latest_archives`]), and so does the conversation that a resumed agent goes on with. One
//! without an index stays, since it may have mail. The conversations of subagents go before that of their caller, which
//! names them: after a kill in between the rest is removed by the next attempt. The newest of an agent stays, since its
//! number must not be used again.

use super::conversations::last_place;
use super::file::atomic::{Fsync, remove, sync_folder};
use super::file::read::{changed_at, known_if_there, names_in};
use super::mailbox::claim::list;
use super::transcript::{conversations, latest_archives};
use super::{StoreError, TeamDir, failpoint, subagents};
use crate::wire::{AgentName, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limits of earlier conversations; `None`: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RetentionLimits {
    /// The time since the last use.
    pub(crate) age: Option<Duration>,
    /// The size of all earlier conversations together, with those of their subagents.
    pub(crate) bytes: Option<u64>,
}

/// An earlier conversation that was removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RemovedConversation {
    /// The name of the file.
    pub(crate) file: String,
    /// The size, with those of its subagents.
    pub(crate) bytes: u64,
}

/// An archived transcript.
struct Archived {
    used: WallTime,
    path: PathBuf,
    /// The transcripts of its subagents.
    subagents: Vec<PathBuf>,
    /// The size, with those of its subagents.
    bytes: u64,
}

/// The number of conversations that have started each subagent: one that was copied by hand names those of its original.
type Callers = BTreeMap<PathBuf, usize>;

/// Removes the earlier conversations that exceed the limits, those first that were used longest ago, until `is_over`. On
/// an error some may be removed.
pub(crate) fn remove_old_conversations(
    dir: &TeamDir,
    limits: RetentionLimits,
    now: WallTime,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<RemovedConversation>, StoreError> {
    let mut removed = Vec::new();
    if limits == RetentionLimits::default() {
        return Ok(removed);
    }
    let (mut archived, mut needed, mut callers) = (Vec::new(), BTreeSet::new(), Callers::new());
    for name in dir.agents()? {
        archived.extend(archived_of(dir, &name)?);
        needed.extend(needed_of(dir, &name)?);
        let newest = subagents::files(dir, &name)?.pop();
        let kept = subagents::of_conversation(dir, &dir.transcript(&name))?.into_iter();
        for kept in kept.chain(newest) {
            *callers.entry(kept).or_default() += 1;
        }
    }
    for subagent in archived.iter().flat_map(|it: &Archived| &it.subagents) {
        *callers.entry(subagent.clone()).or_default() += 1;
    }
    archived.sort_by(|a, b| {
        a.used.as_secs().total_cmp(&b.used.as_secs()).then_with(|| a.path.cmp(&b.path))
    });
    let mut size: u64 = archived.iter().map(|it| it.bytes).sum();
    for Archived { used, path, subagents, bytes } in archived {
        let is_too_old = limits.age.is_some_and(|most| now.since(used) > most);
        let is_too_much = limits.bytes.is_some_and(|most| size > most);
        if is_over() || (!is_too_old && !is_too_much) {
            break;
        }
        if needed.contains(&path) {
            continue;
        }
        remove_subagents(dir, subagents, &mut callers)?;
        remove(&path)?;
        failpoint::hit("upkeep.removed");
        size = size.saturating_sub(bytes);
        removed.push(RemovedConversation { file: file_name(&path), bytes });
    }
    if !removed.is_empty() {
        sync_folder(&dir.archive(), Fsync::Always)?;
    }
    Ok(removed)
}

/// Removes the subagents of a conversation that no other one has started.
fn remove_subagents(
    dir: &TeamDir,
    subagents: Vec<PathBuf>,
    callers: &mut Callers,
) -> Result<(), StoreError> {
    let mut is_changed = false;
    for subagent in subagents {
        let number = callers.entry(subagent.clone()).or_default();
        *number = number.saturating_sub(1);
        if *number == 0 {
            remove(&subagent)?;
            is_changed = true;
        }
    }
    // Without the conversation that names them, nothing would remove them after a power cut.
    if is_changed {
        sync_folder(&dir.subagents(), Fsync::Always)?;
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn archived_of(dir: &TeamDir, name: &AgentName) -> Result<Vec<Archived>, StoreError> {
    let mut found = Vec::new();
    for path in conversations(dir, name)? {
        if path == dir.transcript(name) {
            continue;
        }
        if let Some(known) = known_if_there(&path)? {
            let used = changed_at(&known);
            let subagents = subagents::of_conversation(dir, &path)?;
            let bytes = known.len() + subagents.iter().map(|path| size_of(path)).sum::<u64>();
            found.push(Archived { used, path, subagents, bytes });
        }
    }
    Ok(found)
}

/// Returns the size of a file; 0 if it cannot be read.
fn size_of(path: &Path) -> u64 {
    known_if_there(path).ok().flatten().map_or(0, |known| known.len())
}

/// Returns the transcripts of an agent that must stay.
fn needed_of(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
    let claims = list(dir, name)?;
    let oldest = claims.iter().map(|claim| claim.batch_id.as_str()).min();
    let mut needed = latest_archives(dir, name, oldest)?;
    needed.extend(last_place(dir, name)?.map(|last| last.path));
    Ok(needed)
}

/// The sizes of what a team keeps, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StoredSizes {
    /// The number of earlier conversations.
    pub(crate) earlier: usize,
    pub(crate) earlier_bytes: u64,
    /// The current conversations.
    pub(crate) current_bytes: u64,
    /// The conversations of subagents, of earlier and of current ones.
    pub(crate) subagent_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) undo_bytes: u64,
}

/// Adds up the sizes of what a team keeps. Fails if a folder cannot be read.
pub(crate) fn sizes(dir: &TeamDir) -> Result<StoredSizes, StoreError> {
    let mut sizes = StoredSizes::default();
    let archive = files_in(&dir.archive())?;
    sizes.earlier = archive.len();
    sizes.earlier_bytes = archive.into_iter().sum();
    sizes.current_bytes = files_in(&dir.conversations())?.into_iter().sum();
    sizes.subagent_bytes = files_in(&dir.subagents())?.into_iter().sum();
    for folder in dir.log_folders() {
        sizes.log_bytes += files_in(&folder)?.into_iter().sum::<u64>();
    }
    for folder in [dir.undo_journals(), dir.undo_objects()] {
        sizes.undo_bytes += files_in(&folder)?.into_iter().sum::<u64>();
    }
    Ok(sizes)
}

/// Returns the sizes of the files in a folder.
fn files_in(folder: &Path) -> Result<Vec<u64>, StoreError> {
    let mut sizes = Vec::new();
    for name in names_in(folder)? {
        let known = known_if_there(&folder.join(name))?;
        sizes.extend(known.filter(std::fs::Metadata::is_file).map(|known| known.len()));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conversations::index;
    use crate::store::test_team;
    use serde_json::json;
    use std::fs;
    use std::io::Write;
    use std::time::SystemTime;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The time of these tests, since 1970.
    const NOW: Duration = Duration::from_secs(1_800_000_000);

    /// Writes an archived conversation of the lead, last used so many days ago. Returns its path and size.
    fn archived(dir: &TeamDir, number: usize, days: u32, lines: &[serde_json::Value]) -> PathBuf {
        let path = dir.archive().join(format!("lead-{number:06}.jsonl"));
        let mut file = fs::File::create(&path).unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        file.set_modified(SystemTime::UNIX_EPOCH + NOW - DAY * days).unwrap();
        path
    }

    fn user(content: &str) -> serde_json::Value {
        json!({"kind": "user", "at": 1, "content": content})
    }

    fn mail(batch_id: &str) -> serde_json::Value {
        json!({"kind": "mail", "at": 1, "gen": batch_id, "offset": 0,
            "message": {"type": "message", "content": "hi", "id": "x"}})
    }

    fn remove_with(dir: &TeamDir, age: Option<u32>, bytes: Option<u64>) -> Vec<String> {
        fs::File::create(dir.inbox(&AgentName::lead())).unwrap();
        let limits = RetentionLimits { age: age.map(|days| DAY * days), bytes };
        let removed =
            remove_old_conversations(dir, limits, WallTime::default() + NOW, &|| false).unwrap();
        removed.into_iter().map(|it| it.file).collect()
    }

    /// Makes the indexes, which tell the transcripts without mail.
    fn index(dir: &TeamDir) {
        index::refresh(dir, &|_| false, &|| false).unwrap();
    }

    #[test]
    fn nothing_is_removed_without_a_limit_and_the_oldest_first_with_one() {
        let (_folder, dir) = test_team();
        for (number, days) in [(1, 9), (2, 30), (3, 1), (4, 20)] {
            archived(&dir, number, days, &[user(&"x".repeat(100))]);
        }
        assert_eq!(remove_with(&dir, Some(0), None), Vec::<String>::new(), "they may have mail");
        index(&dir);
        assert_eq!(remove_with(&dir, None, None), Vec::<String>::new());
        assert_eq!(remove_with(&dir, Some(25), None), ["lead-000002.jsonl"]);
        let size = fs::metadata(dir.archive().join("lead-000001.jsonl")).unwrap().len();
        // The last one stays, although it is not the one that was used last.
        assert_eq!(remove_with(&dir, None, Some(2 * size)), ["lead-000001.jsonl"]);
        assert_eq!(remove_with(&dir, Some(0), Some(0)), ["lead-000003.jsonl"]);
        assert_eq!(remove_with(&dir, Some(0), Some(0)), Vec::<String>::new());
    }

    #[test]
    fn the_mail_by_which_a_repeated_send_is_known_stays() {
        let (_folder, dir) = test_team();
        let lead = AgentName::lead();
        archived(&dir, 1, 40, &[mail("000000000001-00000000")]);
        archived(&dir, 2, 30, &[mail("000000000005-00000000")]);
        archived(&dir, 3, 20, &[mail("000000000009-00000000")]);
        archived(&dir, 4, 10, &[user("no mail")]);
        fs::File::create(dir.transcript(&lead)).unwrap().write_all(b"{}\n").unwrap();
        let claim = dir.claims().join("lead.000000000004-00000000");
        fs::File::create(&claim).unwrap();
        index(&dir);
        assert_eq!(remove_with(&dir, Some(1), None), ["lead-000001.jsonl"], "mail of the claim");
        fs::remove_file(claim).unwrap();
        assert_eq!(remove_with(&dir, Some(1), None), ["lead-000002.jsonl"]);
        let left = latest_archives(&dir, &lead, None).unwrap();
        let newest = dir.archive().join("lead-000003.jsonl");
        assert_eq!(left, [newest], "the newest one with mail");
    }

    /// Writes the transcript of a subagent of the lead, which this call has started. Returns the line of its start.
    fn subagent(dir: &TeamDir, number: u64, call: &str) -> serde_json::Value {
        let start = json!({"kind": "subagent", "at": 1, "id": format!("lead:{number}"), "caller": "lead",
            "tool_use_id": call, "task": "look", "model": "m"});
        fs::create_dir_all(dir.subagents()).unwrap();
        let mut file = fs::File::create(dir.subagent(&AgentName::lead(), number)).unwrap();
        writeln!(file, "{start}\n{}", user(&"x".repeat(1000))).unwrap();
        start
    }

    #[test]
    fn the_subagents_of_a_removed_conversation_are_removed_with_it() {
        let (_folder, dir) = test_team();
        let starts = [1, 2, 3, 4, 5, 6].map(|it| subagent(&dir, it, &format!("call-{it}")));
        let [first, second, third, fourth, fifth, last] = starts;
        // The call of the third one was cut off, and another one has got its number.
        subagent(&dir, 3, "later");
        archived(&dir, 1, 40, &[user("a"), first, third]);
        // A conversation that was copied by hand, without a subagent that was removed by hand.
        archived(&dir, 2, 30, &[user("b"), second.clone(), fourth]);
        fs::remove_file(dir.subagent(&AgentName::lead(), 4)).unwrap();
        archived(&dir, 3, 10, &[user("b"), second, last]);
        fs::File::create(dir.transcript(&AgentName::lead()))
            .unwrap()
            .write_all(format!("{}\n{fifth}\n", user("now")).as_bytes())
            .unwrap();
        let numbers = || -> Vec<u64> {
            (1..7).filter(|it| dir.subagent(&AgentName::lead(), *it).exists()).collect()
        };
        let before = sizes(&dir).unwrap();
        for is_indexed in [false, true] {
            // Without an index, the conversations are read.
            if is_indexed {
                index(&dir);
            }
            let found = archived_of(&dir, &AgentName::lead()).unwrap();
            let found: Vec<_> = found.iter().map(|it| it.subagents.len()).collect();
            assert_eq!(found, [1, 1, 2], "{is_indexed}");
        }
        assert_eq!(remove_with(&dir, Some(35), None), ["lead-000001.jsonl"]);
        assert_eq!(numbers(), [2, 3, 5, 6]);
        assert_eq!(remove_with(&dir, Some(20), None), ["lead-000002.jsonl"]);
        assert_eq!(numbers(), [2, 3, 5, 6], "the copy has the second one, too");
        let one = before.subagent_bytes / 5;
        assert_eq!(sizes(&dir).unwrap().subagent_bytes / one, 4);
        // The size of a conversation is that with its subagents.
        let own = fs::metadata(dir.archive().join("lead-000003.jsonl")).unwrap().len();
        assert_eq!(remove_with(&dir, None, Some(own + 2 * one + 100)), Vec::<String>::new());
        assert_eq!(remove_with(&dir, None, Some(own + one)), ["lead-000003.jsonl"]);
        assert_eq!(numbers(), [3, 5, 6], "the number of the last one is not used again");
        assert_eq!(subagents::last_number(&dir, &AgentName::lead()).unwrap(), 6);
    }

    #[test]
    fn the_sizes_are_those_of_the_files() {
        let (_folder, dir) = test_team();
        archived(&dir, 1, 0, &[user("x")]);
        fs::File::create(dir.log(&AgentName::lead())).unwrap().write_all(b"12345").unwrap();
        fs::File::create(dir.printed(&AgentName::lead())).unwrap().write_all(b"123").unwrap();
        let sizes = sizes(&dir).unwrap();
        assert_eq!((sizes.earlier, sizes.log_bytes, sizes.current_bytes), (1, 8, 0));
        assert!(sizes.earlier_bytes > 0);
    }
}
