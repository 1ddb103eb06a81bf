//! R11: a disk that is full for a while. No process is restarted and no acknowledged mail is lost; mail and
//! work continue when there is space again.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::mount::{Mounted, fill};
use crate::support::harness::Team;
use crate::support::scripts::{bash, calls, says, script, wait_file};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TARGET: &str = "the same processes go on, 0 lost, no command twice";

/// The text of bob's last report.
const DONE: &str = "bob has done it all";

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let time = Duration::from_secs(run.of(2, 15, 60));
    let measure = format!(
        "a disk that is full for {} s and then is not; bob's command ends meanwhile",
        time.as_secs()
    );
    let team = Team::new();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(team.workspace());
    match Mounted::by(&mut mount, team.workspace()) {
        Err(why) => vec![Finding::skipped(&measure, TARGET, &why)],
        Ok(mounted) => {
            let finding = fill_and_free(&team, time, &measure);
            drop(mounted);
            vec![finding]
        }
    }
}

fn fill_and_free(team: &Team, time: Duration, measure: &str) -> Finding {
    let mut alice = member(team, "alice", "rehearsal", &[]);
    team.wait_status("alice", "idle");
    // The end of this empty file ends bob's command: on a full disk no file can be made for it.
    let stays = team.workspace().join("stays");
    File::create(&stays).unwrap();
    // The output is too long for the free part of the last page of a file.
    let command = "echo >> ran; while [ -e stays ]; do sleep 0.1; done; yes | head -c 20000";
    let model = script(team, &[calls("bob", &[bash(command)]), says("bob", DONE)]);
    let mut bob = member(team, "bob", &model, &["--prompt", "begin"]);
    wait_file(team, "ran");
    let mut acked = Vec::new();
    let mut refused = 0;
    let mut send = |text: String| {
        let ran = team.team(&["send", "alice", &text]);
        if ran.code == Some(0) {
            acked.push(text);
        } else {
            assert!(ran.err.contains("No space left"), "it says why: {ran:#?}");
            refused += 1;
        }
    };
    send("before".into());
    let filler = team.workspace().join("filler");
    fill(&filler);
    let until = Instant::now() + time;
    let mut n = 0;
    while Instant::now() < until {
        send(format!("while it is full, {n} {}", "x".repeat(4_096)));
        n += 1;
        if n == 2 {
            fs::remove_file(&stays).unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let went_on = has_said(team);
    fs::remove_file(filler).unwrap();
    send("after".into());
    assert_eq!(acked.last().map(String::as_str), Some("after"), "there is room again");
    team.eventually("everything acknowledged is taken in", || {
        acked.iter().all(|text| team.has_mail("alice", "user", text))
    });
    team.eventually("bob goes on", || has_said(team));
    team.wait_status("bob", "idle");
    let is_same = [&mut alice, &mut bob].into_iter().all(|one| one.try_wait().unwrap().is_none());
    let mail = team.mail_of("alice");
    let twice =
        acked.iter().filter(|text| mail.iter().filter(|m| m["content"] == **text).count() > 1);
    let twice = twice.count();
    let ran = fs::read_to_string(team.workspace().join("ran")).unwrap().lines().count();
    team.team(&["stop", "--all"]);
    for one in [&mut alice, &mut bob] {
        one.wait().unwrap();
    }
    team.wait_no_process();
    let result = format!(
        "{} sends refused, {} acknowledged, all delivered, {twice} twice; \
         the command ran {ran} time(s)",
        refused,
        acked.len()
    );
    let is_met = is_same && twice == 0 && refused > 0 && ran == 1 && !went_on;
    Finding::new(measure, TARGET, &result, Verdict::of(is_met))
}

/// Starts a member without a lead.
fn member(team: &Team, name: &str, model: &str, more: &[&str]) -> Child {
    let args = [&["teammate", name, "--model", model], more].concat();
    let mut member = team.command("team", &args);
    member.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    member.spawn().unwrap()
}

/// Whether bob has made his last report.
fn has_said(team: &Team) -> bool {
    team.lines("transcript/bob.jsonl").iter().any(|line| line["blocks"][0]["text"] == DONE)
}
