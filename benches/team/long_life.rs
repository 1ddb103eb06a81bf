//! P14, P21: long conversations.

use crate::bench_team::{BenchTeam, new_folder};
use crate::figure::{Figure, Size, Target, median};
use crate::scripts::Scripts;
use agent_team::store::{TeamDir, Transcript};
use agent_team::wire::AgentName;
use agent_team::wire::chat::{Block, StopReason, Usage};
use agent_team::wire::transcript::{Entry, Line};
use serde_json::{Map, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The number of turns between two summaries of the longest conversation, which are about 1 MB.
const TURNS_OF_SUMMARY: u64 = 180;

/// The bytes of lines that are appended at once.
const PIECE: usize = 16_000_000;

/// The number of starts and of commands on the longest conversation.
const TIMES: usize = 3;

/// Measures P14 and P21.
pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let mut took = Vec::new();
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        live_long(&team.dir, &AgentName::member("member-0").unwrap(), size.transcript, None);
        took.push(Scripts::of_teammates(&team, 1).took.as_secs_f64() * 1e3);
    }
    let mut figures = vec![Figure {
        id: "P14",
        measure: format!("a transcript of {} MB: started to ready", size.transcript / 1_000_000),
        unit: "ms",
        ours: median(&took),
        reference: None,
        target: Target::Below(1000.0),
    }];
    figures.extend(longest(size));
    figures
}

/// Measures P21: a conversation with a summary each megabyte, as one that has met the limit of its model has.
fn longest(size: &Size) -> Vec<Figure> {
    let figure = |measure: String, ours| Figure {
        id: "P21",
        measure,
        unit: "s",
        ours,
        reference: None,
        target: Target::Below(1.0),
    };
    let megabytes = size.longest_transcript / 1_000_000;
    let mut figures = Vec::new();
    let summaries = Some(TURNS_OF_SUMMARY);
    {
        let team = BenchTeam::new();
        let name = AgentName::member("member-0").unwrap();
        live_long(&team.dir, &name, size.longest_transcript, summaries);
        let first = Scripts::of_teammates(&team, 1).took.as_secs_f64();
        let again = |_| Scripts::of_teammates(&team, 1).took.as_secs_f64();
        let again: Vec<f64> = (0..TIMES).map(again).collect();
        let what = format!("a transcript of {megabytes} MB: teammate started to ready");
        figures.push(figure(format!("{what}, the first time"), first));
        figures.push(figure("the same, further times".into(), median(&again)));
    }
    let folder = new_folder();
    let lead = ["lead", "-p", "show the team", "--model", "rehearsal", "--resume"];
    run(folder.path(), lead.get(..5).unwrap());
    let dir = TeamDir::open(&folder.path().join(".team")).unwrap();
    let message = live_long(&dir, &AgentName::lead(), size.longest_transcript, summaries) / 2;
    figures.push(figure(
        "a lead with it: `team lead -p … --resume`, the first time".into(),
        run(folder.path(), &lead),
    ));
    let message = format!("bob:{message}");
    let mut commands = |what: &str, words: &[&str]| {
        let took: Vec<f64> = (0..TIMES).map(|_| run(folder.path(), words)).collect();
        figures.push(figure(what.into(), median(&took)));
    };
    commands("the same, further times", &lead);
    commands("`team trace ID` there, of a message in the middle", &["trace", &message]);
    commands("`team log` there", &["log"]);
    figures
}

/// Runs `team` to its end in a folder. Returns the seconds that it took.
fn run(folder: &Path, words: &[&str]) -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_team"));
    // Without `--dir`, the folder of a team around this one would be taken.
    command.args(words).arg("--dir").arg(folder.join(".team"));
    command.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", folder).stdin(Stdio::null());
    let start = Instant::now();
    let output = command.output().unwrap();
    let took = start.elapsed().as_secs_f64();
    assert!(output.status.success(), "{output:?}");
    took
}

/// Gives an agent a conversation of this many bytes: mail, answers, tools with long output. After so many turns as
/// `turns_of_summary` says, it has a summary. Returns the number of turns.
fn live_long(dir: &TeamDir, name: &AgentName, bytes: usize, turns_of_summary: Option<u64>) -> u64 {
    let mut transcript = Transcript::open(dir, name).unwrap();
    let (mut lines, mut written, mut number) = (String::new(), 0, 0_u64);
    while written + lines.len() < bytes {
        number += 1;
        let is_long = turns_of_summary.is_some_and(|turns| number.is_multiple_of(turns));
        for entry in entries(name, number).into_iter().chain(is_long.then(summary)) {
            lines.push_str(&Line { at: 1_763_690_000.125.into(), entry }.text());
        }
        if lines.len() > PIECE {
            transcript.append_raw(lines.as_bytes()).unwrap();
            written += lines.len();
            lines.clear();
        }
    }
    transcript.append_raw(lines.as_bytes()).unwrap();
    number
}

fn summary() -> Entry {
    Entry::Compacted {
        summary: "The folders were looked at, one after the other. ".repeat(40),
        situation: "You are a member of a team.".into(),
        usage: Usage::default(),
        context_tokens: None,
    }
}

fn entries(owner: &AgentName, number: u64) -> [Entry; 6] {
    let (tool_use_id, name) = (format!("call-{number}"), "bash".to_owned());
    let message = json!({
        "type": "message", "from": "bob", "to": owner.as_str(), "timestamp": 1_763_690_000.125,
        "content": format!("{number:<200}"), "id": format!("bob:{number}"),
    });
    let output = "drwxr-xr-x 2 user user 4096 \"a file\"\n".repeat(100);
    [
        Entry::Mail {
            claim: format!("{number:012}-00000000"),
            offset: 0,
            message: message.as_object().cloned().unwrap_or_else(Map::new),
            verified: true,
        },
        Entry::Assistant {
            blocks: vec![
                Block::Text { text: "I look at what is there, then I go on. ".repeat(10) },
                Block::ToolUse {
                    id: tool_use_id.clone(),
                    name: name.clone(),
                    input: json!({"command": "ls -l", "timeout": 10}),
                },
            ],
            stop_reason: StopReason::ToolUse,
            usage: Usage::default(),
            model: "rehearsal".into(),
        },
        Entry::ToolStart { tool_use_id: tool_use_id.clone(), name },
        Entry::ToolResult {
            tool_use_id,
            content: output,
            is_error: false,
            file: None,
            more_files: Vec::new(),
            images: Vec::new(),
        },
        Entry::Assistant {
            blocks: vec![Block::Text { text: "Done.".into() }],
            stop_reason: StopReason::EndTurn,
            usage: Usage::default(),
            model: "rehearsal".into(),
        },
        Entry::TurnEnd {
            outcome: agent_team::wire::message::Outcome::Done,
            rounds: 2,
            report: None,
            cut_off: false,
        },
    ]
}
