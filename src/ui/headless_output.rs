//! The headless lead's output: the answer on stdout, in one of three formats; the progress on stderr, if that
//! is a terminal.
//!
//! The JSON is a contract (SPEC 6): every field is named here, none is derived from an internal type.

use super::live::Live;
use super::sanitize::sanitize;
use super::style::Palette;
use crate::agent::progress::{CallEnd, EndedCall, Progress};
use crate::wire::WithUnknownFields;
use crate::wire::roster::{Member, UsageCount};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, Write};

/// The version of the JSON objects.
const SCHEMA: u32 = 1;

/// The value of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// The last text.
    #[default]
    Text,
    /// One JSON object at the end.
    Json,
    /// One JSON object per event, the result last.
    StreamJson,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// The lead's last text.
    pub(crate) result: String,
    /// The outcome: `done`, `failed`, `tasks_left`, `denied`, `interrupted`, `timeout`, `budget`, `not_started`.
    pub(crate) outcome: String,
    pub(crate) exit_code: u8,
    /// The reason of an exit code other than 0.
    pub(crate) error: Option<String>,
    /// The ids of the open tasks of the run.
    pub(crate) tasks_left: Vec<String>,
    /// The denied calls, each with the name of its member.
    pub(crate) denied: Vec<String>,
    pub(crate) seconds: f64,
    /// The usage of all agents together; `turns` counts only the lead's turns.
    pub(crate) usage: UsageCount,
    pub(crate) members: Vec<WithUnknownFields<Member>>,
}

/// The writer of a headless run's output: data to `O`, progress for people to `N`.
#[derive(Debug)]
pub(crate) struct Headless<O, N> {
    format: Format,
    out: O,
    narration: Option<(N, Live)>,
}

impl<O: Write, N: Write> Headless<O, N> {
    /// Writes data to `out`; `narration` is stderr and its palette, if that is a terminal.
    pub(crate) fn new(format: Format, out: O, narration: Option<(N, Palette)>) -> Self {
        let narration = narration.map(|(writer, palette)| (writer, Live::new(palette)));
        Self { format, out, narration }
    }

    /// Writes one event. A closed stdout is an error; a closed stderr only ends the narration.
    pub(crate) fn show(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(event) = event(progress) else { return Ok(()) };
        if let Some((writer, live)) = &mut self.narration {
            let rows = live.rows(progress, None);
            if writer.write_all(rows.as_bytes()).and_then(|()| writer.flush()).is_err() {
                self.narration = None;
            }
        }
        if self.format == Format::StreamJson { self.line(&event) } else { Ok(()) }
    }

    /// Writes the result. A closed stdout is an error.
    pub(crate) fn finish(mut self, summary: &Summary) -> io::Result<()> {
        match self.format {
            Format::Text if summary.result.is_empty() => Ok(()),
            Format::Text => self.line(&sanitize(summary.result.trim_end_matches('\n'))),
            Format::Json | Format::StreamJson => self.line(&result(summary)),
        }
    }

    fn line(&mut self, value: &impl Display) -> io::Result<()> {
        writeln!(self.out, "{value}")?;
        self.out.flush()
    }
}

