//! The keys by which this process seals the mail that it sends, and verifies the mail that it gets.
//!
//! A process that drains a mailbox has a *mailbox key* in `run/.state/NAME.key`. The file is private, and its key
//! changes with every start: a program of the user reads it to seal mail to that process. A lead and a teammate that
//! it has spawned also share a *control key*, which is in no file and no environment.
//!
//! *Invariant:* a message that names a sender with a live control key is verified by that key alone.

use super::file::atomic::{json_line, remove, replace, replace_unnamed, sync_parent};
use super::file::read::{Stamp, known_if_there, open_if_there, read_state, stamp, state_in};
use super::file::together::each_at_once;
use super::{Fsync, StoreError, TeamDir};
use crate::os::file::{At, FileError};
use crate::wire::AgentName;
use crate::wire::limits::TRUSTED_FOR;
use crate::wire::message::Message;
use crate::wire::seal::{SealKey, Sealer, Verification};
use ring::rand::SystemRandom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The contents of a file with a mailbox key.
#[derive(Serialize, Deserialize)]
struct KeyFile {
    key: SealKey,
}

/// The keys of one process.
#[derive(Debug)]
pub struct Keyring {
    dir: TeamDir,
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    /// The owner of the mailbox that this process drains.
    owner: Option<AgentName>,
    /// The mailbox keys of the owner: the current one, and that of the process before, for mail which it left.
    mailbox: Vec<SealKey>,
    control: BTreeMap<AgentName, Vec<ControlKey>>,
    /// The mailbox keys of others, as last read; `None` for those that had none. No absence is trusted without a look.
    recipients: BTreeMap<AgentName, Option<KnownKey>>,
}

/// The mailbox key of another process. It is trusted for a moment: a process verifies mail by the key before its own, too.
#[derive(Debug)]
struct KnownKey {
    looked_at: Instant,
    file: Stamp,
    sealer: Sealer,
}

#[derive(Debug)]
struct ControlKey {
    incarnation: String,
    key: SealKey,
    sealer: Sealer,
    /// Whether the process that has the key is alive. The key of a dead one verifies the mail that it left.
    is_live: bool,
}

impl Keyring {
    /// Creates the keyring of a process that drains no mailbox: it can seal, and verifies nothing.
    pub fn new(dir: TeamDir) -> Self {
        Self { dir, keys: Mutex::default() }
    }

    /// Makes this process the owner of a mailbox, with a new key. The caller holds the life lock of `name`. After an
    /// error the key of the process before stays in force.
    pub fn own(&self, name: &AgentName, fsync: Fsync) -> Result<(), StoreError> {
        let path = self.dir.mailbox_key(name);
        let before = read_key(&path)?;
        let mut keys = self.keys();
        (keys.owner, keys.mailbox) = (Some(name.clone()), before.into_iter().collect());
        let key = write_new_key(&path, fsync)?;
        keys.mailbox.insert(0, key);
        Ok(())
    }

    /// Like [`Keyring::own`], but with the key that is there: for a relay, which is restarted while mail waits.
    pub(crate) fn own_with_same_key(
        &self,
        name: &AgentName,
        fsync: Fsync,
    ) -> Result<(), StoreError> {
        let path = self.dir.mailbox_key(name);
        let key = match read_key(&path)? {
            Some(key) => key,
            None => write_new_key(&path, fsync)?,
        };
        let mut keys = self.keys();
        (keys.owner, keys.mailbox) = (Some(name.clone()), vec![key]);
        Ok(())
    }

    /// Adds the control key that this process shares with an incarnation of `peer`.
    pub fn add_control_key(&self, peer: &AgentName, incarnation: &str, key: SealKey) {
        let (incarnation, sealer) = (incarnation.into(), key.sealer());
        let key = ControlKey { incarnation, key, sealer, is_live: true };
        let mut keys = self.keys();
        let of_peer = keys.control.entry(peer.clone()).or_default();
        for before in of_peer.iter_mut() {
            before.is_live = false;
        }
        of_peer.push(key);
    }

