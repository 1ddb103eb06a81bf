//! Members on several hosts, with the real programs: mail, rosters, ends of processes, hosts that are away.

use crate::machines::{Machines, program};
use crate::rig::process::{signal, spawn_tied};
use agent_team::store::{LifeLock, LifeRecord, roster};
use agent_team::wire::AgentName;
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn an_agent_that_takes_its_life_lock_after_its_entry_was_told_is_alive_on_all_hosts() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let gpu = machines.get("gpu1");
    gpu.add_member("carol");
    machines.wait_known("carol", false);
    // Nothing else is written.
    let carol = AgentName::member("carol").unwrap();
    let life = LifeLock::take(&gpu.dir, &carol, LifeRecord::of_this_process()).unwrap();
    machines.wait_known("carol", true);
    drop(life);
    machines.wait_known("carol", false);
}

#[test]
fn members_of_two_hosts_write_to_each_other_as_on_one() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut alice = ann.start_member("alice");
    let mut carol = gpu.start_member("carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    let shown = ann.team_ok(&["ls"]);
    assert!(shown.contains("HOST") && shown.contains("gpu1"), "{shown}");
    assert_eq!(ann.member("carol").unwrap()["host"], "gpu1");
    assert_eq!(gpu.member("alice").unwrap()["host"], "ann");

    ann.team_ok(&["send", "carol", "send alice \"from carol\""]);
    machines.eventually("carol's message reaches alice", || ann.has_mail("alice", "from carol"));
    let mail = ann.mail_of("alice");
    let from_carol = mail.iter().find(|mail| mail["from"] == "carol").unwrap();
    assert_eq!(from_carol["via"]["host"], "gpu1", "{from_carol}");
    assert!(!ann.transcript("alice").contains("\"verified\":false"), "the seal was made anew");

    // A line of a shell, of a program that knows nothing of hosts.
    let inbox = ann.folder().join(".team/inbox/carol.jsonl");
    let mut file = fs::OpenOptions::new().append(true).create(true).open(inbox).unwrap();
    file.write_all(b"{\"from\":\"ci\",\"content\":\"by hand\"}\n").unwrap();
    machines.eventually("the line of the shell arrives", || gpu.has_mail("carol", "by hand"));
    // It goes on to write to the file that it has opened, which the relay has claimed since.
    file.write_all(b"{\"from\":\"ci\",\"content\":\"written late\"}\n").unwrap();
    machines.eventually("the late line arrives", || gpu.has_mail("carol", "written late"));
    drop(file);

    carol.kill().unwrap();
    carol.wait().unwrap();
    machines.wait_known("carol", false);
    let refused = ann.team(&["send", "carol", "x"]);
    assert!(!refused.status.success());
    let stopped = ann.team_ok(&["stop", "alice"]);
    assert!(stopped.contains("ended when asked"), "{stopped}");
    alice.wait().unwrap();
    machines.wait_known("alice", false);
}

#[test]
fn a_member_is_stopped_from_another_host_and_its_name_is_taken_there() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    let second = ann.team(&["teammate", "carol", "--model", "rehearsal"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("its host is gpu1"), "{said}");
    let stopped = ann.team_ok(&["stop", "carol"]);
    assert!(stopped.contains("carol ended when asked"), "{stopped}");
    assert!(carol.wait().unwrap().success());
    machines.wait_known("carol", false);
    // It is not running: nothing is asked, and nothing is written into the entry of another host.
    assert!(ann.team_ok(&["stop", "carol"]).contains("was not running"));
    // A lead starts her where she was, with her memory.
    ann.team(&["lead", "--model", "rehearsal", "-p", "Spawn carol (coder)."]);
    assert!(ann.transcript("lead").contains("It is on host gpu1"), "{}", ann.describe());
    machines.wait_known("carol", false);
    assert_eq!(ann.member("carol").unwrap()["host"], "gpu1");
}

