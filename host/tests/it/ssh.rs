//! A second host in one command, over a real `ssh`: set-up, mail through the tunnel, kills, and the wrong things.

use crate::machines::program;
use crate::pair::{Pair, text};
use crate::rig::process::{signal, spawn_tied};
use agent_team::store::TeamDir;
use agent_team::store::relay::host_keys;
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_teammate_that_a_lead_starts_over_ssh_outlives_the_connection_and_ends_with_the_host() {
    let Some(mut pair) = Pair::or_skip() else { return };
    let label = ["--label", "gpu"];
    let add = ["host", "add", "gpu1", "--here", "ann", "--team", "demo"];
    pair.team_ok(&[&add[..], &label].concat());
    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    pair.eventually("its label is known", || pair.team_ok(&["host", "ls"]).contains(" gpu "));
    lead.stdin.as_mut().unwrap().write_all(b"Spawn carol (trainer) on gpu.\n").unwrap();
    pair.eventually("carol is on the roster", || pair.knows_carol());
    let runs = |pair: &Pair, name: &str| {
        let processes = pair.network.host("gpu1").processes();
        let is_it = |pid: &nix::unistd::Pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name)
        };
        processes.into_iter().find(is_it)
    };
    let carol = runs(&pair, "teammate").unwrap();

    pair.ssh.kill();
    pair.eventually("the relay there has ended", || runs(&pair, "team-host").is_none());
    pair.team_ok(&["send", "carol", "without ssh"]);
    pair.ssh.start();
    pair.eventually("mail that waited for ssh arrives", || pair.carol_has("without ssh"));
    assert_eq!(runs(&pair, "teammate"), Some(carol), "she has gone on");

    pair.eventually("gpu1 is heard again", || pair.is_heard());
    let said = pair.team_ok(&["host", "rm", "gpu1"]);
    assert!(said.contains("carol ended"), "{said}");
    pair.eventually("nobody is on a removed host", || {
        !pair.team_ok(&["host", "ls"]).contains("gpu1")
    });
    pair.eventually("nothing of the team runs on gpu1", || {
        ["teammate", "team-supervise", "team-host"].iter().all(|name| runs(&pair, name).is_none())
    });
    lead.kill().unwrap();
    lead.wait().unwrap();
    pair.eventually("nothing runs after the lead", || pair.is_quiet());
    // Somebody else may have its keys: it comes back with new ones.
    let before = signing_key(&pair);
    pair.add();
    let after = signing_key(&pair);
    assert_ne!(before, after);
    pair.add();
    assert_eq!(signing_key(&pair), after, "a host that is signed in keeps its keys");
}

/// Returns the addresses on which programs of a host listen for others than itself, as the kernel writes them.
fn open_ports(pair: &Pair, host: &str) -> Vec<String> {
    let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let text = pair.network.host(host).enter(|| [read("tcp"), read("tcp6")].concat());
    let listeners = text.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then(|| words[1].to_owned())
    });
    let is_loopback = |at: &String| {
        at.starts_with("0100007F:") || at.starts_with("00000000000000000000000001000000:")
    };
    listeners.filter(|at| !is_loopback(at)).collect()
}

/// Whether a program of the team runs on gpu1.
fn runs_on_gpu1(pair: &Pair) -> bool {
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pair.network.host("gpu1").processes().into_iter().any(|pid| name(pid).starts_with("team"))
}

/// Returns the secret key by which gpu1 signs.
fn signing_key(pair: &Pair) -> String {
    let team = pair.ssh.home().join(".team-hosts/demo/.team");
    host_keys(&TeamDir::look(&team).unwrap()).unwrap().unwrap().signing
}

