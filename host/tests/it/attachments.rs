//! Files that come with messages, between hosts.

use crate::lead::{Lead, said};
use crate::machines::{Machine, Machines};
use agent_team::wire::attachment::Attachment;
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn write(path: &Path, content: &[u8]) {
    File::create(path).unwrap().write_all(content).unwrap();
}

/// Returns the attachments of a message that a member has got, once it has come.
fn attached(machines: &Machines, on: &Machine, member: &str, text: &str) -> Vec<Attachment> {
    machines.eventually("the message arrives", || on.has_mail(member, text));
    let mail = on.mail_of(member);
    let message = mail.iter().find(|mail| mail["content"] == text).unwrap();
    Attachment::all_of(message.as_object().unwrap())
}

/// Returns the files below the folder of the attachments.
fn kept(on: &Machine) -> Vec<PathBuf> {
    let folders = fs::read_dir(on.folder().join(".team/attachments")).into_iter().flatten();
    let folders = folders.map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn a_file_comes_with_a_message_as_it_was_when_it_was_sent() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    let mut alice = ann.start_member("alice");
    machines.wait_known("carol", true);
    machines.wait_known("alice", true);
    let path = ann.folder().join("data.csv");
    write(&path, b"1,2,3\n");
    ann.team_ok(&["send", "carol", "the data", "--attach", "data.csv"]);
    write(&path, b"something else\n");
    let here = attached(&machines, gpu, "carol", "the data");
    assert_eq!((here.len(), here[0].name(), here[0].missing), (1, "data.csv", false));
    assert!(Path::new(&here[0].path).starts_with(gpu.dir.root()), "{here:?}");
    assert_eq!(fs::read(&here[0].path).unwrap(), b"1,2,3\n");
    // On one host, the recipient gets the copy of the sender.
    ann.team_ok(&["send", "alice", "the new data", "--attach", "data.csv"]);
    let there = attached(&machines, ann, "alice", "the new data");
    assert_eq!(fs::read(&there[0].path).unwrap(), b"something else\n");

    // A broadcast brings it to all, on their own hosts.
    ann.team_ok(&["broadcast", "--attach", "data.csv"]);
    for (host, member) in [(gpu, "carol"), (ann, "alice")] {
        let file = &attached(&machines, host, member, "data.csv")[0];
        assert!(Path::new(&file.path).starts_with(host.dir.root()), "{file:?}");
        assert_eq!(fs::read(&file.path).unwrap(), b"something else\n");
    }

    // A file that cannot be sent is not kept.
    let before = kept(ann).len();
    for (args, why) in [
        (&["send", "nobody", "x", "--attach", "data.csv"][..], "not on the roster"),
        (&["send", "carol", "x", "--attach", "none.csv"], "none.csv cannot be attached"),
        (&["send", "carol", "x", "--attach", "."], "is a folder"),
        (&["broadcast", "x", "--attach", "data.csv", "--attach", "none.csv"], "none.csv"),
    ] {
        let refused = ann.team(args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
    assert_eq!(kept(ann).len(), before);
    for member in [&mut carol, &mut alice] {
        member.kill().unwrap();
        member.wait().unwrap();
    }
}

#[test]
fn a_large_file_comes_though_relays_are_killed_and_the_host_is_cut_off() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    let content: Vec<u8> = (0..20_000_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    write(&machines.get("ann").folder().join("large.bin"), &content);
    machines.get("ann").team_ok(&["send", "carol", "large", "--attach", "large.bin"]);
    machines.get("ann").team_ok(&["send", "carol", "after it"]);
    let some_came = |machines: &Machines| {
        machines.eventually("a part of it comes", || !kept(machines.get("gpu1")).is_empty());
    };
    some_came(&machines);
    for host in ["gpu1", "ann"] {
        machines.get_mut(host).kill_relay();
        machines.get_mut(host).start_relay();
    }
    some_came(&machines);
    machines.network.cut("gpu1");
    machines.network.heal("gpu1");
    let gpu = machines.get("gpu1");
    let here = attached(&machines, gpu, "carol", "large");
    assert_eq!(fs::read(&here[0].path).unwrap(), content);
    machines.eventually("what was sent after it comes", || gpu.has_mail("carol", "after it"));
    let order: Vec<_> = gpu.mail_of("carol").iter().map(|it| it["content"].clone()).collect();
    assert_eq!(order, ["large", "after it"], "each once");
    assert_eq!(kept(gpu), [PathBuf::from(&here[0].path)], "nothing is left of the transfer");
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_file_that_its_host_has_no_more_is_missing_and_holds_up_nothing() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    machines.network.cut("gpu1");
    write(&ann.folder().join("gone.txt"), b"gone");
    ann.team_ok(&["send", "carol", "with a file", "--attach", "gone.txt"]);
    fs::remove_file(kept(ann).pop().unwrap()).unwrap();
    machines.network.heal("gpu1");
    let here = attached(&machines, gpu, "carol", "with a file");
    assert!(here[0].missing, "{here:?}");
    // Sent once more, it is asked for once more.
    ann.team_ok(&["send", "carol", "with the file", "--attach", "gone.txt"]);
    let here = attached(&machines, gpu, "carol", "with the file");
    assert!(!here[0].missing, "{here:?}");
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_message_comes_without_its_file_if_its_host_is_lost_for_good() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1", "gpu2"]) else { return };
    let mut carol = machines.get("ann").start_member("carol");
    machines.wait_known("carol", true);
    write(&machines.get("gpu1").folder().join("plot.png"), b"a plot");
    // The line is at the server, and the file is only on gpu1.
    machines.get_mut("ann").signal_relay(Signal::SIGSTOP);
    machines.get("gpu1").team_ok(&["send", "carol", "the plot", "--attach", "plot.png"]);
    machines
        .eventually("the relay has taken it in", || machines.get("gpu1").inbox("carol").is_empty());
    std::thread::park_timeout(Duration::from_secs(1));
    machines.get_mut("gpu1").kill_all();
    machines.get_mut("ann").signal_relay(Signal::SIGCONT);
    let ann = machines.get("ann");
    machines.eventually("gpu1 is away", || {
        ann.team_ok(&["host", "ls"])
            .lines()
            .any(|line| line.starts_with("gpu1") && line.contains("away"))
    });
    assert!(!ann.has_mail("carol", "the plot"), "it waits for the file");
    ann.team_ok(&["host", "give-up", "gpu1"]);
    let here = attached(&machines, ann, "carol", "the plot");
    assert!(here[0].missing, "{here:?}");
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn agents_send_each_other_files_over_hosts() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::start(ann, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    write(&gpu.folder().join("notes.txt"), b"found on gpu1\n");
    lead.say("Ask carol to send lead the file notes.txt.");
    let here = attached(&machines, ann, "lead", "notes.txt");
    assert_eq!(fs::read(&here[0].path).unwrap(), b"found on gpu1\n");
    lead.say(&format!("Read {}.", here[0].path));
    machines
        .eventually("the lead reads it", || ann.transcript("lead").contains("notes.txt contains:"));
    lead.say("Ask carol to send lead the file /etc/hostname.");
    machines.eventually("it is refused", || {
        gpu.transcript("carol").contains("is outside your workspace")
    });
    carol.kill().unwrap();
    carol.wait().unwrap();
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}
