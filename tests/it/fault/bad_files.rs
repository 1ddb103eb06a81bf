//! Links, FIFOs, folders and foreign files in the place of an inbox, a lock or a roster. Each is refused
//! immediately with an error that names it, and is not changed.

use crate::support::child_process::{line, policy, team, write};
use crate::support::harness::PATIENCE;
use crate::support::skips::skipped;
use agent_team::store::liveness::{LifeLock, LifeRecord, probe};
use agent_team::store::mailbox::{MailPolicy, Mailbox};
use agent_team::store::{Fsync, Keyring, SystemClock, TeamDir, Transcript, inbox, roster};
use agent_team::wire::AgentName;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn alice() -> AgentName {
    AgentName::member("alice").unwrap()
}

fn send(dir: &TeamDir) -> Result<(), String> {
    let line = line("bob", 0, 9);
    let outcome = inbox::append(dir, &alice(), line.as_bytes(), &policy(Fsync::Always));
    outcome.map_err(|why| why.to_string())
}

fn drain(dir: &TeamDir) -> Result<usize, String> {
    let name = alice();
    let said = |why: agent_team::store::StoreError| why.to_string();
    let life = LifeLock::take(dir, &name, LifeRecord::default()).map_err(|why| why.to_string())?;
    let transcript = Transcript::open(dir, &name).map_err(said)?;
    let policy = MailPolicy { fsync: Fsync::Always, max_content: 1000 };
    let clock = Arc::new(SystemClock);
    let keyring = Arc::new(Keyring::new(dir.clone()));
    let mut mailbox =
        Mailbox::open(dir, &life, transcript, policy, clock, keyring).map_err(said)?;
    mailbox.drain().map(|drained| drained.mail.len()).map_err(said)
}

fn mkfifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Puts something in place of an inbox, and asserts that sender and reader refuse it with an error that contains
/// `word`.
fn refused(word: &str, plant: impl FnOnce(&TeamDir, &Path)) {
    let (folder, dir) = team();
    let target = folder.path().join("precious");
    write(&target, "precious");
    plant(&dir, &target);
    let start = Instant::now();
    for outcome in [send(&dir), drain(&dir).map(drop)] {
        let why = outcome.unwrap_err();
        assert!(why.contains(word) && why.contains(".team/"), "{why:?} does not say {word:?}");
    }
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn nothing_but_a_file_is_an_inbox() {
    refused("a symbolic link", |dir, target| symlink(target, dir.inbox(&alice())).unwrap());
    refused("a symbolic link", |dir, _| symlink("/dev/zero", dir.inbox(&alice())).unwrap());
    refused("a symbolic link", |dir, _| symlink("/dev/full", dir.inbox(&alice())).unwrap());
    refused("a pipe", |dir, _| mkfifo(&dir.inbox(&alice())));
    refused("a folder", |dir, _| fs::create_dir(dir.inbox(&alice())).unwrap());
    refused("hard links", |dir, target| fs::hard_link(target, dir.inbox(&alice())).unwrap());
}

#[test]
fn nothing_but_a_file_is_a_lock() {
    refused("a symbolic link", |dir, target| symlink(target, dir.inbox_lock(&alice())).unwrap());
    refused("a pipe", |dir, _| mkfifo(&dir.inbox_lock(&alice())));
    let (folder, dir) = team();
    let target = folder.path().join("precious");
    write(&target, "precious");
    symlink(&target, dir.life(&alice())).unwrap();
    assert!(probe(&dir, &alice()).is_err());
    assert!(LifeLock::take(&dir, &alice(), LifeRecord::default()).is_err());
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn other_files_of_the_owner_are_checked_as_well() {
    for plant in [TeamDir::transcript, TeamDir::dead] {
        let (folder, dir) = team();
        let target = folder.path().join("precious");
        write(&target, "precious");
        write(&dir.inbox(&alice()), "garbage\n");
        symlink(&target, plant(&dir, &alice())).unwrap();
        let why = drain(&dir).unwrap_err();
        assert!(why.contains("a symbolic link"), "{why}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
    let (_folder, dir) = team();
    mkfifo(&dir.config());
    assert!(roster::read(&dir).unwrap_err().to_string().contains("a pipe"));
    assert!(roster::update(&dir, Fsync::Always, |_| ()).is_err());
}

#[test]
fn files_of_another_user_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can give files away");
        return;
    }
    refused("belongs to user 12345", |dir, _| {
        write(&dir.inbox(&alice()), "");
        chown(dir.inbox(&alice()), Some(12345), None).unwrap();
    });
    let (_folder, dir) = team();
    chown(dir.root(), Some(12345), None).unwrap();
    for outcome in [TeamDir::open(dir.root()), TeamDir::create(dir.root())] {
        assert!(outcome.unwrap_err().to_string().contains("belongs to user 12345"));
    }
}

#[test]
fn a_removed_team_folder_is_an_error_and_is_not_created_again() {
    let (_folder, dir) = team();
    send(&dir).unwrap();
    fs::remove_dir_all(dir.root()).unwrap();
    assert!(send(&dir).is_err() && drain(&dir).is_err());
    assert!(!dir.root().exists());
}