#[test]
fn one_lead_serves_all_hosts() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut lead = ann.command("team");
    lead.args(["lead", "--model", "rehearsal"]);
    let mut lead = spawn_tied_quietly(lead);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    let second = gpu.team(&["lead", "--model", "rehearsal", "-p", "hello"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("its host is ann"), "{said}");
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    gpu.team_ok(&["send", "carol", "send lead \"from gpu1\""]);
    machines.eventually("the lead gets it", || ann.has_mail("lead", "from gpu1"));
    for child in [&mut lead, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn spawn_tied_quietly(mut command: Command) -> std::process::Child {
    // A lead ends with its input.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    spawn_tied(command).unwrap()
}

#[test]
fn mail_for_a_host_that_is_away_waits_and_the_sender_is_told() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    machines.network.cut("gpu1");
    machines.eventually("gpu1 is away", || {
        machines.get("ann").member("carol").unwrap()["away"] == json!(true)
    });
    let shown = machines.get("ann").team_ok(&["ls"]);
    assert!(shown.contains("? away"), "{shown}");
    let sent = machines.get("ann").team(&["send", "carol", "while away"]);
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success() && said.contains("gpu1 has been away for"), "{said}");
    // The relay waits for a sign of life: it does not look a thousand times a second.
    let before = machines.get("ann").relay_wakes();
    std::thread::park_timeout(Duration::from_secs(2));
    let wakes = machines.get("ann").relay_wakes() - before;
    assert!(wakes < 400, "{wakes} wakes in two seconds");
    machines.network.heal("gpu1");
    machines.eventually("it is delivered", || machines.get("gpu1").has_mail("carol", "while away"));
    machines.eventually("gpu1 is back", || {
        machines.get("ann").member("carol").unwrap()["away"] == json!(false)
    });
    // Without a relay, mail is accepted as well.
    assert_eq!(machines.get_mut("ann").end_relay(), Some(0));
    let sent = machines.get("ann").team(&["send", "carol", "without a relay"]);
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success() && said.contains("no relay runs on this host"), "{said}");
    machines.get_mut("ann").start_relay();
    machines.eventually("it is delivered once a relay runs", || {
        machines.get("gpu1").has_mail("carol", "without a relay")
    });
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_member_whose_news_is_lost_on_the_way_stays_on_the_rosters_of_the_others() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    machines.wait_known("carol", true);
    machines.network.cut("gpu1");
    carol.kill().unwrap();
    carol.wait().unwrap();
    machines.eventually("nobody can be told of her end", || {
        let log = fs::read_to_string(gpu.dir.relay_log()).unwrap();
        log.contains("the other hosts are not told of members")
    });
    // The names of the members, which are told next, arrive.
    machines.network.heal("gpu1");
    machines.eventually("her end is known, and she is a member all the time", || {
        let home = roster::read(&ann.dir).unwrap().home_of("carol");
        !home.expect("she is on the roster").is_alive
    });
}

