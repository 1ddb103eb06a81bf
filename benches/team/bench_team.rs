//! A temporary team folder with one agent in this process, and raw files for references.

use agent_team::bus::{Bus, MailLimits, Outgoing};
use agent_team::store::liveness::{LifeLock, LifeRecord};
use agent_team::store::mailbox::{MailPolicy, Mailbox};
use agent_team::store::{Fsync, Keyring, SystemClock, TeamDir, Transcript, inbox, roster};
use agent_team::wire::AgentName;
use agent_team::wire::roster::{Member, Status};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The name of the recipient.
pub(crate) const OWNER: &str = "alice";

/// The name of the sender.
pub(crate) const SENDER: &str = "bob";

/// The parent folder of team folders; by default it is on the disk of the build.
static PARENT: OnceLock<PathBuf> = OnceLock::new();

/// Creates all team folders below `folder`, for instance on another file system.
pub(crate) fn make_in(folder: &str) {
    PARENT.set(folder.into()).unwrap();
}

/// Creates an empty folder that is removed on drop.
pub(crate) fn new_folder() -> tempfile::TempDir {
    let parent = PARENT.get_or_init(|| env!("CARGO_TARGET_TMPDIR").into());
    std::fs::create_dir_all(parent).unwrap();
    tempfile::Builder::new().prefix("bench-").tempdir_in(parent).unwrap()
}

/// A team folder that is removed on drop.
pub(crate) struct BenchTeam {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) dir: TeamDir,
}

impl BenchTeam {
    /// Creates a team with [`OWNER`] on its roster, idle, with a free life lock.
    pub(crate) fn new() -> Self {
        let folder = new_folder();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        inbox::ensure(&dir, &owner()).unwrap();
        roster::update(&dir, Fsync::Never, |roster| {
            let member = Member { name: OWNER.into(), status: Status::Idle, ..Member::default() };
            roster.members.push(member.into());
        })
        .unwrap();
        Self { folder, dir }
    }

    /// Returns the path of a file beside the team folder, for a reference.
    pub(crate) fn raw(&self) -> PathBuf {
        self.folder.path().join("raw.jsonl")
    }

    pub(crate) fn make_raw(&self) -> PathBuf {
        File::create(self.raw()).unwrap();
        self.raw()
    }
}

pub(crate) fn owner() -> AgentName {
    AgentName::member(OWNER).unwrap()
}

pub(crate) fn sender() -> AgentName {
    AgentName::member(SENDER).unwrap()
}

/// Takes the life lock of [`OWNER`], which gets a key, as by its start.
pub(crate) fn live(dir: &TeamDir) -> LifeLock {
    Keyring::new(dir.clone()).own(&owner(), Fsync::Never).unwrap();
    LifeLock::take(dir, &owner(), LifeRecord::of_this_process()).unwrap()
}

/// Opens the mailbox of [`OWNER`].
pub(crate) fn mailbox(dir: &TeamDir, life: &LifeLock, fsync: Fsync) -> Mailbox {
    let policy = MailPolicy { fsync, max_content: MailLimits::default().max_message_bytes };
    let transcript = Transcript::open(dir, &owner()).unwrap();
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own(&owner(), fsync).unwrap();
    Mailbox::open(dir, life, transcript, policy, Arc::new(SystemClock), keyring).unwrap()
}

/// Returns a bus for the senders of a team.
pub(crate) fn bus(dir: &TeamDir, fsync: Fsync) -> Bus {
    let limits = MailLimits { fsync, inbox_bytes: 1 << 30, ..MailLimits::default() };
    Bus::new(dir.clone(), limits, Arc::new(SystemClock))
}

/// Returns a text of 200 bytes with this prefix.
pub(crate) fn text(words: &str) -> String {
    // A blank text would be refused.
    let words = if words.is_empty() { "." } else { words };
    format!("{words:<200}")
}

/// Sends a text to [`OWNER`].
pub(crate) fn send(bus: &Bus, from: &AgentName, text: String) {
    bus.send(from, OWNER, Outgoing::text(text)).unwrap();
}