    /// Notes that an incarnation of `peer` has ended. Its key still verifies the mail that it left.
    pub fn retire_control_key(&self, peer: &AgentName, incarnation: &str) {
        let mut keys = self.keys();
        let of_peer = keys.control.get_mut(peer).into_iter().flatten();
        of_peer.filter(|it| it.incarnation == incarnation).for_each(|key| key.is_live = false);
    }

    /// Whether this process shares a control key with this live incarnation of `peer`.
    pub fn has_control_key(&self, peer: &AgentName, incarnation: &str) -> bool {
        self.keys().live(peer).is_some_and(|key| key.incarnation == incarnation)
    }

    /// Seals a line from `from` to `to`: with the control key if this process is `from` and shares one with `to`, else
    /// with the mailbox key of `to`. Without a key, or with one that cannot be read, the line stays as it is.
    pub fn seal(&self, from: &AgentName, to: &AgentName, line: &mut String) {
        let mut keys = self.keys();
        let is_ours = keys.owner.as_ref() == Some(from);
        if is_ours && let Some(control) = keys.live(to) {
            control.sealer.seal(line);
        } else if let Ok(Some(sealer)) = keys.mailbox_sealer(&self.dir, to) {
            sealer.seal(line);
        }
    }

    /// Returns the evidence for the sender of a message to this process. `line` is the text that was received.
    pub fn verify(&self, message: &Message, line: &str) -> Verification {
        let keys = self.keys();
        // A line to another agent, sealed with a key that both ends share, must not count when it is sent back.
        if message.to.is_none()
            || message.to.as_deref() != keys.owner.as_ref().map(AgentName::as_str)
        {
            return Verification::None;
        }
        let peer = keys.control.iter().find(|(peer, _)| peer.as_str() == message.from);
        let of_peer = || peer.into_iter().flat_map(|(_, keys)| keys);
        if of_peer().any(|control| control.key.verifies(line)) {
            return Verification::Control;
        }
        let needs_control = of_peer().any(|control| control.is_live);
        let is_sealed = !needs_control && keys.mailbox.iter().any(|key| key.verifies(line));
        if is_sealed { Verification::Mailbox } else { Verification::None }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn live(&self, peer: &AgentName) -> Option<&ControlKey> {
        self.control.get(peer)?.iter().find(|control| control.is_live)
    }

    /// Returns what seals mail to `to` with its mailbox key, read again if its file has changed; `None` if it has no key.
    fn mailbox_sealer(
        &mut self,
        dir: &TeamDir,
        to: &AgentName,
    ) -> Result<Option<&Sealer>, FileError> {
        let now = Instant::now();
        let known = self.recipients.entry(to.clone()).or_default();
        if known.as_ref().is_none_or(|it| now.duration_since(it.looked_at) >= TRUSTED_FOR) {
            let path = dir.mailbox_key(to);
            let file = known_if_there(&path)?.as_ref().map(stamp);
            if file != known.as_ref().map(|it| it.file) {
                *known = read_sealer(&path, now)?;
            } else if let Some(known) = known {
                known.looked_at = now;
            }
        }
        Ok(known.as_ref().map(|known| &known.sealer))
    }
}

/// Reads a mailbox key; `None` if there is none.
fn read_sealer(path: &Path, looked_at: Instant) -> Result<Option<KnownKey>, FileError> {
    let Some((file, known)) = open_if_there(path)? else { return Ok(None) };
    let key = state_in::<KeyFile>(&file).at(path)?.map(|file| file.key);
    Ok(key.map(|key| KnownKey { looked_at, file: stamp(&known), sealer: key.sealer() }))
}

/// Gives a new name a mailbox key, so that mail which is sent before its first start can be verified. The caller keeps
/// the name from starting meanwhile.
pub(crate) fn ensure(dir: &TeamDir, name: &AgentName) -> Result<(), StoreError> {
    let path = dir.mailbox_key(name);
    if read_key(&path)?.is_none() {
        write_new_key(&path, Fsync::Never)?;
    }
    Ok(())
}

/// Gives names that have none a mailbox key each, durably. Their folder is synced once. The caller holds the names.
pub(crate) fn ensure_all(dir: &TeamDir, names: &[&AgentName]) -> Result<(), StoreError> {
    let make = |name: &AgentName| {
        let path = dir.mailbox_key(name);
        if read_key(&path)?.is_some() {
            return Ok(None);
        }
        let key = json_line(&KeyFile { key: new_key().at(&path)? }, &path)?;
        replace_unnamed(&path, &key, Fsync::Always).map(|()| Some(path))
    };
    let made = each_at_once(names.to_vec(), make);
    // Also those that were made before an error.
    if let Some(path) = made.iter().flatten().flatten().next() {
        sync_parent(path, Fsync::Always)?;
    }
    made.into_iter().try_for_each(|made| made.map(drop))?;
    Ok(())
}

/// Removes the mailbox key of a name that never started.
pub(crate) fn forget(dir: &TeamDir, name: &AgentName) -> Result<(), FileError> {
    remove(&dir.mailbox_key(name))
}

/// Makes a random key. Fails if the system has no randomness.
pub(crate) fn new_key() -> io::Result<SealKey> {
    let none = || io::Error::other("the system gives no random bytes");
    SealKey::random(&SystemRandom::new()).ok_or_else(none)
}

fn read_key(path: &Path) -> Result<Option<SealKey>, FileError> {
    Ok(read_state::<KeyFile>(path)?.map(|file| file.key))
}

fn write_new_key(path: &Path, fsync: Fsync) -> Result<SealKey, FileError> {
    let key = new_key().at(path)?;
    replace(path, &json_line(&KeyFile { key: key.clone() }, path)?, fsync)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::os::unix::fs::PermissionsExt;

    struct Process {
        keys: Keyring,
        name: AgentName,
    }

    fn process(dir: &TeamDir, name: &str) -> Process {
        let (keys, name) = (Keyring::new(dir.clone()), AgentName::mailbox(name).unwrap());
        keys.own(&name, Fsync::Never).unwrap();
        Process { keys, name }
    }

    fn share_control_key(lead: &Process, member: &Process, incarnation: &str) {
        let key = new_key().unwrap();
        lead.keys.add_control_key(&member.name, incarnation, key.clone());
        member.keys.add_control_key(&lead.name, "", key);
    }

    fn line(from: &str, to: &str) -> String {
        serde_json::json!({"type": "message", "from": from, "to": to, "content": "x"}).to_string()
    }

    fn sent(by: &Process, from: &str, to: &str) -> String {
        let mut line = line(from, to);
        let system = AgentName::system();
        let name = |name| AgentName::mailbox(name).unwrap_or_else(|_| system.clone());
        let [from, to] = [from, to].map(name);
        by.keys.seal(&from, &to, &mut line);
        line
    }

    /// Waits until no key is trusted without a look.
    fn wait_out_trust() {
        let start = Instant::now();
        while start.elapsed() <= TRUSTED_FOR {
            std::thread::park_timeout(TRUSTED_FOR);
        }
    }

    fn verified(by: &Process, line: &str) -> Verification {
        by.keys.verify(&Message::read_plain(line).unwrap(), line)
    }

    #[test]
    fn only_a_line_to_this_process_of_the_sender_with_the_key_is_verified() {
        use Verification::{Control, Mailbox, None};
        let (_folder, dir) = test_team();
        let [lead, alice, bob, shell] =
            ["lead", "alice", "bob", "user"].map(|name| process(&dir, name));
        share_control_key(&lead, &alice, "a1");
        for (line, at, expected, case) in [
            (sent(&lead, "lead", "alice"), &alice, Control, "the lead to its teammate"),
            (sent(&alice, "alice", "lead"), &lead, Control, "a teammate to its lead"),
            (sent(&lead, "user", "alice"), &alice, Mailbox, "in the name of the user"),
            (sent(&alice, "system", "lead"), &lead, Mailbox, "in the name of the program"),
            (sent(&shell, "user", "alice"), &alice, Mailbox, "the user"),
            (sent(&bob, "bob", "alice"), &alice, Mailbox, "a colleague"),
            (sent(&shell, "lead", "alice"), &alice, None, "somebody as the lead"),
            (sent(&bob, "alice", "lead"), &lead, None, "somebody as the teammate"),
            (line("user", "alice"), &alice, None, "a line without a seal"),
            (sent(&lead, "lead", "alice"), &lead, None, "a line that is sent back"),
            (sent(&lead, "lead", "alice").replace("alice", "bob"), &bob, None, "another recipient"),
            (sent(&bob, "bob", "alice").replace("bob", "user"), &alice, None, "another sender"),
        ] {
            assert_eq!(verified(at, &line), expected, "{case}: {line}");
        }
        let stranger = Keyring::new(dir);
        let to_alice = sent(&bob, "bob", "alice");
        let message = Message::read_plain(&to_alice).unwrap();
        assert_eq!(stranger.verify(&message, &to_alice), None);
    }

    #[test]
    fn a_key_is_new_for_each_process_and_the_one_before_still_verifies() {
        let (_folder, dir) = test_team();
        let (alice, bob) = (process(&dir, "alice"), process(&dir, "bob"));
        let old = sent(&bob, "bob", "alice");
        let alice = [alice, process(&dir, "alice")];
        wait_out_trust();
        let new = sent(&bob, "bob", "alice");
        assert_ne!(old, new, "the changed key was read again");
        assert_eq!(verified(&alice[0], &new), Verification::None);
        assert_eq!(verified(&alice[1], &old), Verification::Mailbox);
        assert_eq!(verified(&alice[1], &new), Verification::Mailbox);
        let known = std::fs::metadata(dir.mailbox_key(&alice[0].name)).unwrap();
        assert_eq!(known.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_key_of_an_ended_process_verifies_its_mail_and_demands_no_more() {
        let (_folder, dir) = test_team();
        let [lead, alice, by_hand] = ["lead", "alice", "alice"].map(|name| process(&dir, name));
        share_control_key(&lead, &alice, "a1");
        let left = sent(&alice, "alice", "lead");
        assert!(lead.keys.has_control_key(&alice.name, "a1"));
        assert_eq!(verified(&lead, &sent(&by_hand, "alice", "lead")), Verification::None);
        lead.keys.retire_control_key(&alice.name, "a1");
        assert!(!lead.keys.has_control_key(&alice.name, "a1"));
        assert_eq!(verified(&lead, &left), Verification::Control);
        assert_eq!(verified(&lead, &sent(&by_hand, "alice", "lead")), Verification::Mailbox);
        share_control_key(&lead, &alice, "a2");
        assert_eq!(verified(&lead, &left), Verification::Control);
        assert!(!lead.keys.has_control_key(&alice.name, "a1"));
    }

    #[test]
    fn a_name_that_has_not_started_has_a_key_or_its_mail_is_not_sealed() {
        let (_folder, dir) = test_team();
        let (bob, alice) = (process(&dir, "bob"), AgentName::member("alice").unwrap());
        assert_eq!(sent(&bob, "bob", "alice"), line("bob", "alice"));
        ensure(&dir, &alice).unwrap();
        let early = sent(&bob, "bob", "alice");
        ensure(&dir, &alice).unwrap();
        assert_eq!(sent(&bob, "bob", "alice"), early);
        assert_eq!(verified(&process(&dir, "alice"), &early), Verification::Mailbox);
        forget(&dir, &alice).unwrap();
        wait_out_trust();
        assert_eq!(sent(&bob, "bob", "alice"), line("bob", "alice"));
    }
}
