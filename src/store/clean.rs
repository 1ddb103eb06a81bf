//! Finds and removes the files that a dead team left behind, while no member can start.
//!
//! *Invariant:* every life lock is held from the first search until the last file is removed. A lock file is
//! removed only by the holder of its lock; a process that waited for the lock then opens a new file
//! (`LifeLock::take`). Side locks of the team folder are never removed. The caller chooses the files to remove.

use super::conversations::index;
use super::file::jsonl::{Piece, each_piece};
use super::file::lock::{exclusive, is_named, release, try_for};
use super::file::read::known_if_there;
use super::mailbox::claim::{ClaimFile, list};
use super::mailbox::dead;
use super::process::liveness::{LifeRecord, read_record};
use super::transcript::{conversations, each_mail};
use super::{
    StoreError, TeamDir, attachments, background, file_writes, images, kept_versions, leases, mcp,
    output_spill, roster, subagents, timers, undo, unsent_mail,
};
use crate::os::file::{Access, At, open, open_or_create};
use crate::wire::AgentName;
use crate::wire::limits::{LOCK_TIMEOUT, MAX_LINE_BYTES};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

/// The maximum wait for a life lock, which a probe may hold for a moment.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason for which the life locks of a team cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CleanError {
    /// This member is alive. The text names its pid or its host, or is empty if its record cannot be read.
    #[error("{0} lives{1}")]
    Alive(AgentName, String),
    /// A file of the store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftoverKind {
    Lock,
    /// The heartbeat, the fifo, the usage count or the mailbox key of a dead process, a lease, timers that
    /// are over, or the lock of a file of the workspace.
    State,
    /// A batch of mail that its owner has acted on.
    TakenClaim,
    /// Unread mail, in an inbox or a claim, or unsent mail.
    Mail,
    DeadLetters,
    /// A conversation, current or archived, or that of a subagent.
    Transcript,
    /// An image that a model was shown, to which a conversation refers.
    Image,
    /// A spilled tool result, to which a conversation refers.
    OutputSpill,
    /// A copy of a file that came with a message.
    Attachment,
    /// Timers of a member that have not sent their reminders.
    Timers,
    /// A version of a file that stands nowhere else.
    KeptVersion,
    /// A version of a file before an agent changed it, or a journal of such changes.
    Undo,
}

