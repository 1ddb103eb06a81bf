//! `script:FILE`: a provider that reads its replies from a file of JSON Lines, for tests and demos.
//!
//! One line is one reply of one agent; docs/script.md describes the fields. The number of assistant messages in
//! the request selects the reply, so that a resumed agent continues at the end of its transcript. The ids of tool
//! calls are `script-<agent>-<word>-<turn>-<k>`; the word identifies the conversation. A line with `error` fails
//! one call per process, before the reply of the next line. Requests must keep the rules of `request_checks.rs`.

use super::provider::{Delta, ModelError, Provider, Sink, TurnFuture};
use super::registry::{ConnectError, Connected, ModelName, ProviderSpec};
use super::request_checks::check;
use crate::wire::chat::{Block, Reply, Request, Role, StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// `script:FILE`: replies from a file.
pub static SPEC: ProviderSpec = ProviderSpec {
    model_name: ModelName::File,
    connect: |connection| {
        let word = connection.conversation;
        // The id of a conversation begins with the time; only its end is random.
        let word = word.get(word.len().saturating_sub(8)..).unwrap_or(word);
        let scripted = Scripted::open(Path::new(connection.model), connection.agent, word);
        let scripted = scripted.map_err(|why| ConnectError::Setup(why.to_string()))?;
        Ok(Connected { provider: Rc::new(scripted), warning: None })
    },
    ..ProviderSpec::new("script", "docs/script.md describes the format")
};

/// The text of a reply after the last line of the script.
const OVER: &str = "(script over)";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default = "lead")]
    agent: String,
    text: Option<String>,
    #[serde(default)]
    tools: Vec<Call>,
    stop_reason: Option<StopReason>,
    #[serde(default)]
    delay_ms: u64,
    error: Option<Trouble>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    input: Value,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Trouble {
    Unavailable,
    Credentials,
    SpendCap,
    ContextFull,
    Rejected,
}

fn lead() -> String {
    "lead".into()
}

/// The replies of one agent.
#[derive(Debug)]
pub struct Scripted {
    agent: String,
    /// The word that identifies the conversation, so that call ids of two conversations differ.
    word: String,
    lines: Vec<Line>,
    /// The current turn, and the number of its errors that were returned.
    happened: Cell<(usize, usize)>,
}

impl Scripted {
    /// Reads the lines of `agent` from a script; `word` identifies its conversation. An error names the file, the
    /// line and the problem.
    pub fn open(file: &Path, agent: &str, word: &str) -> Result<Self, ModelError> {
        let shown = file.display();
        let text = fs::read_to_string(file)
            .map_err(|cause| ModelError::Script(format!("cannot read {shown}: {cause}")))?;
        Self::read(&text, agent, word)
            .map_err(|(line, why)| ModelError::Script(format!("{shown}, line {line}: {why}")))
    }

    fn read(text: &str, agent: &str, word: &str) -> Result<Self, (usize, String)> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let line: Line =
                serde_json::from_str(line).map_err(|cause| (number, cause.to_string()))?;
            if line.error.is_some() && (line.text.is_some() || !line.tools.is_empty()) {
                return Err((number, "a line is an error or a reply, not both".into()));
            }
            lines.push(line);
        }
        lines.retain(|line| line.agent == agent);
        Ok(Self { agent: agent.into(), word: word.into(), lines, happened: Cell::default() })
    }

    /// Returns the lines of a turn: its errors, then its reply. The last turn may have only errors.
    fn turn_lines(&self, at: usize) -> &[Line] {
        self.lines.split_inclusive(|line| line.error.is_none()).nth(at).unwrap_or_default()
    }

    async fn answer(&self, request: &Request, sink: Sink<'_>) -> Result<Reply, ModelError> {
        check(request).map_err(ModelError::Script)?;
        let said = request.messages.iter().filter(|message| message.role == Role::Assistant);
        let at = said.count();
        self.check_end(request, at)?;
        let (current, happened) = self.happened.get();
        let happened = if current == at { happened } else { 0 };
        let Some(line) = self.turn_lines(at).get(happened) else {
            return Ok(reply(OVER.into(), &[], sink));
        };
        if line.error.is_some() {
            self.happened.set((at, happened + 1));
        }
        sleep(Duration::from_millis(line.delay_ms)).await;
        if let Some(error) = line.error {
            return Err(trouble(error));
        }
        let calls: Vec<Block> =
            (0..).zip(&line.tools).map(|(k, call)| self.call(at, k, call)).collect();
        let reply = reply(line.text.clone().unwrap_or_default(), &calls, sink);
        let stop_reason = line.stop_reason.clone().unwrap_or(reply.stop_reason);
        Ok(Reply { stop_reason, usage: line.usage, ..reply })
    }

    /// Checks that the conversation ends with a user message. Only a paused turn may be sent again without one.
    fn check_end(&self, request: &Request, at: usize) -> Result<(), ModelError> {
        let waits = request.messages.last().is_some_and(|last| last.role == Role::User);
        let before = at.checked_sub(1).and_then(|before| self.turn_lines(before).last());
        let is_pause =
            |line: &Line| line.error.is_none() && line.stop_reason == Some(StopReason::PauseTurn);
        if waits || before.is_some_and(is_pause) {
            return Ok(());
        }
        Err(ModelError::Script("the conversation does not end with a user message".into()))
    }

    fn call(&self, turn: usize, k: usize, call: &Call) -> Block {
        Block::ToolUse {
            id: format!("script-{}-{}-{turn}-{k}", self.agent, self.word),
            name: call.name.clone(),
            input: if call.input.is_null() { json!({}) } else { call.input.clone() },
        }
    }
}

impl Provider for Scripted {
    fn label(&self) -> String {
        "script".into()
    }

