//! A person sees the team of all hosts on one: conversations, logs, the path of a message, questions, tasks, the page.

use crate::lead::{Lead, said};
use crate::machines::{Machine, Machines, program};
use crate::rig::process::{spawn_tied, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns what a command has printed on both ways.
fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

fn is_idle(machine: &Machine, member: &str) -> bool {
    machine.member(member).is_some_and(|it| it["status"] == "idle" && it["alive"] == true)
}

/// Whether nobody looks at other hosts any more.
fn has_no_wish(machine: &Machine) -> bool {
    fs::read_dir(machine.dir.relay_wishes()).is_ok_and(|mut files| files.next().is_none())
}

#[test]
fn the_conversation_and_the_log_of_a_member_of_another_host_are_seen_as_on_one() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    machines.wait_heard();
    ann.team_ok(&["send", "carol", "the first words"]);
    machines.eventually("carol has read them", || {
        gpu.has_mail("carol", "the first words") && is_idle(ann, "carol")
    });
    let shown = ann.team_ok(&["transcript", "carol"]);
    assert!(shown.contains("the first words"), "{shown}");
    assert!(has_no_wish(ann), "the command has ended");

    // The same bytes, also of what comes while somebody looks.
    let mut follow = ann.command("team");
    follow.args(["transcript", "carol", "--follow", "--json"]);
    follow.stdout(File::create(ann.folder().join("follow.out")).unwrap());
    let mut follow = spawn_tied(follow).unwrap();
    let out = ann.folder().join("follow.out");
    ann.team_ok(&["send", "carol", "the second words"]);
    let mut seen = String::new();
    machines.eventually("it shows what follows", || {
        seen = fs::read_to_string(&out).unwrap_or_default();
        seen.contains("the second words")
    });
    assert!(gpu.transcript("carol").starts_with(&seen), "{seen}\n{}", gpu.transcript("carol"));
    follow.kill().unwrap();
    follow.wait().unwrap();
    machines.eventually("the wish of a killed process is gone", || has_no_wish(ann));

    let log = ann.team_ok(&["log", "--json"]);
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_carol: Vec<_> = lines.filter(|line| line["agent"] == "carol").collect();
    assert!(!of_carol.is_empty() && of_carol.iter().all(|line| line["host"] == "gpu1"), "{log}");
    assert!(!ann.team_ok(&["log", "carol"]).is_empty());
    let mail = ann.team_ok(&["log", "--type", "mail"]);
    assert!(mail.contains("the second words"), "{mail}");
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_member_of_another_host_is_attached_to_and_watched_as_on_one() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    ann.team_ok(&["send", "carol", "the first words"]);
    machines.eventually("carol has read them", || gpu.has_mail("carol", "the first words"));
    let shown = |name: &str| fs::read_to_string(ann.folder().join(name)).unwrap_or_default();
    let output = |name: &str| File::create(ann.folder().join(name)).unwrap();

    let mut attached = ann.command("team");
    attached.args(["attach", "carol"]).stdin(Stdio::piped()).stdout(output("attach.out"));
    let mut attached = spawn_tied(attached).unwrap();
    machines.eventually("it shows her conversation", || {
        shown("attach.out").contains("the first words")
    });
    // A line that is typed is for her, and her answer is shown.
    let typed = attached.stdin.as_mut().unwrap();
    typed.write_all(b"send erin \"a word\"\n").unwrap();
    machines.eventually("it shows what follows", || shown("attach.out").contains("a word"));
    assert!(gpu.has_mail("carol", "a word"));
    drop(attached.stdin.take());
    assert_eq!(attached.wait().unwrap().code(), Some(0));

    // The list of all agents, at a terminal.
    let mut top = ann.command_of(std::path::Path::new("python3"));
    let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    top.args(["-c", spawn]).arg(program("team")).arg("top").env("TERM", "xterm");
    top.stdin(Stdio::piped()).stdout(output("top.out"));
    let mut top = spawn_tied(top).unwrap();
    machines.eventually("it shows her and her host", || {
        shown("top.out").contains("carol") && shown("top.out").contains("gpu1")
    });
    top.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    machines.eventually("it ends", || matches!(top.try_wait(), Ok(Some(_))));
    machines.eventually("nobody looks any more", || has_no_wish(ann));
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_host_shows_its_agents_to_no_host_that_may_not_have_the_lead() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut alice = ann.start_member("alice");
    machines.wait_known("alice", true);
    machines.wait_heard();
    ann.team_ok(&["send", "alice", "a secret"]);
    machines.eventually("alice has it", || ann.has_mail("alice", "a secret"));
    let refused = gpu.team(&["transcript", "alice"]);
    let why = printed(&refused);
    assert!(!refused.status.success() && why.contains("`leads` in its host.toml"), "{why}");
    let log = gpu.team(&["log", "--type", "mail"]);
    assert!(!printed(&log).contains("a secret"), "{}", printed(&log));
    let copies = fs::read_dir(gpu.dir.relay_copies().join("ann")).unwrap();
    assert_eq!(copies.count(), 0, "nothing was copied");
    alice.kill().unwrap();
    alice.wait().unwrap();
}