#[test]
fn a_host_is_added_in_one_command_and_mail_goes_through_kills_of_ssh_server_and_relay() {
    let Some(mut pair) = Pair::or_skip() else { return };
    let said = pair.add();
    assert!(said.contains("gpu1 is a host of team demo; this one is ann"), "{said}");
    assert!(said.contains("/team teammate NAME'") && said.contains("team lead"), "{said}");
    assert!(pair.is_quiet(), "nothing runs without a lead");

    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    // Once more, while it is up: nothing is made anew.
    pair.add();
    assert_eq!(open_ports(&pair, "ann"), Vec::<String>::new(), "all is on loopback");
    assert_eq!(open_ports(&pair, "gpu1").len(), 1, "that of ssh");
    let mut carol = pair.start_carol();
    pair.eventually("carol is on the roster", || pair.knows_carol());
    pair.team_ok(&["send", "carol", "the first"]);
    pair.eventually("the first mail arrives", || pair.carol_has("the first"));

    pair.ssh.kill();
    pair.team_ok(&["send", "carol", "without ssh"]);
    pair.ssh.start();
    pair.eventually("mail that waited for ssh arrives", || pair.carol_has("without ssh"));

    let processes = pair.network.host("ann").processes();
    let named = |name: &str| {
        let is_named = |pid: &&nix::unistd::Pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name)
        };
        *processes.iter().find(is_named).unwrap()
    };
    nix::sys::signal::kill(named("nats-server"), Signal::SIGKILL).unwrap();
    pair.team_ok(&["send", "carol", "without a server"]);
    pair.eventually("mail that waited for the server", || pair.carol_has("without a server"));
    nix::sys::signal::kill(named("team-host"), Signal::SIGKILL).unwrap();
    pair.team_ok(&["send", "carol", "without a relay"]);
    pair.eventually("mail that waited for the relay arrives", || pair.carol_has("without a relay"));

    // The lead's end is that of all of it; the member on the other host stays.
    drop(lead.stdin.take());
    assert!(lead.wait().unwrap().success());
    assert!(pair.is_quiet(), "the lead leaves nothing behind");
    let shown = pair.team_ok(&["ls"]);
    assert!(shown.contains("No relay runs on this host"), "{shown}");
    let waits = pair.team(&["send", "carol", "for later"]);
    assert!(text(&waits.stderr).contains("once `team lead`"), "{}", text(&waits.stderr));
    let found = text(&pair.team(&["doctor"]).stdout);
    assert!(!found.contains("carol is listed") && !found.contains("other users"), "{found}");

    // A lead that is killed leaves nothing either.
    let mut lead = pair.start_lead();
    pair.eventually("mail for later arrives", || pair.carol_has("for later"));
    lead.kill().unwrap();
    lead.wait().unwrap();
    pair.eventually("nothing is left behind", || pair.is_quiet());
    signal(&carol, Signal::SIGTERM);
    carol.wait().unwrap();
}

#[test]
fn a_lead_that_is_killed_takes_the_teammates_on_a_host_that_it_has_added_with_it() {
    let Some(pair) = Pair::or_skip() else { return };
    pair.add();
    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    lead.stdin.as_mut().unwrap().write_all(b"Spawn carol (trainer) on gpu1.\n").unwrap();
    pair.eventually("carol is on the roster", || pair.knows_carol());
    lead.kill().unwrap();
    lead.wait().unwrap();
    // It is not waited until that host has not heard the lead for ten minutes.
    pair.eventually("nothing runs on either host", || pair.is_quiet() && !runs_on_gpu1(&pair));
}

/// As a person does who forgot a label, or has removed the wrong host.
#[test]
fn a_host_is_added_again_with_a_label_and_after_its_removal_while_a_lead_runs() {
    let Some(pair) = Pair::or_skip() else { return };
    pair.add();
    let mut lead = pair.start_lead();
    pair.eventually("gpu1 is heard", || pair.is_heard());
    let add = |label: &str| pair.team_ok(&["host", "add", "gpu1", "--label", label]);
    let has_label = |label: &str| {
        let shown = pair.team_ok(&["host", "ls"]);
        shown.contains(&format!(" {label} ")) && shown.contains(" up ")
    };
    assert!(add("gpu").contains("relay heard"), "with a label");
    pair.eventually("its label is known", || has_label("gpu"));
    for label in ["big", "bigger"] {
        pair.team_ok(&["host", "rm", "gpu1"]);
        assert!(add(label).contains("relay heard"), "after its removal");
        pair.eventually("its label is known", || has_label(label));
    }
    lead.kill().unwrap();
    lead.wait().unwrap();
    pair.eventually("nothing is left behind", || pair.is_quiet());
}

#[test]
fn a_host_without_the_programs_gets_copies() {
    let Some(pair) = Pair::bare_or_skip() else { return };
    let own = pair.folder.path().join("own");
    fs::create_dir(&own).unwrap();
    for name in ["team", "team-host"] {
        // The programs of the tests are large with what they hold for a debugger.
        let strip = Command::new("strip").arg("-o").arg(own.join(name)).arg(program(name)).status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(program(name), own.join(name)).unwrap();
        }
    }
    let mut add = pair.on_ann(&own.join("team"));
    let added =
        add.args(["host", "add", "gpu1", "--team", "demo", "--folder", "it's here"]).output();
    let added = added.unwrap();
    let said = text(&added.stdout);
    assert!(added.status.success(), "{said}{}", text(&added.stderr));
    assert!(said.contains("programs copied"), "{said}");
    let home = pair.ssh.home();
    assert!(home.join("it's here/.team/run/.state/relay/host.json").exists());
    for name in ["team", "team-host"] {
        assert!(Command::new(home.join(".local/bin").join(name)).arg("--version").output().is_ok());
    }
    // They are found the second time.
    let again = pair.team_ok(&["host", "add", "gpu1", "--folder", "it's here"]);
    assert!(again.contains("team-host 0.1.0 is there"), "{again}");
    assert!(pair.is_quiet());
}

