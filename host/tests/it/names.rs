//! One name is that of one agent on all hosts: it moves after an end, and of two that start at once one goes on.

use crate::machines::{DEADLINE, Machine, Machines};
use crate::rig::process::wait_until;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;

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
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    ann.team_ok(&["lead", "--model", "rehearsal", "-p", "hello"]);
    machines.eventually("gpu1 knows the end of the lead", || gpu.is_alive("lead") == Some(false));
    gpu.team_ok(&["lead", "--model", "rehearsal", "-p", "hello"]);
    machines.eventually("ann knows the lead on gpu1", || {
        ann.member("lead").is_some_and(|lead| lead["host"] == "gpu1" && lead["alive"] == false)
    });
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

/// The way of docs/machines.md, as long as there is no command for it.
#[test]
fn a_name_of_a_host_that_is_gone_for_good_is_taken_by_an_edit_of_two_files() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut gone = machines.get("gpu1").start_member("carol");
    wait_home(&machines, "carol", "gpu1");
    machines.get_mut("gpu1").kill_all();
    gone.wait().unwrap();
    let ann = machines.get_mut("ann");
    ann.end_relay();
    let edit = |path: PathBuf, change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        let mut file = File::options().write(true).truncate(true).open(path).unwrap();
        file.write_all(value.to_string().as_bytes()).unwrap();
    };
    edit(ann.dir.config(), &|config| {
        let members = config["members"].as_array_mut().unwrap();
        let carol = members.iter_mut().find(|member| member["name"] == "carol").unwrap();
        for field in ["host", "alive", "remote_pid", "away_since"] {
            carol.as_object_mut().unwrap().remove(field);
        }
    });
    let names = ann.folder().join(".team/run/.state/relay/names.json");
    File::create(&names).unwrap().write_all(b"{}").unwrap();
    edit(names, &|names| names["carol"] = 1000.into());
    let mut carol = ann.start_member("carol");
    machines.get_mut("ann").start_relay();
    let ann = machines.get("ann");
    machines.eventually("carol lives", || ann.is_alive("carol") == Some(true));
    // Longer than a doubtful name is waited for.
    assert!(!wait_until(DEADLINE / 6, || has_ended(&mut carol)), "carol has ended");
    ann.team_ok(&["send", "carol", "to the one that is left"]);
    machines.eventually("she gets mail", || ann.has_mail("carol", "to the one that is left"));
    end(&mut carol);
}