#[test]
fn what_was_seen_of_a_host_is_shown_while_it_is_away_with_its_time() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    let ann = machines.get("ann");
    ann.team_ok(&["send", "carol", "the first words"]);
    machines.eventually("carol is seen to have read them", || {
        ann.team_ok(&["transcript", "carol"]).contains("the first words")
    });
    machines.get_mut("gpu1").kill_relay();
    let ann = machines.get("ann");
    machines.eventually("ann misses gpu1", || ann.team_ok(&["host", "ls"]).contains("away"));
    let output = ann.team(&["transcript", "carol"]);
    let (shown, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && shown.contains("the first words"), "{shown}{noted}");
    assert!(noted.contains("gpu1 cannot be looked at now (it has been away"), "{noted}");
    assert!(noted.contains("as of "), "{noted}");
    // A message that waits for the host has a place, too.
    let id = ann.team_ok(&["send", "carol", "words that wait"]);
    let id = id.lines().next().unwrap().split(';').next().unwrap().trim().to_owned();
    machines.eventually("it is on its way", || {
        printed(&ann.team(&["trace", &id])).contains("does not have it yet")
    });
    machines.get_mut("gpu1").start_relay();
    let ann = machines.get("ann");
    machines.eventually("it is seen to have arrived", || {
        let trace = printed(&ann.team(&["trace", &id]));
        trace.contains("carol receives it") && trace.contains("copies/gpu1/transcript/carol.jsonl")
    });
    machines.eventually("nothing says that it waits, or only that it has arrived", || {
        let trace = printed(&ann.team(&["trace", &id]));
        let says = |words: &str| trace.contains(words);
        !says("does not have it yet") && !says("has it on its own host")
    });
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_question_of_a_member_of_another_host_is_answered_by_a_command() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = Lead::at_terminal(ann);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1. Ask carol to run \"touch trained.txt\".");
    let mut shown = String::new();
    machines.eventually("her question is listed on ann", || {
        shown = ann.team_ok(&["requests"]);
        shown.contains("touch trained.txt")
    });
    assert!(!gpu.folder().join("trained.txt").exists());
    let approved = ann.team_ok(&["approve", "carol"]);
    assert!(approved.contains("approved"), "{approved}");
    machines.eventually("she has run it", || gpu.folder().join("trained.txt").exists());
    assert_eq!(ann.team_ok(&["requests"]).trim(), "nothing waits for a decision");
    lead.say("/quit");
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn the_tasks_of_the_lead_s_host_are_read_on_all_hosts() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    // It had a list of its own.
    machines.get("gpu1").team_ok(&["task", "add", "alone"]);
    let lead = Lead::start(machines.get("ann"), &[]);
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    ann.team_ok(&["task", "add", "train the model"]);
    let list = |machine: &Machine| machine.team_ok(&["task", "ls", "--json"]);
    machines.eventually("gpu1 has the list of ann", || list(gpu) == list(ann));
    assert!(list(gpu).contains("train the model") && !list(gpu).contains("alone"));
    let aside = fs::read_to_string(gpu.dir.tasks_aside().join("1.json")).unwrap();
    assert!(aside.contains("alone"), "it is put aside: {aside}");
    // Changes, also those that were made while gpu1 did not listen.
    machines.get_mut("gpu1").kill_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    ann.team_ok(&["task", "add", "write it down"]);
    ann.team_ok(&["task", "done", "1"]);
    assert!(!list(gpu).contains("write it down"));
    machines.get_mut("gpu1").start_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("gpu1 has all of it", || list(gpu) == list(ann));
    assert_eq!(
        fs::read_dir(gpu.dir.tasks_aside()).unwrap().count(),
        1,
        "the copy is not put aside"
    );
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
}

#[test]
fn the_page_shows_the_conversations_of_all_hosts() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    ann.team_ok(&["send", "carol", "words for the page"]);
    machines.eventually("carol has read them", || gpu.has_mail("carol", "words for the page"));
    let mut page = ann.command("team");
    page.args(["web"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut page = spawn_tied(page).unwrap();
    let mut url = String::new();
    BufReader::new(page.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let url = url.trim().replace("/?token=", "/conversation?name=carol&token=");
    // The page is on the loopback of its host.
    let read = "import sys, urllib.request\n\
                stream = urllib.request.urlopen(sys.argv[1])\n\
                for line in stream:\n    print(line.decode(), flush=True)\n";
    let mut reader = ann.command_of(std::path::Path::new("python3"));
    let out = ann.folder().join("page.out");
    reader.args(["-c", read, &url]).stdout(File::create(&out).unwrap()).stderr(Stdio::null());
    let mut reader = spawn_tied(reader).unwrap();
    machines.eventually("the page has her conversation", || {
        fs::read_to_string(&out).unwrap_or_default().contains("words for the page")
    });
    ann.team_ok(&["send", "carol", "more words for it"]);
    machines.eventually("the page has what follows", || {
        fs::read_to_string(&out).unwrap_or_default().contains("more words for it")
    });
    for child in [&mut reader, &mut page, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(wait_until(crate::machines::DEADLINE, || has_no_wish(ann)));
}
