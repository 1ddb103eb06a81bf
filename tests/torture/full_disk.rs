//! R11: a disk that is full for a while. Nobody is restarted; what was acknowledged is there, and mail goes
//! on as soon as there is room.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::harness::Team;
use crate::mount::Mounted;
use nix::errno::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TARGET: &str = "the same process goes on, 0 lost";

pub(crate) fn measure(run: Run) -> Vec<Finding> {
    let time = Duration::from_secs(run.of(2, 15, 60));
    let measure = format!("a disk that is full for {} s and then is not", time.as_secs());
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
    let mut alice = team.command("team", &["teammate", "alice", "--model", "rehearsal"]);
    alice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut alice = alice.spawn().unwrap();
    team.wait_status("alice", "idle");
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
        std::thread::park_timeout(Duration::from_millis(200));
    }
    fs::remove_file(filler).unwrap();
    send("after".into());
    assert_eq!(acked.last().map(String::as_str), Some("after"), "there is room again");
    team.eventually("everything acknowledged is taken in", || {
        acked.iter().all(|text| team.has_mail("alice", "user", text))
    });
    let is_same = alice.try_wait().unwrap().is_none();
    let mail = team.mail_of("alice");
    let twice =
        acked.iter().filter(|text| mail.iter().filter(|m| m["content"] == **text).count() > 1);
    let twice = twice.count();
    team.team(&["stop", "alice"]);
    alice.wait().unwrap();
    team.wait_no_process();
    let result = format!(
        "{} sends refused, {} acknowledged, all taken in, {twice} twice",
        refused,
        acked.len()
    );
    Finding::new(measure, TARGET, &result, Verdict::of(is_same && twice == 0 && refused > 0))
}

/// Takes what room there is.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut block = vec![0; 65_536];
    while !block.is_empty() {
        match file.write_all(&block) {
            Ok(()) => {}
            Err(why) if why.raw_os_error() == Some(Errno::ENOSPC as i32) => {
                block.truncate(block.len() / 2);
            }
            Err(why) => panic!("{}: {why}", path.display()),
        }
    }
}
