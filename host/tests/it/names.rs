//! One name is that of one agent on all hosts: it moves after an end, and of two that start at once one goes on.

use crate::lead::Lead;
use crate::machines::{DEADLINE, Machine, Machines};
use crate::rig::process::wait_until;
use agent_team::store::dead;
use agent_team::wire::AgentName;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

fn end(child: &mut Child) {
    crate::rig::process::signal(child, Signal::SIGTERM);
    child.wait().unwrap();
}

/// Waits until all hosts show a member on this one.
fn wait_home(machines: &Machines, member: &str, host: &str) {
    let is_there = |machine: &Machine| {
        // A host without members of others does not name itself.
        let is_named =
            |it: &Value| it["host"] == host || (it["host"].is_null() && machine.name == host);
        machine
            .member(member)
            .is_some_and(|it| is_named(&it) && it["alive"] == true && it["status"] == "idle")
    };
    machines.eventually(&format!("{member} is on {host}"), || machines.all.iter().all(is_there));
}

#[test]
fn an_agent_that_has_ended_starts_on_another_host_and_gets_its_mail_there() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut carol = gpu.start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    ann.team_ok(&["send", "carol", "to the first"]);
    machines.eventually("the first carol gets mail", || gpu.has_mail("carol", "to the first"));
    end(&mut carol);
    machines.wait_known("carol", false);

    let mut carol = ann.start_member("carol");
    wait_home(&machines, "carol", "ann");
    gpu.team_ok(&["send", "carol", "to the second"]);
    machines.eventually("the second carol gets mail", || ann.has_mail("carol", "to the second"));
    assert!(!ann.has_mail("carol", "to the first"), "once is enough");
    // And back again.
    end(&mut carol);
    machines.wait_known("carol", false);
    let mut carol = gpu.start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    ann.team_ok(&["send", "carol", "to the third"]);
    machines.eventually("the third carol gets mail", || gpu.has_mail("carol", "to the third"));
    end(&mut carol);
    for machine in &machines.all {
        assert_eq!(machine.team_ok(&["ls"]).matches("carol").count(), 1);
    }
}

#[test]
fn the_lead_may_start_on_another_host_after_its_end() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let ann = machines.get_mut("ann");
    ann.limit("leads = [\"ann\", \"gpu1\"]\n");
    assert_eq!(ann.end_relay(), Some(0));
    ann.start_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("gpu1 hears ann", || gpu.team_ok(&["host", "ls"]).contains(" up "));
    ann.team_ok(&["lead", "--model", "rehearsal", "-p", "hello"]);
    machines.eventually("gpu1 knows the end of the lead", || gpu.is_alive("lead") == Some(false));
    gpu.team_ok(&["lead", "--model", "rehearsal", "-p", "hello"]);
    machines.eventually("ann knows the lead on gpu1", || {
        ann.member("lead").is_some_and(|lead| lead["host"] == "gpu1" && lead["alive"] == false)
    });
}

#[test]
fn the_name_of_a_lead_that_has_ended_where_none_may_be_is_not_asked_for_without_end() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let gpu = machines.get("gpu1");
    machines.eventually("gpu1 hears ann", || gpu.team_ok(&["host", "ls"]).contains(" up "));
    gpu.team_ok(&["lead", "--model", "rehearsal", "-p", "hello"]);
    let says = |what| fs::read_to_string(gpu.dir.relay_log()).unwrap_or_default().contains(what);
    machines.eventually("ann refuses the name", || says("may have the lead"));
    machines.eventually("gpu1 asks no more", || says("stays where it is"));
}