    fn turn<'a>(&'a self, request: &'a Request, sink: Sink<'a>) -> TurnFuture<'a> {
        Box::pin(self.answer(request, sink))
    }
}

fn reply(text: String, calls: &[Block], sink: Sink<'_>) -> Reply {
    let mut blocks = Vec::new();
    if !text.is_empty() {
        sink(Delta::Text(text.clone()));
        blocks.push(Block::Text { text });
    }
    blocks.extend_from_slice(calls);
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    Reply { blocks, stop_reason, usage: Usage::default(), model: "script".into() }
}

fn trouble(trouble: Trouble) -> ModelError {
    let why = "the script says so".to_owned();
    match trouble {
        Trouble::Unavailable => ModelError::Unavailable(why),
        Trouble::Credentials => ModelError::Credentials(why),
        Trouble::SpendCap => ModelError::SpendCap(why),
        Trouble::ContextFull => ModelError::ContextFull(why),
        Trouble::Rejected => ModelError::Rejected(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{self, result, text};
    use crate::wire::chat::ChatMessage;
    use std::io::Write;

    const SCRIPT: &str = r#"
        {"text":"one","tools":[{"name":"bash","input":{"command":"ls"}},{"name":"idle"}]}
        {"agent":"alice","text":"hers","usage":{"output_tokens":5}}
        {"error":"unavailable"}
        {"error":"spend_cap"}
        {"text":"two","stop_reason":"pause_turn"}
        {"error":"context_full"}
    "#;

    fn request(replies: &[&Reply]) -> Request {
        let mut messages = vec![vec![text("go")]];
        for reply in replies {
            let results = reply.blocks.iter().filter_map(|block| {
                if let Block::ToolUse { id, .. } = block {
                    Some(result(id, "ok", false))
                } else {
                    None
                }
            });
            messages.extend([reply.blocks.clone(), results.chain([text("more")]).collect()]);
        }
        fixtures::request(messages)
    }

    fn script(agent: &str) -> Scripted {
        Scripted::read(SCRIPT, agent, "w").unwrap()
    }

    async fn ask(script: &Scripted, request: &Request) -> Result<Reply, ModelError> {
        script.turn(request, &mut |_| ()).await
    }

    #[tokio::test]
    async fn replies_follow_the_conversation_and_errors_occur_once() {
        let lead = script("lead");
        let one = ask(&lead, &request(&[])).await.unwrap();
        assert_eq!((one.text().as_str(), &one.stop_reason), ("one", &StopReason::ToolUse));
        assert!(matches!(&one.blocks[1], Block::ToolUse { id, .. } if id == "script-lead-w-0-0"));
        assert!(matches!(&one.blocks[2], Block::ToolUse { id, input, .. }
            if id == "script-lead-w-0-1" && *input == json!({})));

        let then = request(&[&one]);
        assert!(matches!(ask(&lead, &then).await, Err(ModelError::Unavailable(_))));
        assert!(matches!(ask(&lead, &then).await, Err(ModelError::SpendCap(_))));
        let two = ask(&lead, &then).await.unwrap();
        assert_eq!((two.text().as_str(), &two.stop_reason), ("two", &StopReason::PauseTurn));

        let mut paused = request(&[&one, &two]);
        paused.messages.pop();
        assert!(matches!(ask(&lead, &paused).await, Err(ModelError::ContextFull(_))));
        let over = ask(&lead, &paused).await.unwrap();
        assert_eq!((over.text().as_str(), over.stop_reason), (OVER, StopReason::EndTurn));
    }

    #[tokio::test]
    async fn each_agent_has_its_own_lines_and_a_new_process_continues() {
        let alice = script("alice");
        let reply = ask(&alice, &request(&[])).await.unwrap();
        assert_eq!((reply.text().as_str(), reply.usage.output_tokens), ("hers", 5));
        assert_eq!(ask(&alice, &request(&[&reply])).await.unwrap().text(), OVER);
        assert_eq!(ask(&script("bob"), &request(&[])).await.unwrap().text(), OVER);

        let one = ask(&script("lead"), &request(&[])).await.unwrap();
        let resumed = script("lead");
        assert!(ask(&resumed, &request(&[&one])).await.is_err());
        assert!(ask(&resumed, &request(&[&one])).await.is_err());
        assert_eq!(ask(&resumed, &request(&[&one])).await.unwrap().text(), "two");
    }

    #[tokio::test]
    async fn a_request_that_breaks_the_rules_is_refused() {
        let mut broken = request(&[]);
        broken.messages.push(ChatMessage { role: Role::Assistant, blocks: vec![] });
        assert!(matches!(ask(&script("lead"), &broken).await, Err(ModelError::Script(_))));
        broken.messages.clear();
        assert!(matches!(ask(&script("lead"), &broken).await, Err(ModelError::Script(_))));
    }

    #[test]
    fn errors_in_the_file_are_reported_with_their_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bad, complaint) in [
            ("{\"txet\":\"x\"}", "txet"),
            ("not json", "expected"),
            ("{\"error\":\"tired\"}", "tired"),
            ("{\"error\":\"rejected\",\"text\":\"x\"}", "not both"),
        ] {
            file.as_file().set_len(0).unwrap();
            file.reopen().unwrap().write_all(format!("\n{bad}\n").as_bytes()).unwrap();
            let error = Scripted::open(file.path(), "lead", "w").unwrap_err().to_string();
            assert!(error.contains("line 2: ") && error.contains(complaint), "{error}");
        }
        let missing = Scripted::open(Path::new("/nowhere/script"), "lead", "w").unwrap_err();
        assert!(missing.to_string().contains("/nowhere/script"));
    }
}
