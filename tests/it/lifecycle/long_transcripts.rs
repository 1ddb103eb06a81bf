//! Long transcripts: the conversation of a resumed agent, and the memory that reading takes.

use crate::support::child_process::write;
use crate::support::fake::Reply;
use crate::support::fake_models::{conversation, team_with_fake};
use crate::support::harness::Team;
use crate::support::scripts::assert_left_in_order;
use agent_team::wire::chat::{Block, StopReason, Usage};
use agent_team::wire::message::Outcome;
use agent_team::wire::transcript::{Entry, Line};
use serde_json::json;
use std::fs;

/// The size of the transcript in bytes. P14 of the benchmark has 100 MB.
const LONG: usize = 24_000_000;

/// The number of turns between two summaries.
const SUMMARIZED_EVERY: u64 = 50;

/// The limit of what the process that reads it needs at most beside one without a transcript, in KiB, in any build.
const MOST_RESIDENT: u64 = 10 * 1024;

/// The entries of a turn: mail, a command with a long output, an answer.
fn turn(number: u64) -> Vec<Entry> {
    let message = json!({"type": "message", "from": "bob", "content": format!("wish {number}."),
        "id": format!("bob:{number}"), "timestamp": 1_763_690_000.125});
    let tool_use_id = format!("call-{number}");
    let say = |blocks, stop_reason| {
        let usage = Usage { input_tokens: 4000, output_tokens: 100, ..Usage::default() };
        Entry::Assistant { blocks, stop_reason, usage, model: "fake".into() }
    };
    let call = Block::ToolUse {
        id: tool_use_id.clone(),
        name: "bash".into(),
        input: json!({"command": format!("show {number}")}),
    };
    let answer = Block::Text { text: format!("granted {number}.") };
    vec![
        Entry::Mail {
            claim: format!("{number:012}-00000000"),
            offset: 0,
            message: message.as_object().cloned().unwrap(),
            verified: true,
        },
        say(vec![call], StopReason::ToolUse),
        Entry::ToolStart { tool_use_id: tool_use_id.clone(), name: "bash".into() },
        Entry::ToolResult {
            tool_use_id,
            content: "a long line\n".repeat(400),
            is_error: false,
            file: None,
            more_files: Vec::new(),
            images: Vec::new(),
        },
        say(vec![answer], StopReason::EndTurn),
        Entry::TurnEnd { outcome: Outcome::Done, rounds: 2, report: None, cut_off: false },
    ]
}

/// Writes the transcript. Returns the numbers of the last turn and of the last summarized turn.
fn live_long(team: &Team) -> (u64, u64) {
    let (mut text, mut number, mut summarized) = (String::new(), 0, 0);
    let add = |text: &mut String, entry| {
        text.push_str(&Line { at: 1_763_690_000.125.into(), entry }.text());
    };
    // The transcript ends in the middle between two summaries.
    while text.len() < LONG || number % SUMMARIZED_EVERY != SUMMARIZED_EVERY / 2 {
        number += 1;
        for entry in turn(number) {
            add(&mut text, entry);
        }
        if number % SUMMARIZED_EVERY == 0 {
            summarized = number;
            let summary = format!("NOTES up to {number}.");
            let situation = "You are alice.".to_owned();
            let (usage, context_tokens) = (Usage::default(), None);
            add(&mut text, Entry::Compacted { summary, situation, usage, context_tokens });
        }
    }
    write(&team.path("transcript/alice.jsonl"), text);
    (number, summarized)
}

/// The peak resident memory of a process, in KiB.
fn peak(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_long_transcript_is_resumed_in_little_memory() {
    let (team, fake) = team_with_fake(|_| Reply::text("I remember."));
    team.team(&["init"]).expect(0);
    let (last, summarized) = live_long(&team);
    let transcript = team.path("transcript/alice.jsonl");
    let before = fs::metadata(&transcript).unwrap().len();
    let args = ["teammate", "alice", "--role", "elder", "--model", "anthropic/fake"];
    let mut alice = team.start(&args);
    team.wait_status("alice", "idle");
    let resident = peak(team.pid_of("alice"));
    // The program itself counts for both.
    let mut bob = team.start(&["teammate", "bob", "--model", "anthropic/fake"]);
    team.wait_status("bob", "idle");
    let more = resident.saturating_sub(peak(team.pid_of("bob")));
    assert!(more < MOST_RESIDENT, "{more} KiB for a transcript of {before} bytes");
    team.team(&["stop", "bob"]).expect(0);
    bob.wait().unwrap();
    team.team(&["send", "alice", "What was the last wish?"]).expect(0);
    fake.wait_for_requests(1);
    let asked = conversation(&fake.requests()[0]);
    for kept in [
        format!("NOTES up to {summarized}."),
        format!("wish {}.", summarized + 1),
        format!("wish {last}."),
        format!("granted {last}."),
        "What was the last wish?".into(),
    ] {
        assert!(asked.contains(&kept), "{kept} is forgotten");
    }
    for gone in
        [format!("wish {summarized}."), format!("NOTES up to {}.", summarized - SUMMARIZED_EVERY)]
    {
        assert!(!asked.contains(&gone), "{gone} was summarized");
    }
    team.eventually("the answer is recorded", || {
        fs::read_to_string(&transcript).unwrap().ends_with('\n') && team.status("alice") == "idle"
    });
    // A message that was received long ago is not delivered again.
    let again =
        json!({"from": "bob", "id": format!("bob:{last}"), "content": format!("wish {last}.")});
    crate::support::child_process::append(&team.path("inbox/alice.jsonl"), format!("{again}\n"));
    team.team(&["send", "alice", "And now?"]).expect(0);
    fake.wait_for_requests(2);
    let repeated = team.mail_of("alice").iter().filter(|mail| mail["id"] == again["id"]).count();
    assert_eq!(repeated, 1);
    team.team(&["stop", "alice"]).expect(0);
    assert_eq!(alice.wait().unwrap().code(), Some(0));
    let text = fs::read(&transcript).unwrap();
    assert!(text.len() as u64 > before && text[usize::try_from(before).unwrap() - 1] == b'\n');
    assert_left_in_order(&team);
}
