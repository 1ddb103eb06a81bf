//! P17: the cost of a command of an agent, from the record of its start to that of its result, and that of its walls.
//!
//! Each round runs one lead for each kind of walls, with a script that calls `bash` many times, and reads the times
//! from its transcript. A rule permits the command. The reference starts the same program without an agent.

use crate::bench_team::{BenchTeam, new_folder};
use crate::figure::{Figure, Size, Target, median};
use crate::support::child_process::write;
use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The command.
const COMMAND: &str = "true";

/// The kinds of walls: the level, and whether the machine permits namespaces. The last one is the default.
const KINDS: [(&str, bool); 4] =
    [("off", true), ("read-only", false), ("read-only", true), ("workspace", true)];

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let mut took = [(); KINDS.len()].map(|()| Vec::new());
    let mut bare = Vec::new();
    for _ in 0..size.rounds {
        bare.push(median(&(0..size.runs).map(|_| spawned()).collect::<Vec<_>>()));
        for ((level, has_namespaces), took) in KINDS.into_iter().zip(&mut took) {
            took.push(median(&commands(level, has_namespaces, size.runs)));
        }
    }
    let [none, rules, read_only, workspace] = took;
    let figure = |measure: &str, walled: &[f64], most| {
        let above = walled.iter().zip(&none).map(|(walled, none)| walled - none);
        Figure {
            id: "P17",
            measure: measure.into(),
            unit: "ms",
            ours: median(&above.collect::<Vec<_>>()),
            reference: Some(median(&none)),
            target: Target::Below(most),
        }
    };
    let whole = Figure {
        id: "P17",
        measure: "`bash true` through tool, permission, supervisor, walls; `posix_spawn` of it"
            .into(),
        unit: "ms",
        ours: median(&workspace),
        reference: Some(median(&bare)),
        target: Target::TimesAtMost(4.0),
    };
    vec![
        whole,
        figure(
            "`true` behind Landlock and seccomp, above one without walls; that one",
            &rules,
            0.6,
        ),
        figure("the same with namespaces, `read-only`", &read_only, 2.0),
        figure("the same with namespaces, `workspace`", &workspace, 2.0),
    ]
}

/// Returns the milliseconds from the start of a shell with the command to its exit. The standard library starts it with
/// `posix_spawn`.
fn spawned() -> f64 {
    let start = Instant::now();
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", COMMAND]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(shell.status().unwrap().success());
    start.elapsed().as_secs_f64() * 1e3
}

/// Returns the milliseconds that each command of a lead took.
fn commands(level: &str, has_namespaces: bool, count: usize) -> Vec<f64> {
    let team = BenchTeam::new();
    let call = json!({ "name": "bash", "input": { "command": COMMAND } });
    let script = team.folder.path().join("script.jsonl");
    let line = json!({ "tools": vec![call; count] });
    let lines = format!("{line}\n{}\n", json!({ "text": "over" }));
    File::create(&script).unwrap().write_all(lines.as_bytes()).unwrap();
    let mut lead = Command::new(env!("CARGO_BIN_EXE_team"));
    let model = format!("script:{}", script.display());
    let home = new_folder();
    let settings = home.path().join(".config/team");
    fs::create_dir_all(&settings).unwrap();
    let rule = format!("[permissions]\nallow = [\"bash({COMMAND})\"]\n");
    write(&settings.join("settings.toml"), rule);
    lead.args(["lead", "-p", "go", "--model", &model, "--mode", "default"]);
    lead.current_dir(team.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    lead.env("HOME", home.path());
    lead.env("TEAM_SANDBOX_LEVEL", level).stdin(Stdio::null()).stdout(Stdio::null());
    if !has_namespaces {
        let filter = refusal_of_namespaces();
        let confine = move || apply_filter(&filter).map_err(io::Error::other);
        // SAFETY: the filter is compiled, and installing it makes only system calls.
        #[expect(unsafe_code, reason = "std has no safe way to confine a child")]
        unsafe {
            lead.pre_exec(confine);
        }
    }
    let output = lead.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let transcript = fs::read_to_string(team.dir.root().join("transcript/lead.jsonl")).unwrap();
    let entries: Vec<Value> =
        transcript.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |kind: &str| {
        let entries = entries.iter().filter(|entry| entry["kind"] == kind);
        entries.map(|entry| entry["at"].as_f64().unwrap() * 1e3).collect::<Vec<_>>()
    };
    let took: Vec<f64> =
        at("tool_start").iter().zip(at("tool_result")).map(|(start, end)| end - start).collect();
    assert_eq!(took.len(), count, "{transcript}");
    took
}

/// Returns a filter by which no namespace can be made, as in many containers.
fn refusal_of_namespaces() -> BpfProgram {
    let refused = SeccompAction::Errno(Errno::EPERM as u32);
    let rules = BTreeMap::from([(libc::SYS_unshare, Vec::new())]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    filter.try_into().unwrap()
}
