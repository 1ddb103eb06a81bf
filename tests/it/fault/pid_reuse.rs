//! Reused pids: a pid in a file is signalled only if the process that wrote it still has it.

use crate::support::child_process::write;
use crate::support::harness::{Team, program};
use crate::support::scripts::headless;
use crate::support::skips::skipped;
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::process::{Child, Command};

/// An unrelated process, which must not be signalled.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    #[track_caller]
    fn assert_lives(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a bystander was ended");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// The start time of a process, field 22 of `/proc/PID/stat`.
fn start_time(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(19).unwrap().parse().unwrap()
}

/// Records that name another process, as after a reboot, a pid reuse or tampering.
fn records(bystander: i32) -> Vec<Value> {
    let me = i32::try_from(std::process::id()).unwrap();
    let record = |pid: i32, start: u64, boot: &str| json!({ "pid": pid, "start_time": start, "boot_id": boot, "incarnation": "x", "marker": "" });
    let mut all = vec![
        record(bystander, start_time(bystander) + 1, &boot_id()),
        record(bystander, start_time(bystander), "another-boot"),
        record(bystander, start_time(bystander), ""),
        record(bystander, 0, ""),
        json!({ "pid": bystander }),
    ];
    all.extend([1, me, 0, -1, i32::MIN, i32::MAX].map(|pid| record(pid, 0, &boot_id())));
    all.extend([0, -1].map(|pid| record(pid, 1, "")));
    all
}

fn roster(records: &[Value]) -> String {
    let members: Vec<Value> = records
        .iter()
        .enumerate()
        .map(|(i, record)| {
            json!({ "name": format!("m{i}"), "role": "r", "status": "working", "since": 1.0,
                "pid": record["pid"], "incarnation": "x", "model": "rehearsal", "mode": "bypass",
                "cwd": "/", "joined_at": 1.0, "restarts": 0, "started_by": "lead",
                "usage": { "turns": 0, "input_tokens": 0, "output_tokens": 0 }, "last_exit": null })
        })
        .collect();
    json!({ "version": 1, "team_name": "default", "created_at": 1.0, "members": members,
        "lead": { "name": "lead", "pid": -1, "incarnation": "y", "status": "working" } })
    .to_string()
}

/// A team whose roster and life locks hold these records.
fn planted(records: &[Value]) -> Team {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    fs::create_dir_all(team.path("run")).unwrap();
    for (i, record) in records.iter().enumerate() {
        write(&team.path(&format!("run/m{i}.lock")), record.to_string());
    }
    write(&team.path("config.json"), roster(records));
    team
}

#[test]
fn records_of_exited_processes_signal_no_process() {
    let mut bystander = Bystander::new();
    let records = records(bystander.pid());
    let team = planted(&records);
    team.team(&["ls", "--json"]).expect(0);
    team.team(&["stop", "--all", "--now"]).expect(0);
    bystander.assert_lives();
    let team = planted(&records);
    headless(&team, "rehearsal", "Hello.").expect(0);
    bystander.assert_lives();
    for i in 0..records.len() {
        assert_eq!(team.status(&format!("m{i}")), "failed");
    }
}

/// The copy from which a damaged roster is restored is not trusted either, regardless of its age.
#[test]
fn a_forged_copy_of_the_roster_signals_no_process_and_creates_nothing() {
    let mut bystander = Bystander::new();
    let records = records(bystander.pid());
    let team = planted(&records);
    let mut copy: Value = serde_json::from_str(&roster(&records)).unwrap();
    let members = copy["members"].as_array_mut().unwrap();
    for name in ["../x", "/etc/passwd", "lead", "Alice", "a\u{1b}[31m"] {
        let mut member = members[0].clone();
        member["name"] = name.into();
        members.push(member);
    }
    write(&team.path("config.json.bak"), copy.to_string());
    for damaged in ["", "{ torn", "[]"] {
        write(&team.path("config.json"), damaged);
        let ran = team.team(&["ls"]).expect(0);
        assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
        team.team(&["stop", "--all", "--now"]);
        bystander.assert_lives();
        headless(&team, "rehearsal", "Hello.").expect(0);
        bystander.assert_lives();
    }
    let outside = ["x", "x.lock", "x.jsonl"].map(|name| team.workspace().join(name).exists());
    assert_eq!(outside, [false; 3]);
    assert!(!team.path("run/lead.jsonl").exists() && !team.path("inbox/Alice.jsonl").exists());
}

/// The life locks are held, so the members count as alive. The processes in the records do not hold them and get
/// no signal.
#[test]
fn records_of_live_processes_signal_only_their_writers() {
    let mut bystander = Bystander::new();
    let records = records(bystander.pid());
    let team = planted(&records);
    let locks: Vec<_> = (0..records.len())
        .map(|i| {
            let file = File::open(team.path(&format!("run/m{i}.lock"))).unwrap();
            Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap()
        })
        .collect();
    team.team(&["ls", "--json"]).expect(0);
    let ran = team.team(&["stop", "--all", "--now"]).expect(1);
    assert_eq!(ran.out.matches(" is still there: ").count(), records.len(), "{ran:#?}");
    bystander.assert_lives();
    drop(locks);
}

/// In a new pid namespace, the kernel can be made to give the pid of a dead member to a new process.
#[test]
fn a_reused_pid_is_not_signalled() {
    const MEMBERS: usize = 20;
    let team = planted(&vec![json!({ "pid": 0 }); MEMBERS]);
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let possible = Command::new("unshare").args(unshare).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        skipped("no PID namespace may be made here");
        return;
    }
    let script = format!(
        r#"
        boot=$(cat /proc/sys/kernel/random/boot_id)
        bystander=
        for i in $(seq 0 {last}); do
            sleep 1000 & pid=$!
            start=$(cut -d' ' -f22 /proc/$pid/stat)
            kill -9 $pid; wait $pid 2>/dev/null
            sleep 0.03
            echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid || exit 9
            sleep 1000 & [ $! = $pid ] || exit 8
            bystander="$bystander $pid"
            printf '{{"pid":%s,"start_time":%s,"boot_id":"%s","incarnation":"x","marker":""}}' \
                $pid $start $boot > .team/run/m$i.lock
            exec {{fd}}< .team/run/m$i.lock; flock -x $fd
        done
        {team} stop --all --now >stopped 2>&1
        for pid in $bystander; do kill -0 $pid || exit 7; done
        exit 0
        "#,
        last = MEMBERS - 1,
        team = program("team").display(),
    );
    let mut inside = team.shell("");
    inside = {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["bash", "-c", &script]).current_dir(team.workspace());
        command.env_clear().envs(inside.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command
    };
    let output = inside.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = fs::read_to_string(team.workspace().join("stopped")).unwrap();
    assert_eq!(said.matches(" is still there: ").count(), MEMBERS, "{said}");
}