#[test]
fn a_full_inbox_on_another_host_holds_up_mail_at_its_source_until_there_is_room() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let gpu = machines.get_mut("gpu1");
    gpu.kill_relay();
    let settings = gpu.folder().join(".team/settings.toml");
    fs::File::create(settings).unwrap().write_all(b"inbox_bytes = 4000\n").unwrap();
    gpu.start_relay();
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    signal(&carol, Signal::SIGSTOP);
    let text = |number: usize| format!("{number} {}", "x".repeat(300));
    for number in 0..40 {
        ann.team_ok(&["send", "carol", &text(number)]);
    }
    let waiting = || ann.waiting_for("gpu1");
    let inbox = gpu.folder().join(".team/inbox/carol.jsonl");
    let size = || fs::metadata(&inbox).map_or(0, |about| about.len());
    machines.eventually("the inbox is full, and the rest waits on ann", || {
        assert!(size() <= 4000);
        size() > 3000 && waiting().is_some_and(|count| (25..40).contains(&count))
    });
    signal(&carol, Signal::SIGCONT);
    machines.eventually("all of it arrives", || {
        assert!(size() <= 4000);
        gpu.has_mail("carol", &text(39))
    });
    let all = gpu.mail_of("carol").len();
    assert_eq!(all, 40);
    machines.eventually("nothing waits", || waiting() == Some(0));
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_relay_that_is_stopped_for_a_while_loses_nothing_and_a_second_one_does_not_start() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    // Both relays serve by then.
    machines.wait_known("carol", true);
    let second = ann.command("team-host").arg("run").output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        second.status.code() == Some(1) && said.contains("serves this folder already"),
        "{said}"
    );
    gpu.signal_relay(Signal::SIGSTOP);
    for number in 0..20 {
        ann.team_ok(&["send", "carol", &format!("number {number}.")]);
    }
    machines.eventually("gpu1 is away", || ann.member("carol").unwrap()["away"] == json!(true));
    gpu.signal_relay(Signal::SIGCONT);
    machines.eventually("all are delivered", || gpu.has_mail("carol", "number 19."));
    let mail = gpu.mail_of("carol");
    let numbers: Vec<_> =
        mail.iter().filter_map(|mail| mail["content"].as_str()?.strip_prefix("number ")).collect();
    let expected: Vec<_> = (0..20).map(|number| format!("{number}.")).collect();
    assert_eq!(numbers, expected);
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn the_whole_host_is_killed_and_its_members_are_shown_as_away() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    machines.get_mut("gpu1").kill_all();
    carol.wait().unwrap();
    machines.eventually("gpu1 is away", || {
        machines.get("ann").member("carol").unwrap()["away"] == json!(true)
    });
    machines.get("ann").team_ok(&["send", "carol", "for the next one"]);
    machines.get_mut("gpu1").start_relay();
    machines.wait_known("carol", false);
    // It was accepted: it waits in the inbox at its home for the next start, as on one host.
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.eventually("the next process has it", || {
        machines.get("gpu1").has_mail("carol", "for the next one")
    });
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_second_host_of_the_same_name_is_none_of_the_team_until_it_has_joined_in_its_place() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    let url = machines.server.url();
    let folder = machines.get("ann").folder().join("other");
    fs::create_dir(&folder).unwrap();
    let other = folder.join(".team").display().to_string();
    let second = |args: &[&str]| {
        let mut command = machines.get("ann").command("team-host");
        command.args(args).args(["--dir", &other]);
        command
    };
    let first_start = ["run", "--name", "gpu1", "--team", "demo", "--nats", &url];
    let refused = second(&first_start).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("whose hosts another one has signed in"), "{said}");
    machines.get("ann").team_ok(&["send", "carol", "still here"]);
    machines.eventually("the first one goes on", || {
        machines.get("gpu1").has_mail("carol", "still here")
    });
    let code = machines.get("ann").invitation("gpu1");
    let joined = second(&["join", &url, "--code", &code]).output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    let mut second = spawn_tied_quietly(second(&["run"]));
    let first = machines.get_mut("gpu1");
    assert_eq!(first.wait_relay(), Some(1), "it was replaced");
    let said = fs::read_to_string(first.folder().join("relay.err")).unwrap();
    assert!(said.contains("the certificate of host gpu1 was withdrawn"), "{said}");
    for child in [&mut second, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn wrong_arguments_have_words_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(program("team-host"))
            .args(args)
            .current_dir(folder.path())
            .env_remove("TEAM_DIR")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (args, words) in [
        (&["run"][..], "give it once: team-host run --name HOST"),
        (&["run", "--name", "GPU"], "is not a name of a host"),
        (&["run", "--name", "gpu", "--team", "a b"], "is not an id of a team"),
        (&["run", "--name", "gpu", "--team", "t"], "has no NATS server"),
        (&["walk"], "unrecognized subcommand"),
    ] {
        let (code, said) = run(args);
        assert!(code == Some(2) && said.contains(words), "{args:?}: {code:?} {said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?}");
    }
}

/// The relay may open fewer files than all mailboxes of the others would need.
#[test]
fn many_members_of_another_host_get_mail_though_few_files_may_be_open() {
    const MEMBERS: usize = 100;
    let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
    let lives = machines.get("b").play_members(MEMBERS);
    let sender = machines.get_mut("a");
    sender.kill_relay();
    let run = "ulimit -n 256 && exec \"$0\" run --name a";
    let relay = program("team-host").display().to_string();
    sender.relay_program = Some(("/bin/sh".into(), vec!["-c".into(), run.into(), relay]));
    sender.start_relay();
    machines.eventually("the sender's host knows all of them", || {
        let known = roster::read(&machines.get("a").dir).unwrap();
        known.members.iter().filter(|member| member.alive == Some(true)).count() == MEMBERS
    });
    machines.get("a").team_ok(&["broadcast", "to all of you"]);
    machines.eventually("all of them have it", || {
        lives.iter().all(|life| {
            let inbox = machines.get("b").dir.inbox(life.name());
            fs::read_to_string(inbox).is_ok_and(|text| text.contains("to all of you"))
        })
    });
    let log = fs::read_to_string(machines.get("a").dir.relay_log()).unwrap();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