#[test]
fn a_name_of_a_host_that_is_away_is_not_taken() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    end(&mut carol);
    machines.wait_known("carol", false);
    machines.get_mut("gpu1").kill_relay();
    let ann = machines.get("ann");
    let is_away = || ann.member("carol").is_some_and(|carol| carol["away_since"].is_number());
    machines.eventually("gpu1 is away", is_away);
    let refused = |why: &str| {
        let output = machines.get("ann").team(&["teammate", "carol", "--model", "rehearsal"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    refused("gpu1 is not heard");
    refused("team host give-up gpu1");
    machines.get_mut("gpu1").start_relay();
    machines.eventually("gpu1 is back", || {
        machines.get("ann").member("carol").is_some_and(|carol| carol["away_since"].is_null())
    });
    machines.get_mut("ann").kill_relay();
    let output = machines.get("ann").team(&["teammate", "carol", "--model", "rehearsal"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no relay runs here to hear it"), "{said}");
}

#[test]
fn of_two_agents_that_start_with_one_name_one_goes_on_and_the_other_is_told() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines.network.cut("gpu1");
    let mut of_ann = machines.get("ann").start_member("carol");
    let mut of_gpu = machines.get("gpu1").start_member("carol");
    for host in ["ann", "gpu1"] {
        machines
            .eventually("carol is alive", || machines.get(host).is_alive("carol") == Some(true));
    }
    machines.network.heal("gpu1");
    let mut ended = || (has_ended(&mut of_ann), has_ended(&mut of_gpu));
    machines.eventually("one of them ends", || ended() != (false, false));
    let home = if ended() == (false, true) { "ann" } else { "gpu1" };
    wait_home(&machines, "carol", home);
    let other = if home == "ann" { "gpu1" } else { "ann" };
    let told = machines.get(other).transcript("carol");
    assert!(told.contains(&format!("carol belongs to host {home}")), "{told}");
    machines.get(other).team_ok(&["send", "carol", "to the one"]);
    machines
        .eventually("mail reaches the one", || machines.get(home).has_mail("carol", "to the one"));
    // Both ends are not one.
    assert!(!wait_until(DEADLINE / 20, || ended() == (true, true)), "both have ended");
    for carol in [&mut of_ann, &mut of_gpu] {
        if !has_ended(carol) {
            end(carol);
        }
    }
}

#[test]
fn a_server_that_forgets_all_names_ends_nobody() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    end(&mut carol);
    machines.wait_known("carol", false);
    machines.server.snapshot();
    // Her second home, which an older state of the server does not know.
    let mut carol = machines.get("ann").start_member("carol");
    wait_home(&machines, "carol", "ann");
    machines.server.roll_back();
    machines.get("gpu1").team_ok(&["send", "carol", "after the roll-back"]);
    machines.eventually("mail reaches her", || {
        machines.get("ann").has_mail("carol", "after the roll-back")
    });
    machines.server.forget_everything();
    machines.get("gpu1").team_ok(&["send", "carol", "after the loss"]);
    machines
        .eventually("mail reaches her", || machines.get("ann").has_mail("carol", "after the loss"));
    // Longer than a doubtful name is waited for.
    assert!(!wait_until(DEADLINE / 6, || has_ended(&mut carol)), "carol has ended");
    wait_home(&machines, "carol", "ann");
    end(&mut carol);
}

/// Waits until a host misses another one.
fn wait_away(machines: &Machines, on: &str, away: &str) {
    machines
        .eventually(&format!("{away} is away"), || state_on(machines.get(on), away).0 == "away");
}

/// Returns the first word of the state of a host, as another one shows it, and the number of messages that wait.
fn state_on(on: &Machine, host: &str) -> (String, u64) {
    let shown: Value = serde_json::from_str(&on.team_ok(&["host", "ls", "--json"])).unwrap();
    let hosts = shown["hosts"].as_array().unwrap();
    let host = hosts.iter().find(|it| it["host"] == host).cloned().unwrap_or_default();
    let state = host["state"].as_str().unwrap_or_default();
    let word =
        if state == "given up" { state } else { state.split(' ').next().unwrap_or_default() };
    (word.to_owned(), host["waiting"].as_u64().unwrap_or_default())
}

/// Returns the members of a host, as `team host ls` shows them on another one.
fn members_on(on: &Machine, host: &str) -> Vec<String> {
    let shown: Value = serde_json::from_str(&on.team_ok(&["host", "ls", "--json"])).unwrap();
    let rows = shown["hosts"].as_array().unwrap();
    let members = rows.iter().filter(|row| row["host"] == host).map(|row| row["members"].clone());
    members.flat_map(|names| serde_json::from_value::<Vec<String>>(names).unwrap()).collect()
}

/// Returns what a command says that is refused.
fn refused(machine: &Machine, args: &[&str]) -> String {
    let output = machine.team(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "team {args:?} is not refused");
    said
}

/// Returns the dead letters of a name on a host.
fn dead_letters(machine: &Machine, name: &str) -> Vec<(String, String)> {
    let name = AgentName::mailbox(name).unwrap();
    let letters = dead::read_all(&machine.dir, &name).unwrap();
    letters.into_iter().map(|it| (it.reason, it.raw.unwrap_or_default())).collect()
}

/// The fault of which fencing is made: a member is placed anew while its host goes on without a connection.
#[test]
fn an_agent_that_was_replaced_during_a_partition_is_ended_and_its_lines_are_refused() {
    replace_again_and_again(1);
}

/// Starts an agent anew on another host while its own one is cut off, so many times: there and back. Returns how long the one
/// before has lived on after each partition.
pub(crate) fn replace_again_and_again(times: usize) -> Vec<Duration> {
    let Some(machines) = Machines::or_skip(&["ann", "c1", "gpu1"]) else { return Vec::new() };
    let mut alice = machines.get("ann").start_member("alice");
    let mut carol = start_free(machines.get("gpu1"));
    wait_home(&machines, "alice", "ann");
    let hosts = [("gpu1", "c1"), ("c1", "gpu1")];
    let mut ends = Vec::new();
    for (term, (old, new)) in (1..=times).zip(hosts.into_iter().cycle()) {
        let lived_on;
        (carol, lived_on) = replace(&machines, carol, term, (old, new));
        ends.push(lived_on);
    }
    let mail = machines.get("ann").mail_of("alice");
    let heard: Vec<_> =
        mail.iter().filter(|it| it["from"] == "carol").map(|it| it["content"].clone()).collect();
    let expected = (1..=times).flat_map(|term| [format!("before {term}"), format!("anew {term}")]);
    assert_eq!(heard, expected.collect::<Vec<_>>());
    end(&mut carol);
    end(&mut alice);
    ends
}

/// Starts carol so that she may run commands.
fn start_free(machine: &Machine) -> Child {
    machine.start_member_with("carol", &["--mode", "bypass"])
}

/// Whether a process runs whose name in `ps` is this text.
fn runs(name: &str) -> bool {
    let is_it = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(name.as_bytes())
    };
    fs::read_dir("/proc").unwrap().flatten().any(is_it)
}

/// Places carol anew once. Returns the new process, and how long the old one has lived on after the partition.
fn replace(
    machines: &Machines,
    mut displaced: Child,
    term: usize,
    (old_host, new_host): (&str, &str),
) -> (Child, Duration) {
    let ann = machines.get("ann");
    let (old, new) = (machines.get(old_host), machines.get(new_host));
    wait_home(machines, "carol", old_host);
    ann.team_ok(&["send", "carol", &format!("send alice \"before {term}\"")]);
    let before = format!("before {term}");
    machines.eventually("carol's word arrives", || ann.has_mail("alice", &before));
    machines.eventually("her host knows that", || state_on(old, "ann").1 == 0);
    machines.network.cut(old_host);
    wait_away(machines, "ann", old_host);
    let said = ann.team_ok(&["host", "give-up", old_host]);
    let given_up = format!("{old_host} is given up");
    assert!(said.contains(&given_up) && said.contains("carol: no message"), "{said}");
    machines.eventually("the third host knows it", || state_on(new, old_host).0 == "given up");
    let mut carol = start_free(new);
    machines.eventually("carol is there", || {
        ann.member("carol").is_some_and(|it| it["host"] == new_host && it["alive"] == true)
    });
    // In its partition, the old one goes on.
    assert!(!has_ended(&mut displaced));
    let refused_before = dead_letters(old, "alice").len();
    for text in [format!("of the old one {term}"), format!("and once more {term}")] {
        old.team_ok(&["send", "carol", &format!("send alice \"{text}\"")]);
        machines.eventually("the old one has written", || {
            state_on(old, "ann").1 > 0 && old.has_mail("carol", &text)
        });
    }
    // The word of before may be with them, if its acknowledgement was cut off.
    machines.eventually("both wait", || state_on(old, "ann").1 >= 2);
    // It is in the midst of a command, whose process has a session of its own.
    let folder = old.folder().file_name().unwrap().to_str().unwrap();
    let stray = format!("stray-{folder}-{term}");
    let command = format!("setsid --wait bash -c 'exec -a {stray} sleep 3600'");
    old.team_ok(&["send", "carol", &format!("Run \"{command}\".")]);
    machines.eventually("its command runs", || runs(&stray));
    machines.network.heal(old_host);
    let healed = Instant::now();
    machines.eventually("the old one ends with its strays", || {
        has_ended(&mut displaced) && !runs(&stray)
    });
    let lived_on = healed.elapsed();
    let refused = || dead_letters(old, "alice").split_off(refused_before);
    machines.eventually("its lines are dead letters", || refused().len() == 2);
    for (reason, line) in refused() {
        let why = format!("a carol that was replaced (term {term} of {})", term + 1);
        assert!(reason.contains(&why), "{reason}: {line}");
    }
    wait_home(machines, "carol", new_host);
    old.team_ok(&["send", "carol", &format!("send alice \"anew {term}\"")]);
    let anew = format!("anew {term}");
    machines.eventually("the new one answers", || ann.has_mail("alice", &anew));
    machines.eventually("it is a host again", || state_on(ann, old_host).0 == "up");
    assert!(!has_ended(&mut carol));
    (carol, lived_on)
}

#[test]
fn the_names_of_a_host_that_was_given_up_are_free_and_mail_that_waits_follows() {
    let Some(mut machines) = Machines::or_skip(&["ann", "c1", "gpu1"]) else { return };
    let mut gone: Vec<_> = ["carol", "dave", "erin"]
        .iter()
        .map(|name| machines.get("gpu1").start_member(name))
        .collect();
    for name in ["carol", "dave", "erin"] {
        wait_home(&machines, name, "gpu1");
    }
    machines.get_mut("gpu1").kill_all();
    for child in &mut gone {
        child.wait().unwrap();
    }
    for name in ["ann", "c1"] {
        wait_away(&machines, name, "gpu1");
    }
    let (ann, other) = (machines.get("ann"), machines.get("c1"));
    ann.team_ok(&["send", "carol", "one from ann"]);
    ann.team_ok(&["send", "carol", "two from ann"]);
    ann.team_ok(&["send", "dave", "to dave"]);
    other.team_ok(&["send", "carol", "three from c1"]);
    assert!(refused(ann, &["teammate", "carol", "--model", "rehearsal"]).contains("gpu1"));
    let said = ann.team_ok(&["host", "give-up", "gpu1"]);
    for line in ["carol: 2 messages wait", "dave: 1 message waits", "erin: no message waits"] {
        assert!(said.contains(line), "{said}");
    }
    let shown = ann.team_ok(&["host", "ls"]);
    for part in ["given up", "carol", "dave", "erin"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    machines.eventually("c1 knows it", || state_on(other, "gpu1").0 == "given up");
    for machine in [ann, other] {
        let said = refused(machine, &["send", "erin", "to nobody"]);
        assert!(said.contains("is on gpu1, which was given up"), "{said}");
    }
    // One starts on the host of a sender, one on a third host.
    let mut carol = ann.start_member("carol");
    let mut dave = other.start_member("dave");
    let has_all = || {
        let texts = ["one from ann", "two from ann", "three from c1"];
        texts.iter().all(|text| ann.has_mail("carol", text)) && other.has_mail("dave", "to dave")
    };
    machines.eventually("mail that waited follows", has_all);
    ann.team_ok(&["send", "dave", "later"]);
    machines.eventually("dave gets mail", || other.has_mail("dave", "later"));
    other.team_ok(&["send", "carol", "later"]);
    machines.eventually("carol gets mail", || ann.has_mail("carol", "later"));
    assert_eq!((ann.mail_of("carol").len(), other.mail_of("dave").len()), (4, 2), "each once");
    machines.eventually("nothing waits", || state_on(ann, "gpu1").1 == 0);
    // It holds over an end of both relays, and longer than a doubtful name is waited for.
    for name in ["ann", "c1"] {
        machines.get_mut(name).kill_relay();
        machines.get_mut(name).start_relay();
    }
    let ended = || has_ended(&mut carol) || has_ended(&mut dave);
    assert!(!wait_until(DEADLINE / 6, ended), "{}", machines.get("ann").describe());
    machines.get("c1").team_ok(&["send", "carol", "after the restart"]);
    machines
        .eventually("carol gets it", || machines.get("ann").has_mail("carol", "after the restart"));
    let said = refused(machines.get("ann"), &["send", "erin", "to nobody"]);
    assert!(said.contains("is on gpu1, which was given up"), "{said}");
    end(&mut carol);
    end(&mut dave);
}

#[test]
fn only_a_known_host_that_is_not_heard_is_given_up() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    let ann = machines.get("ann");
    machines.eventually("gpu1 is up", || state_on(ann, "gpu1").0 == "up");
    let said = refused(ann, &["host", "give-up", "gpu1"]);
    assert!(said.contains("gpu1 cannot be given up") && said.contains("it is up"), "{said}");
    let said = refused(ann, &["host", "give-up", "gpu"]);
    assert!(said.contains("did you mean gpu1?") && said.contains("hosts are: gpu1"), "{said}");
    assert!(refused(ann, &["host", "give-up", "ann"]).contains("it is this host"));
    // Without a relay nobody knows; the host is heard later, and is not given up.
    machines.get_mut("ann").end_relay();
    let said = machines.get("ann").team_ok(&["host", "give-up", "gpu1"]);
    assert!(said.contains("No relay runs here"), "{said}");
    assert_eq!(state_on(machines.get("ann"), "gpu1").0, "given up");
    machines.get_mut("ann").start_relay();
    machines.eventually("gpu1 is up", || state_on(machines.get("ann"), "gpu1").0 == "up");
    machines.get("ann").team_ok(&["send", "carol", "still there"]);
    machines.eventually("carol gets it", || machines.get("gpu1").has_mail("carol", "still there"));
    assert!(!has_ended(&mut carol));
    end(&mut carol);
}

#[test]
fn a_host_that_comes_back_after_it_was_given_up_is_a_host_again() {
    let Some(mut machines) = Machines::or_skip(&["ann", "c1", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    machines.network.cut("gpu1");
    wait_away(&machines, "ann", "gpu1");
    machines.get("ann").team_ok(&["send", "carol", "while away"]);
    machines.get("ann").team_ok(&["host", "give-up", "gpu1"]);
    let is_given_up = |on: &str| state_on(machines.get(on), "gpu1").0 == "given up";
    machines.eventually("c1 knows it", || is_given_up("c1"));
    assert!(refused(machines.get("ann"), &["send", "carol", "x"]).contains("was given up"));
    let doctor = machines.get("ann").team(&["doctor"]).stdout;
    assert!(!String::from_utf8_lossy(&doctor).contains("gpu1"), "nothing waits for it");
    // The host that has given it up does not hear it at first.
    machines.get_mut("ann").kill_relay();
    machines.network.heal("gpu1");
    machines.eventually("c1 has it again", || state_on(machines.get("c1"), "gpu1").0 == "up");
    machines.get_mut("ann").start_relay();
    machines.eventually("ann has it again", || state_on(machines.get("ann"), "gpu1").0 == "up");
    machines.eventually("mail arrives", || machines.get("gpu1").has_mail("carol", "while away"));
    wait_home(&machines, "carol", "gpu1");
    let said = refused(machines.get("ann"), &["teammate", "carol", "--model", "rehearsal"]);
    assert!(said.contains("its host is gpu1"), "{said}");
    // Away again is not given up again.
    machines.network.cut("gpu1");
    wait_away(&machines, "ann", "gpu1");
    wait_away(&machines, "c1", "gpu1");
    let doctor = machines.get("ann").team(&["doctor"]).stdout;
    let said = String::from_utf8_lossy(&doctor);
    assert!(said.contains("this one is ann; up: c1") && said.contains("gpu1: away for"), "{said}");
    machines.network.heal("gpu1");
    wait_home(&machines, "carol", "gpu1");
    assert!(!has_ended(&mut carol));
    assert_eq!(members_on(machines.get("ann"), "gpu1"), ["carol"]);
    end(&mut carol);
    machines.eventually("nobody is on gpu1 any more", || {
        members_on(machines.get("ann"), "gpu1").is_empty()
    });
}

#[test]
fn the_lead_is_told_once_that_a_host_is_away_and_once_that_it_was_given_up() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut lead = Lead::start(machines.get("ann"), &[]);
    machines
        .eventually("gpu1 knows the lead", || machines.get("gpu1").is_alive("lead") == Some(true));
    lead.say("Spawn carol (trainer) on gpu1.");
    wait_home(&machines, "carol", "gpu1");
    machines.get_mut("gpu1").kill_all();
    let ann = machines.get("ann");
    let told = || {
        let mail = ann.mail_of("lead").into_iter().filter(|mail| mail["from"] == "system");
        mail.map(|mail| mail["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    machines.eventually("the lead is told", || !told().is_empty());
    assert!(told()[0].starts_with("Away, and not heard any more: gpu1 (carol)."), "{:?}", told());
    ann.team_ok(&["host", "give-up", "gpu1"]);
    machines.eventually("the lead is told of that, too", || told().len() == 2);
    assert!(told()[1].starts_with("gpu1 was given up by the user. It had: carol."), "{:?}", told());
    lead.say("Spawn carol (trainer).");
    machines.eventually("carol runs here", || {
        let carol = ann.member("carol").unwrap();
        carol["host"].is_null() && carol["alive"] == true
    });
    assert_eq!(told().len(), 2);
    assert_eq!(lead.quit(), Some(0), "{}", ann.describe());
}
