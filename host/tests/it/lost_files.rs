//! A host whose disk is full, and one whose relay has lost its files.

use crate::machines::{Machine, Machines};
use crate::mount::{Mounted, fill};
use crate::rig::files::temporary_folder;
use crate::skips::skipped;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Returns the messages of a member that begin with a word, in order.
fn mail_of(machine: &Machine, name: &str, word: &str) -> Vec<String> {
    let mail = machine.mail_of(name);
    let texts = mail.iter().filter_map(|mail| mail["content"].as_str());
    let first_words = texts.filter(|text| text.starts_with(word));
    first_words.map(|text| text.trim_end_matches('x').trim().to_owned()).collect()
}

#[test]
fn mail_for_a_host_whose_disk_is_full_waits_at_its_source_until_there_is_room() {
    let mut folders = vec![temporary_folder(), temporary_folder()];
    let small = folders[0].path().to_owned();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&small);
    let mounted = match Mounted::by(&mut mount, &small) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(&format!("no disk is filled: {why}")),
    };
    let folder = || folders.pop().unwrap();
    let Some(mut machines) = Machines::in_folders_or_skip(&["ann", "gpu1"], folder) else { return };
    let mut alice = machines.get("ann").start_member("alice");
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    ann.team_ok(&["send", "carol", "mail 0"]);
    machines.eventually("mail arrives", || gpu.has_mail("carol", "mail 0"));
    let relay = gpu.relay_pid();
    let filler = gpu.folder().join("filler");
    fill(&filler);
    // More than the free part of the last page of a file.
    let text = |number: usize| format!("mail {number} {}", "x".repeat(5000));
    for number in 1..=5 {
        ann.team_ok(&["send", "carol", &text(number)]);
    }
    // A first one may find room that was left.
    let waits = || ann.waiting_for("gpu1").is_some_and(|count| count >= 3);
    machines.eventually("it waits at its source", waits);
    // A file that is replaced leaves some room for a moment, so a first one may be accepted here, too.
    let mut accepted = Vec::new();
    let said = (100..150).find_map(|number| {
        let sent = gpu.team(&["send", "alice", &text(number)]);
        if sent.status.success() {
            accepted.push(format!("mail {number}"));
        }
        (!sent.status.success()).then(|| String::from_utf8_lossy(&sent.stderr).into_owned())
    });
    assert!(said.as_ref().is_some_and(|said| said.contains("No space left")), "{said:?}");
    std::thread::park_timeout(Duration::from_secs(3));
    assert!(ann.waiting_for("gpu1").is_some_and(|count| count >= 1), "the rest waits still");
    fs::remove_file(filler).unwrap();
    gpu.team_ok(&["send", "alice", &text(200)]);
    accepted.push("mail 200".to_owned());
    machines.eventually("all of it arrives", || {
        mail_of(gpu, "carol", "mail").len() > 5 && ann.has_mail("alice", "mail 200")
    });
    assert_eq!(
        mail_of(gpu, "carol", "mail"),
        (0..6).map(|n| format!("mail {n}")).collect::<Vec<_>>()
    );
    assert_eq!(mail_of(ann, "alice", "mail"), accepted);
    assert_eq!(gpu.relay_pid(), relay);
    let said = fs::read_to_string(gpu.dir.relay_log()).unwrap();
    assert!(said.contains("No space left"), "{said}");
    for child in [&mut alice, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // It must end before the disk is unmounted, and that before the folder is removed.
    machines.get_mut("gpu1").kill_all();
    drop(mounted);
}

#[test]
fn a_host_whose_relay_has_lost_its_files_joins_again_and_no_mail_comes_twice() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut alice = machines.get("ann").start_member("alice");
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    for number in 0..5 {
        ann.team_ok(&["send", "carol", &format!("mail {number}")]);
        gpu.team_ok(&["send", "alice", &format!("mail {number}")]);
    }
    machines.eventually("mail arrives", || {
        gpu.has_mail("carol", "mail 4") && ann.has_mail("alice", "mail 4")
    });
    machines.eventually("it is acknowledged", || {
        ann.waiting_for("gpu1") == Some(0) && gpu.waiting_for("ann") == Some(0)
    });
    machines.get_mut("gpu1").kill_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    gpu.team_ok(&["send", "alice", "mail 5"]);
    ann.team_ok(&["send", "carol", "mail 5"]);
    // It has the outboxes, the record of what has arrived, and the keys.
    fs::remove_dir_all(gpu.folder().join(".team/run/.state/relay")).unwrap();
    gpu.join(ann);
    machines.get_mut("gpu1").start_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("what has waited arrives", || {
        gpu.has_mail("carol", "mail 5") && ann.has_mail("alice", "mail 5")
    });
    ann.team_ok(&["send", "carol", "mail 6"]);
    gpu.team_ok(&["send", "alice", "mail 6"]);
    machines.eventually("mail goes on", || {
        gpu.has_mail("carol", "mail 6") && ann.has_mail("alice", "mail 6")
    });
    let all: Vec<_> = (0..7).map(|number| format!("mail {number}")).collect();
    assert_eq!(mail_of(gpu, "carol", "mail"), all);
    assert_eq!(mail_of(ann, "alice", "mail"), all);
    for child in [&mut alice, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