/// Returns the event for programs; `None` for progress that only a pane shows.
fn event(progress: &Progress) -> Option<Value> {
    Some(match progress {
        Progress::PromptsTaken(_)
        | Progress::PromptsDropped
        | Progress::Thought(_)
        | Progress::ToolOutput(_)
        | Progress::CallDraft(_)
        | Progress::ContextUsed { .. } => {
            return None;
        }
        Progress::Mail(message) => json!({
            "type": "mail",
            "message_type": message.body.kind(),
            "from": message.from,
            "to": message.to,
            "content": message.content,
            "timestamp": message.timestamp,
            "id": message.id,
            "request_id": message.request_id,
            "verified": message.is_verified(),
        }),
        Progress::Asked(question) => json!({"type": "asked", "question": question}),
        Progress::TurnStarted { by_mail } => json!({"type": "turn_started", "by_mail": by_mail}),
        Progress::Text(text) => json!({"type": "text", "text": text}),
        Progress::Retry { wait, left, why } => {
            let (wait, left) = (wait.as_secs_f64(), left.as_secs_f64());
            json!({"type": "retry", "wait_seconds": wait, "left_seconds": left, "why": why})
        }
        Progress::Silent { left, why } => {
            json!({"type": "silent", "left_seconds": left.as_secs_f64(), "why": why})
        }
        Progress::Answers => json!({"type": "answers"}),
        Progress::MemberRetry { name, why } => {
            json!({"type": "member_retry", "name": name, "why": why})
        }
        Progress::ToolStarted { name, summary, .. } => {
            json!({"type": "tool_started", "name": name, "summary": summary})
        }
        Progress::ToolEnded(EndedCall { name, end, content, .. }) => {
            let is_error = *end != CallEnd::Succeeded;
            json!({"type": "tool_ended", "name": name, "is_error": is_error, "content": content})
        }
        Progress::Subagent { id, doing } => {
            json!({"type": "subagent", "id": id, "doing": doing})
        }
        Progress::TurnEnded { outcome, text } => {
            json!({"type": "turn_ended", "outcome": outcome, "text": text})
        }
        Progress::Idle => json!({"type": "idle"}),
        Progress::Warning(text) => json!({"type": "warning", "text": text}),
        Progress::Note(text) => json!({"type": "note", "text": text}),
    })
}

