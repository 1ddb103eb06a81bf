//! P15: the cost of walls per command of an agent, from the record of its start to that of its result.
//!
//! Each round runs one lead for each kind of walls, with a script that calls `bash` many times, and reads the times
//! from its transcript.

use crate::bench_team::BenchTeam;
use crate::figure::{Figure, Size, Target, median};
use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The kinds of walls: the level, and whether the machine permits namespaces.
const KINDS: [(&str, bool); 4] =
    [("off", true), ("read-only", false), ("read-only", true), ("workspace", true)];

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let mut took = [(); KINDS.len()].map(|()| Vec::new());
    for _ in 0..size.rounds {
        for ((level, has_namespaces), took) in KINDS.into_iter().zip(&mut took) {
            took.push(median(&commands(level, has_namespaces, size.runs)));
        }
    }
    let [none, rules, read_only, workspace] = took;
    let figure = |measure: &str, walled: &[f64], most| {
        let above = walled.iter().zip(&none).map(|(walled, none)| walled - none);
        Figure {
            id: "P15",
            measure: measure.into(),
            unit: "ms",
            ours: median(&above.collect::<Vec<_>>()),
            reference: Some(median(&none)),
            target: Target::Below(most),
        }
    };
    vec![
        figure(
            "`true` behind Landlock and seccomp, above one without walls; that one",
            &rules,
            0.6,
        ),
        figure("the same with namespaces, `read-only`", &read_only, 2.0),
        figure("the same with namespaces, `workspace`", &workspace, 2.0),
    ]
}

/// Returns the milliseconds that each command of a lead took.
fn commands(level: &str, has_namespaces: bool, count: usize) -> Vec<f64> {
    let team = BenchTeam::new();
    let call = json!({ "name": "bash", "input": { "command": "true" } });
    let script = team.folder.path().join("script.jsonl");
    let line = json!({ "tools": vec![call; count] });
    let lines = format!("{line}\n{}\n", json!({ "text": "over" }));
    File::create(&script).unwrap().write_all(lines.as_bytes()).unwrap();
    let mut lead = Command::new(env!("CARGO_BIN_EXE_team"));
    let model = format!("script:{}", script.display());
    lead.args(["lead", "-p", "go", "--model", &model, "--mode", "bypass"]);
    lead.current_dir(team.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
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