impl LeftoverKind {
    /// Whether the file may hold data that a person still needs.
    pub(crate) fn is_precious(self) -> bool {
        match self {
            Self::Lock | Self::State | Self::TakenClaim => false,
            Self::Mail
            | Self::DeadLetters
            | Self::Transcript
            | Self::Image
            | Self::OutputSpill
            | Self::Attachment
            | Self::Timers
            | Self::KeptVersion
            | Self::Undo => true,
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::State => "state",
            Self::TakenClaim => "claim taken in",
            Self::Mail => "unread mail",
            Self::DeadLetters => "dead letters",
            Self::Transcript => "transcript",
            Self::Image => "image",
            Self::OutputSpill => "kept result",
            Self::Attachment => "attachment",
            Self::Timers => "timers",
            Self::KeptVersion => "kept version",
            Self::Undo => "version for undo",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) kind: LeftoverKind,
    pub(crate) name: AgentName,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// A team folder whose life locks are all held. No member is alive or can start until this value is dropped.
#[derive(Debug)]
pub(crate) struct TeamAtRest {
    dir: TeamDir,
    held: Vec<Held>,
}

/// A life lock that is held without writing a record to it.
#[derive(Debug)]
struct Held {
    name: AgentName,
    path: PathBuf,
    file: File,
}

impl Drop for TeamAtRest {
    fn drop(&mut self) {
        for held in &self.held {
            // An empty lock file has no record. `TeamAtRest::take` creates such files.
            if held.file.metadata().is_ok_and(|known| known.len() == 0) {
                drop(fs::remove_file(&held.path));
            }
            release(&held.file);
        }
    }
}

impl TeamAtRest {
    /// Takes the life locks of the lead and of every known name. Fails if a member is alive.
    pub(crate) fn take(dir: &TeamDir) -> Result<Self, CleanError> {
        let mut names = BTreeSet::from_iter(dir.agents()?);
        names.insert(AgentName::lead());
        let roster = roster::read(dir)?;
        names.extend(roster.members.iter().filter_map(|it| AgentName::member(&it.name).ok()));
        let mut quiet = Self { dir: dir.clone(), held: Vec::new() };
        for name in names {
            let path = dir.life(&name);
            let file = loop {
                let file = open_or_create(&path, Access::Update).map_err(StoreError::from)?;
                if !try_for(&file, PROBE_TIMEOUT).at(&path).map_err(StoreError::from)? {
                    let pid = read_record(&file).map(|record| {
                        if record.host.is_empty() {
                            format!(", pid {}", record.pid)
                        } else {
                            format!(" on host {}", record.host)
                        }
                    });
                    return Err(CleanError::Alive(name, pid.unwrap_or_default()));
                }
                if is_named(&file) {
                    break file;
                }
            };
            quiet.held.push(Held { name, path, file });
        }
        Ok(quiet)
    }

    pub(crate) fn records(&self) -> Vec<(AgentName, LifeRecord)> {
        let record = |held: &Held| Some((held.name.clone(), read_record(&held.file)?));
        self.held.iter().filter_map(record).collect()
    }

    /// Whether the life lock of `name` is among the held ones.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.held.iter().any(|held| held.name.as_str() == name)
    }

    /// Returns every file that may be removed, sorted by kind and path. Fails if a file cannot be read.
    pub(crate) fn find(&self) -> Result<Vec<Leftover>, StoreError> {
        let mut finds = Vec::new();
        for Held { name, file, path } in &self.held {
            let dir = &self.dir;
            let mut files = Vec::new();
            let mut add = |kind, paths: Vec<PathBuf>| {
                files.extend(paths.into_iter().map(|path| (kind, path)));
            };
            if file.metadata().at(path)?.len() > 0 {
                add(LeftoverKind::Lock, vec![path.clone()]);
            }
            let state = [
                dir.heartbeat(name),
                dir.fifo(name),
                dir.used(name),
                dir.last_output(name),
                dir.background(name),
                dir.mailbox_key(name),
                dir.hook_socket(name),
            ];
            add(LeftoverKind::State, state.into());
            for claim in list(dir, name)? {
                let is_read = claim.is_taken && is_all_recorded(dir, &claim)?;
                let kind = if is_read { LeftoverKind::TakenClaim } else { LeftoverKind::Mail };
                add(kind, vec![claim.path]);
            }
            if fs::symlink_metadata(dir.inbox(name)).is_ok_and(|known| known.len() > 0) {
                add(LeftoverKind::Mail, vec![dir.inbox(name)]);
            }
            add(LeftoverKind::Mail, unsent_mail::files(dir, name)?);
            add(LeftoverKind::DeadLetters, vec![dir.dead(name)]);
            add(LeftoverKind::DeadLetters, dir.dead_claims(name)?);
            let spilled = output_spill::all(dir, name)?.into_iter();
            add(LeftoverKind::OutputSpill, spilled.map(|(_, path)| path).collect());
            add(LeftoverKind::OutputSpill, background::outputs(dir, name)?);
            add(LeftoverKind::Transcript, conversations(dir, name)?);
            add(LeftoverKind::Transcript, subagents::files(dir, name)?);
            add(LeftoverKind::Transcript, index::files(dir, name)?);
            add(LeftoverKind::Image, images::paths(dir, name)?);
            let of_timers = timers::files(dir, name)?;
            add(LeftoverKind::Timers, of_timers.in_use);
            add(LeftoverKind::State, of_timers.left_over);
            let versions = kept_versions::all(dir, name)?.into_iter();
            add(LeftoverKind::KeptVersion, versions.map(|(_, path)| path).collect());
            add(LeftoverKind::Undo, undo::files(dir, name)?);
            if name.is_lead() {
                add(LeftoverKind::State, file_writes::locks(dir)?);
                // No process runs, so no lease counts.
                add(LeftoverKind::State, leases::files(dir)?);
                add(LeftoverKind::State, mcp::files(dir)?);
                add(LeftoverKind::Attachment, attachments::files(dir)?);
            }
            for (kind, path) in files {
                if let Some(known) = known_if_there(&path)? {
                    finds.push(Leftover { kind, name: name.clone(), path, bytes: known.len() });
                }
            }
        }
        finds.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
        Ok(finds)
    }

    /// Removes a file. An inbox is truncated instead, since it must always exist. On an error the file stays.
    pub(crate) fn remove(&self, find: &Leftover) -> Result<(), StoreError> {
        let path = &find.path;
        if *path == self.dir.inbox(&find.name) {
            let held = exclusive(&self.dir.inbox_lock(&find.name), LOCK_TIMEOUT)?;
            open(path, Access::Update)?.set_len(0).at(path)?;
            drop(held);
            return Ok(());
        }
        if find.kind == LeftoverKind::Attachment {
            return attachments::remove_file(path);
        }
        fs::remove_file(path).at(path)?;
        Ok(())
    }
}

/// Whether every line of a claim is in a transcript or the dead letters. A late writer may have added a line that
/// no drain has read.
fn is_all_recorded(dir: &TeamDir, claim: &ClaimFile) -> Result<bool, StoreError> {
    let ClaimFile { owner: name, batch_id, path, .. } = claim;
    let mut highest: Option<u64> = None;
    for transcript in conversations(dir, name)? {
        each_mail(&transcript, |taken_in| {
            if taken_in.batch_id == *batch_id {
                highest = highest.max(Some(taken_in.offset));
            }
        })?;
    }
    let letters = dead::read_all(dir, name)?.into_iter();
    let letters = letters.filter(|letter| letter.batch_id == *batch_id);
    highest = letters.map(|letter| Some(letter.offset)).fold(highest, Option::max);
    let mut is_all = true;
    each_piece(path, MAX_LINE_BYTES, |framed| {
        let is_new = highest.is_none_or(|highest| framed.offset > highest);
        is_all &= !is_new || framed.piece == Piece::Chunk || framed.bytes.trim_ascii().is_empty();
    })?;
    Ok(is_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LifeLock, Liveness, liveness, test_team};
    use std::io::Write;
    use std::path::Path;

    fn put(path: &Path, text: &str) {
        fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_living_member_is_refused_and_none_can_start_until_its_lock_is_removed() {
        let (_folder, dir) = test_team();
        let (alice, lead) = (AgentName::member("alice").unwrap(), AgentName::lead());
        let start = |name| LifeLock::take(&dir, name, LifeRecord::of_this_process());
        let lock = start(&alice).unwrap();
        assert!(matches!(TeamAtRest::take(&dir), Err(CleanError::Alive(name, _)) if name == alice));
        drop(lock);
        assert!(matches!(liveness::probe(&dir, &lead), Ok(Liveness::Dead)));
        assert!(!dir.life(&lead).exists(), "the file that was created is removed");
        let quiet = TeamAtRest::take(&dir).unwrap();
        for name in [&alice, &lead] {
            assert!(start(name).is_err(), "{name}");
        }
        let finds = quiet.find().unwrap();
        assert_eq!(finds.iter().map(|find| find.kind).collect::<Vec<_>>(), [LeftoverKind::Lock]);
        std::thread::scope(|scope| {
            let wait = || std::iter::repeat_with(|| start(&alice)).find_map(Result::ok);
            let waiting = scope.spawn(wait);
            quiet.remove(&finds[0]).unwrap();
            drop(quiet);
            let _lock = waiting.join().unwrap();
            let life = liveness::probe(&dir, &alice).unwrap();
            assert!(life.is_alive(), "the waiting process has the new lock, not the removed one");
        });
    }

    #[test]
    fn conversations_of_subagents_are_found_with_that_of_their_caller() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        put(&dir.life(&alice), "{}\n");
        fs::create_dir_all(dir.subagents()).unwrap();
        let path = dir.subagent(&alice, 3);
        put(&path, "{}\n");
        let finds = TeamAtRest::take(&dir).unwrap().find().unwrap();
        let found = finds.iter().find(|find| find.path == path).unwrap();
        assert_eq!((found.kind, &found.name), (LeftoverKind::Transcript, &alice));
    }

    #[test]
    fn a_claim_counts_as_taken_only_when_every_line_is_recorded() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let batch_id = "000000000001-0123abcd";
        let claim = dir.claims().join(format!("{alice}.{batch_id}.taken"));
        put(&dir.life(&alice), "{}\n");
        put(&claim, "{\"content\":\"a\"}\n\n{\"content\":\"b\"}\n");
        let mail = |offset: u32| {
            format!(
                "{{\"kind\":\"mail\",\"at\":1,\"gen\":\"{batch_id}\",\"offset\":{offset},\"message\":{{}}}}\n"
            )
        };
        let kind = || {
            let finds = TeamAtRest::take(&dir).unwrap().find().unwrap();
            finds.into_iter().find(|find| find.path == claim).unwrap().kind
        };
        assert_eq!(kind(), LeftoverKind::Mail);
        put(&dir.transcript(&alice), &mail(0));
        assert_eq!(kind(), LeftoverKind::Mail);
        put(&dir.transcript(&alice), &(mail(0) + &mail(17)));
        assert_eq!(kind(), LeftoverKind::TakenClaim);
    }

    #[test]
    fn leases_and_files_that_are_none_are_removed() {
        let (_folder, dir) = test_team();
        let names = ["1.json", "2.json.bad-1", ".3.json.new"];
        for name in names {
            put(&dir.leases().join(name), "{}\n");
        }
        let quiet = TeamAtRest::take(&dir).unwrap();
        let finds = quiet.find().unwrap();
        let mut found: Vec<_> = finds.iter().map(|it| (it.kind, it.path.clone())).collect();
        found.retain(|(_, path)| path.starts_with(dir.leases()));
        let mut expected = names.map(|name| (LeftoverKind::State, dir.leases().join(name)));
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn mail_that_a_killed_agent_has_not_sent_is_precious() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        put(&dir.life(&alice), "{}\n");
        put(&dir.unsent_mail(&alice, "r"), "{}\n");
        let finds = TeamAtRest::take(&dir).unwrap().find().unwrap();
        let find = finds.iter().find(|find| find.path == dir.unsent_mail(&alice, "r")).unwrap();
        assert!(find.kind.is_precious());
    }
}
