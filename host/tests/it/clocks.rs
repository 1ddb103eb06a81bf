//! Hosts whose clocks are wrong by a day, ahead and behind. Nothing is decided by the clock of another host.

use crate::machines::{Machine, Machines};
use crate::rig::files::{temporary_folder, write_private};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that moves the clock of the programs by which it is loaded, and the times of files with it.
const CLOCK: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <time.h>
#define REAL(result, ...) static result (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, __func__)
int clock_gettime(clockid_t id, struct timespec *time) {
    REAL(int, clockid_t, struct timespec *);
    int result = real(id, time);
    if (result == 0 && id == CLOCK_REALTIME) time->tv_sec += (SECONDS);
    return result;
}
int statx(int folder, const char *path, int flags, unsigned mask, struct statx *known) {
    REAL(int, int, const char *, int, unsigned, struct statx *);
    int result = real(folder, path, flags, mask, known);
    if (result == 0) {
        known->stx_mtime.tv_sec += (SECONDS);
        known->stx_ctime.tv_sec += (SECONDS);
    }
    return result;
}
";

/// The seconds by which a clock is wrong.
const DAY: i32 = 24 * 60 * 60;

fn clock_off_by(seconds: i32, folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join(format!("clock{seconds}.so")));
    write_private(&source, CLOCK);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", &format!("-DSECONDS={seconds}"), "-o"]);
    let compiled = compiler.arg(&library).arg(&source).arg("-ldl").status().unwrap();
    assert!(compiled.success(), "the library is not compiled");
    library
}

/// Returns the time of a message by the clock of its sender's host, in seconds since 1970.
fn sent_at(recipient: &Machine, owner: &str, text: &str) -> f64 {
    let mail = recipient.mail_of(owner);
    let mail = mail.iter().find(|mail| mail["content"] == text);
    mail.and_then(|mail| mail["timestamp"].as_f64()).unwrap()
}

#[test]
fn hosts_whose_clocks_are_wrong_by_a_day_lose_no_mail_and_end_nobody() {
    let Some(mut machines) = Machines::or_skip(&["ann", "early", "late"]) else { return };
    let folder = temporary_folder();
    for (name, seconds) in [("early", -DAY), ("late", DAY)] {
        let library = clock_off_by(seconds, folder.path());
        machines.get_mut(name).kill_relay();
        machines.get_mut(name).preloaded = Some(library);
        // Its keys are signed anew, and the code is for an hour by the clock of ann.
        machines.get(name).join(machines.get("ann"));
        machines.get_mut(name).start_relay();
    }
    let members = [("ann", "alice"), ("early", "carol"), ("late", "dave")];
    let mut processes: Vec<_> =
        members.map(|(host, name)| machines.get(host).start_member(name)).into();
    for (_, name) in members {
        machines.wait_known(name, true);
    }

    for round in 0..3 {
        for ((host, from), (_, to)) in pairs(&members) {
            let text = format!("send {to} \"{round} of {from}\"");
            machines.get(host).team_ok(&["send", from, &text]);
        }
    }
    for ((_, from), (host, to)) in pairs(&members) {
        let mail =
            || machines.get(host).mail_of(to).into_iter().filter(|mail| mail["from"] == from);
        machines.eventually(&format!("{to} has all of {from}"), || mail().count() >= 3);
        let got: Vec<_> = mail().map(|mail| mail["content"].as_str().unwrap().to_owned()).collect();
        let expected: Vec<_> = (0..3).map(|round| format!("{round} of {from}")).collect();
        assert_eq!(got, expected, "from {from} to {to}");
    }
    let [of_early, of_late] =
        ["0 of carol", "0 of dave"].map(|text| sent_at(machines.get("ann"), "alice", text));
    let days = (of_late - of_early) / f64::from(DAY);
    assert!((1.9..2.1).contains(&days), "{days} days between them: their clocks are wrong");

    for name in ["early", "late"] {
        let away = |machines: &Machines| {
            machines
                .get("ann")
                .team_ok(&["host", "ls"])
                .lines()
                .any(|line| line.starts_with(name) && line.contains("away"))
        };
        machines.network.cut(name);
        machines.eventually(&format!("{name} is away"), || away(&machines));
        machines.network.heal(name);
        machines.eventually(&format!("{name} is back"), || !away(&machines));
    }
    // An order is carried out, whatever time it is there.
    for (_, name) in &members[1..] {
        assert_eq!(machines.get("ann").member(name).unwrap()["alive"], json!(true));
        let stopped = machines.get("ann").team_ok(&["stop", name]);
        assert!(stopped.contains("ended when asked"), "{stopped}");
        machines.wait_known(name, false);
    }
    for process in &mut processes {
        drop(process.kill());
        process.wait().unwrap();
    }
}

/// Returns every sender with every other member.
fn pairs<'a>(
    members: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = ((&'a str, &'a str), (&'a str, &'a str))> {
    members.iter().flat_map(move |from| {
        members.iter().filter(move |to| *to != from).map(move |to| (*from, *to))
    })
}
