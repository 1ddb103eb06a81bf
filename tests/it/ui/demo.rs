//! The demonstration: `scripts/demo`, and the recorded session of the README.

use crate::support::harness::{CommandResult, SYSTEM_PATH, Team, program};
use crate::support::skips::skipped;
use crate::walls::can_wall;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)
}

fn programs() -> PathBuf {
    program("team").parent().unwrap().to_owned()
}

/// The demo, with its folder inside this team's folder, so that the test finds leftovers.
fn demo(team: &Team) -> Command {
    let mut command = team.shell(r#"exec "$0" --quick "$1""#);
    command.arg(script("demo")).arg(programs()).env("TMPDIR", team.workspace());
    // The demo sends to alice between the kill and her restart, so the restart must not come too early.
    command.env("TEAM_FIRST_PAUSE_MS", "4000");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn the_demo_shows_a_team_of_three_at_work() {
    let team = Team::new();
    let output = demo(&team).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let ran = CommandResult { args: "demo".into(), code, out, err }.expect(0);
    assert_eq!(ran.err, "");
    for step in 1..=7 {
        assert!(ran.out.contains(&format!("\n{step}. ")), "step {step}: {}", ran.out);
    }
    let lead = "    lead | ";
    let own = ["teammate carol --dir", "bob ends the turn: done", "$ ps -eo args | grep -c", "0"];
    let leads = [
        "alice (result): Wrote schema.sql",
        "alice restarting (crash)",
        "alice (result): `cat schema.sql` printed:",
        "alice ended when asked",
    ];
    // Two processes print; only the order of the lines of each is certain.
    for (is_lead, seen) in [(false, own), (true, leads)] {
        let mut lines = ran.out.lines().filter(|line| line.starts_with(lead) == is_lead);
        for text in seen {
            let found = lines.any(|line| line == text || (text != "0" && line.contains(text)));
            assert!(found, "{text:?} is missing: {}", ran.out);
        }
    }
    assert_eq!(ran.out.matches("  completed  ").count(), 2, "{}", ran.out);
    team.wait_no_process();
    assert!(is_empty(team.workspace()), "it cleans up after itself");
}

/// The same attacks succeed without walls and are refused behind them.
#[test]
fn the_demo_of_walls_shows_attacks_that_only_walls_refuse() {
    let team = Team::new();
    team.variable("TEAM_SANDBOX_LEVEL", "workspace");
    if !can_wall(&team) {
        return;
    }
    let folder = Team::new();
    let mut command = folder.shell(r#"exec "$0" --walls --quick "$1""#);
    command.arg(script("demo")).arg(programs()).env("TMPDIR", folder.workspace());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let (without, behind) = said.split_once("\n2. ").unwrap();
    let count = |text: &str, word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    let counts =
        |text| ["SUCCEEDED: ", "refused: ", "allowed: ", "Seen "].map(|word| count(text, word));
    assert_eq!(counts(without), [5, 0, 1, 2], "{said}");
    assert_eq!(counts(behind), [0, 5, 1, 0], "{said}");
    assert!(behind.contains("team folder: yes"), "{said}");
    folder.wait_no_process();
    assert!(is_empty(folder.workspace()), "it cleans up after itself");
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let team = Team::new();
    let mut child = demo(&team).process_group(0).spawn().unwrap();
    team.eventually("there are teammates", || {
        let processes = team.processes();
        processes.iter().filter(|(_, line)| line.starts_with("teammate ")).count() >= 3
    });
    killpg(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait().unwrap();
    assert!(!output.success() && output.signal() != Some(9), "{output}");
    team.wait_no_process();
    team.eventually("its folder is gone", || is_empty(team.workspace()));
}

/// `scripts/record` records a real session, and the picture in docs/ shows the same lines.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn the_picture_of_the_readme_is_recorded() {
    if !SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join("python3").exists()) {
        skipped("python3 is not installed: no session was recorded");
        return;
    }
    let team = Team::new();
    let mut record = team.shell(r#"exec "$0" --programs "$1" --out session.svg"#);
    record.arg(script("record")).arg(programs()).env("TMPDIR", team.workspace());
    let output = record.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    team.wait_no_process();
    let recorded = fs::read_to_string(team.workspace().join("session.svg")).unwrap();
    let committed = fs::read_to_string(script("record").with_file_name("../docs/session.svg"));
    let committed = committed.unwrap();
    for picture in [&recorded, &committed] {
        assert!(!picture.contains("<script"), "a picture runs nothing");
        for line in [
            "spawn_teammate  alice coder: Fix greet.py.",
            "runs it when she is ready",
            // The name before it has its own colour, so it is another piece of text.
            "asks to use edit_file:<",
            "asks to use edit_file: greet.py<",
            "yes to alice: edit_file",
            "answer&gt;",
            "It prints: Hello, world!",
            "The change is right.",
            "bob ended when asked",
            "To resume: team lead --resume",
        ] {
            assert!(picture.contains(line), "{line:?} is missing");
        }
    }
}
