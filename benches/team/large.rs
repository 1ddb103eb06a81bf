//! P11, P14: a large team, and a long conversation.

use crate::bench_team::{BenchTeam, bus};
use crate::figure::{Figure, Size, Target, median};
use crate::members::mebibytes;
use crate::scripts::Scripts;
use agent_team::bus::Outgoing;
use agent_team::store::{Fsync, TeamDir, Transcript};
use agent_team::wire::AgentName;
use agent_team::wire::chat::{Block, StopReason, Usage};
use agent_team::wire::transcript::{Entry, Line};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// The time limit for a teammate's result.
const PATIENCE: Duration = Duration::from_secs(20);

/// The poll interval of the inbox.
const GLANCE: Duration = Duration::from_micros(500);

/// Measures P11.
pub(crate) fn team(size: &Size) -> Vec<Figure> {
    let [mut ready, mut round, mut memory] = [(); 3].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        let members = Scripts::of_teammates(&team, size.many_live);
        ready.push(members.took.as_secs_f64());
        let mut results = Results::of(&team.dir);
        let start = Instant::now();
        (0..size.many_live).for_each(|number| results.pass_through(&team.dir, number));
        round.push(start.elapsed().as_secs_f64());
        memory.push(members.pids().map(|pid| mebibytes(pid, "Pss:")).sum());
    }
    let count = size.many_live;
    let figure = |measure, unit, ours: &[f64], most| Figure {
        id: "P11",
        measure,
        unit,
        ours: median(ours),
        reference: None,
        target: Target::Below(most),
    };
    vec![
        figure(format!("{count} teammates started to ready"), "s", &ready, 3.0),
        figure(
            format!("through all {count} in turn: message, turn, result to the lead"),
            "s",
            &round,
            2.0,
        ),
        figure(format!("PSS of all {count}"), "MiB", &memory, 300.0),
    ]
}

/// A reader of the lead's inbox, to which the results of turns are sent. No process drains it.
struct Results {
    inbox: BufReader<File>,
    line: String,
}

impl Results {
    fn of(dir: &TeamDir) -> Self {
        agent_team::store::inbox::ensure(dir, &AgentName::lead()).unwrap();
        let inbox = BufReader::new(File::open(dir.inbox(&AgentName::lead())).unwrap());
        Self { inbox, line: String::new() }
    }

    /// Sends a message to a teammate and waits for the result of its turn.
    fn pass_through(&mut self, dir: &TeamDir, number: usize) {
        let name = format!("member-{number}");
        let outgoing = Outgoing::text("How far are you?");
        // Sent as the lead, because the rehearsal model follows no other sender.
        bus(dir, Fsync::Always).send(&AgentName::lead(), &name, outgoing).unwrap();
        let start = Instant::now();
        while !self.has_result_of(&name) {
            assert!(start.elapsed() < PATIENCE, "no result of {name}");
            // Polls, because the teammates use all inotify instances of this user.
            std::thread::park_timeout(GLANCE);
        }
    }

    fn has_result_of(&mut self, name: &str) -> bool {
        // A line may be read in pieces, so an incomplete one is kept.
        while self.inbox.read_line(&mut self.line).unwrap() > 0 && self.line.ends_with('\n') {
            let message: Value = serde_json::from_str(&self.line).unwrap();
            self.line.clear();
            if message["type"] == "result" && message["from"] == name {
                return true;
            }
        }
        false
    }
}

/// Measures P14.
pub(crate) fn long_life(size: &Size) -> Vec<Figure> {
    let mut took = Vec::new();
    for _ in 0..size.rounds {
        let team = BenchTeam::new();
        live_long(&team.dir, size.transcript);
        took.push(Scripts::of_teammates(&team, 1).took.as_secs_f64() * 1e3);
    }
    vec![Figure {
        id: "P14",
        measure: format!("a transcript of {} MB: started to ready", size.transcript / 1_000_000),
        unit: "ms",
        ours: median(&took),
        reference: None,
        target: Target::Below(1000.0),
    }]
}

/// Gives the first teammate a conversation of this many bytes: mail, answers, tools with long output.
fn live_long(dir: &TeamDir, bytes: usize) {
    let name = AgentName::member("member-0").unwrap();
    let mut transcript = Transcript::open(dir, &name).unwrap();
    let mut lines = String::new();
    let mut number = 0_u64;
    while lines.len() < bytes {
        number += 1;
        for entry in entries(number) {
            lines.push_str(&Line { at: 1_763_690_000.125.into(), entry }.text());
        }
    }
    transcript.append_raw(lines.as_bytes()).unwrap();
}

fn entries(number: u64) -> [Entry; 6] {
    let (tool_use_id, name) = (format!("call-{number}"), "bash".to_owned());
    let message = json!({
        "type": "message", "from": "bob", "to": "member-0", "timestamp": 1_763_690_000.125,
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