#[test]
fn a_host_is_not_added_by_a_command_that_is_interrupted() {
    let Some(pair) = Pair::or_skip() else { return };
    // A server that never serves: no relay is heard.
    let server = pair.folder.path().join("nats-server");
    let script =
        "#!/bin/sh\n[ \"$1\" = -v ] && echo 'nats-server: v2.15.1' && exit\nexec sleep 600\n";
    File::create(&server).unwrap().write_all(script.as_bytes()).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let mut add = pair.on_ann(&program("team"));
    add.args(["host", "add", "gpu1", "--here", "ann", "--team", "demo"]);
    add.env("TEAM_NATS_SERVER", &server).stdout(Stdio::null()).stderr(Stdio::piped());
    let add = spawn_tied(add).unwrap();
    let is_listed = || {
        let list = pair.project().join(".team/run/.state/relay/ssh.json");
        fs::read_to_string(list).is_ok_and(|list| list.contains("gpu1"))
    };
    pair.eventually("gpu1 is on the list", is_listed);
    signal(&add, Signal::SIGINT);
    let output = add.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("error: gpu1 is not added\n  why: the command was interrupted"),
        "{said}"
    );
    assert!(!is_listed());
    pair.eventually("nothing is left", || pair.is_quiet());
}

#[test]
fn a_host_that_cannot_be_added_is_not_added_and_the_reason_is_said() {
    let Some(mut pair) = Pair::or_skip() else { return };
    for (destination, why) in [
        ("nowhere", "nowhere cannot be reached over ssh\n  why: "),
        ("a b", "is not a host for ssh"),
    ] {
        let said = pair.refusal(&["host", "add", destination]);
        assert!(said.contains(why), "{said}");
    }
    assert!(!pair.project().join(".team").exists(), "a refusal changes nothing");
    let said = pair.refusal(&["host", "add", "gpu1", "--here", "gpu1"]);
    assert!(said.contains("this host is named gpu1, too"), "{said}");
    let said = pair.refusal(&["host", "rm", "gpu1"]);
    let why =
        "error: gpu1 cannot be removed\n  why: no host of this name was added or has joined here";
    assert!(said.contains(why) && said.contains("\n  now: "), "{said}");
    pair.add();
    let said = pair.refusal(&["host", "add", "gpu1", "--folder", "elsewhere"]);
    assert!(said.contains("a host is named gpu1 already"), "{said}");
    let said = pair.refusal(&["host", "add", "gpu1", "--here", "bob"]);
    assert!(said.contains("this host is named ann"), "{said}");
    let said = pair.refusal(&["host", "add", "gpu1", "--name", "gpu2"]);
    assert!(said.contains("its folder is that of host gpu1"), "{said}");
    assert!(!pair.team_ok(&["host", "ls"]).contains("gpu2"));

    pair.ssh.kill();
    let said = pair.refusal(&["host", "add", "gpu1"]);
    assert!(said.contains("cannot be reached over ssh") && said.contains("refused"), "{said}");
    let mut lead = pair.start_lead();
    pair.eventually("the reason is shown", || {
        let shown = pair.team_ok(&["host", "ls"]);
        shown.contains("no connection over ssh: ") && shown.contains("refused")
    });
    pair.ssh.start();
    pair.eventually("gpu1 is heard by itself", || pair.is_heard());
    let removed = pair.team_ok(&["host", "rm", "gpu1"]);
    assert!(
        removed.contains("gpu1 is no host of this team any more: its keys are withdrawn"),
        "{removed}"
    );
    pair.eventually("the relay on gpu1 ends", || !runs_on_gpu1(&pair));
    let shown = pair.team_ok(&["host", "ls"]);
    assert!(!shown.contains("gpu1"), "it had nobody: {shown}");
    drop(lead.stdin.take());
    lead.wait().unwrap();
    assert!(pair.is_quiet());
}