fn result(summary: &Summary) -> Value {
    let member = |member: &WithUnknownFields<Member>| {
        json!({
            "name": member.name,
            "role": member.role,
            "status": member.status.word(),
            "model": member.model,
            "turns": member.usage.turns,
            "usage": tokens(member.usage),
        })
    };
    json!({
        "type": "result",
        "schema": SCHEMA,
        "outcome": summary.outcome,
        "result": summary.result,
        "error": summary.error,
        "exit_code": summary.exit_code,
        "tasks_left": summary.tasks_left,
        "denied": summary.denied,
        "seconds": summary.seconds,
        "turns": summary.usage.turns,
        "usage": tokens(summary.usage),
        "members": summary.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn tokens(usage: UsageCount) -> Value {
    let mut tokens = json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    });
    if let (Value::Object(fields), Some(cost)) = (&mut tokens, usage.cost) {
        fields.insert("cost".into(), f64::from(cost).into());
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::{Message, Outcome};
    use crate::wire::money::Money;
    use crate::wire::roster::Status;
    use crate::wire::seal::Verification;
    use std::time::Duration;

    fn events() -> Vec<Progress> {
        let hello = json!({"from":"alice","to":"lead","content":"hi","timestamp":1.5,"id":"a:1"});
        let hello = Message::read(hello.as_object().unwrap()).unwrap();
        let hello = Message { verification: Verification::Control, ..hello };
        let (name, content) = ("bash".to_owned(), "a".into());
        vec![
            Progress::TurnStarted { by_mail: true },
            Progress::Mail(Box::new(hello)),
            Progress::Text("All\n".into()),
            Progress::Retry {
                wait: Duration::from_secs(2),
                left: Duration::from_secs(40),
                why: "reset".into(),
            },
            Progress::Silent { left: Duration::from_secs(240), why: "no first byte".into() },
            Progress::Answers,
            Progress::MemberRetry { name: "alice".into(), why: "reset".into() },
            Progress::ToolStarted {
                id: "t".into(),
                name: name.clone(),
                input: json!({}),
                summary: "ls".into(),
            },
            Progress::ToolEnded(EndedCall {
                id: "t".into(),
                name,
                end: CallEnd::Succeeded,
                content,
                changes: Vec::new(),
            }),
            Progress::TurnEnded { outcome: Outcome::Done, text: "All done.".into() },
            Progress::Note("late".into()),
        ]
    }

    const EVENTS: &str = r#"{"type":"turn_started","by_mail":true}
{"type":"mail","message_type":"message","from":"alice","to":"lead","content":"hi","timestamp":1.5,"id":"a:1","request_id":null,"verified":true}
{"type":"text","text":"All\n"}
{"type":"retry","wait_seconds":2.0,"left_seconds":40.0,"why":"reset"}
{"type":"silent","left_seconds":240.0,"why":"no first byte"}
{"type":"answers"}
{"type":"member_retry","name":"alice","why":"reset"}
{"type":"tool_started","name":"bash","summary":"ls"}
{"type":"tool_ended","name":"bash","is_error":false,"content":"a"}
{"type":"turn_ended","outcome":"done","text":"All done."}
{"type":"note","text":"late"}
"#;

    fn summary() -> Summary {
        let usage = |turns, input_tokens, output_tokens| UsageCount {
            turns,
            input_tokens,
            output_tokens,
            ..UsageCount::default()
        };
        let cost = Money::try_from(0.5).ok();
        let alice = Member {
            name: "alice".into(),
            role: "coder".into(),
            status: Status::Shutdown,
            model: "rehearsal".into(),
            usage: usage(1, 10, 1),
            ..Member::default()
        };
        Summary {
            tasks_left: Vec::new(),
            denied: Vec::new(),
            result: "All done.\n".into(),
            outcome: "done".into(),
            exit_code: 0,
            error: None,
            seconds: 1.25,
            usage: UsageCount { cache_read_tokens: 20, cost, ..usage(2, 30, 4) },
            members: vec![alice.into()],
        }
    }

    fn run(format: Format) -> (String, String) {
        let (mut out, mut narration) = (Vec::new(), Vec::new());
        let watched = Some((&mut narration, Palette::plain()));
        let mut headless = Headless::new(format, &mut out, watched);
        for event in events() {
            headless.show(&event).unwrap();
        }
        headless.finish(&summary()).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(narration).unwrap())
    }

    const RESULT: &str = concat!(
        r#"{"type":"result","schema":1,"outcome":"done","result":"All done.\n","error":null,"#,
        r#""exit_code":0,"tasks_left":[],"denied":[],"seconds":1.25,"turns":2,"usage":{"input_tokens":30,"output_tokens":4,"cache_read_tokens":20,"#,
        r#""cache_write_tokens":0,"cost":0.5},"#,
        r#""members":[{"name":"alice","role":"coder","status":"shutdown","model":"rehearsal","#,
        r#""turns":1,"usage":{"input_tokens":10,"output_tokens":1,"cache_read_tokens":0,"cache_write_tokens":0}}]}"#,
        "\n"
    );

    #[test]
    fn each_format_has_its_output_and_progress_goes_to_stderr() {
        let (out, narration) = run(Format::Text);
        assert_eq!(out, "All done.\n");
        assert!(narration.contains("⏺ bash  ls") && narration.contains("alice: hi"), "{narration}");
        assert_eq!(run(Format::Json).0, RESULT);
        assert_eq!(run(Format::StreamJson).0, format!("{EVENTS}{RESULT}"));
    }

    #[test]
    fn a_closed_stderr_ends_only_the_narration_and_a_closed_stdout_is_an_error() {
        let mut out = Vec::new();
        // Nothing can be written to an empty slice.
        let closed = || -> &mut [u8] { &mut [] };
        let narrated = Some((closed(), Palette::plain()));
        let mut headless = Headless::new(Format::StreamJson, &mut out, narrated);
        headless.show(&Progress::Note("x".into())).unwrap();
        headless.show(&Progress::Note("y".into())).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 2);
        let mut headless = Headless::new(Format::StreamJson, closed(), None::<(io::Sink, Palette)>);
        assert!(headless.show(&Progress::Note("x".into())).is_err());
    }
}
