//! Tests of a conversation on its own: real tools, a scripted model and a transcript file, but no mailbox, no
//! roster, no life lock and no team folder.

use super::*;
use crate::llm::{Redactor, Scripted};
use crate::os::SystemClock;
use crate::store::{Fsync, StoreError, Transcript};
use crate::tools::file_tools;
use crate::wire::chat::Thinking;
use crate::wire::message::Outcome;
use crate::wire::model_facts::ModelFacts;
use crate::wire::transcript::Line;
use serde_json::json;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A transcript file that no mailbox writes to.
struct OwnTranscript(RefCell<Transcript>);

impl TranscriptWriter for OwnTranscript {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        self.0.borrow_mut().append(line)
    }

    fn sync(&self) -> SyncFuture<'_> {
        Box::pin(async { self.0.borrow_mut().sync(Fsync::Always) })
    }
}

/// An owner that does not wait for room on the disk.
struct NoRoom;

impl DiskFullHandler for NoRoom {
    async fn wait(&mut self, _why: &StoreError, _is_first: bool) -> NextAttempt {
        NextAttempt::Last
    }

    fn has_room_again(&mut self) {}
}

type Results = UnboundedReceiver<(WorkId, WorkResult)>;

/// A folder with a workspace, a script for the model, and the transcript.
struct TranscriptFolder(TempDir);

impl TranscriptFolder {
    fn new(script: &[serde_json::Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        let lines: Vec<String> = script.iter().map(ToString::to_string).collect();
        let mut file = fs::File::create(folder.path().join("script")).unwrap();
        std::io::Write::write_all(&mut file, lines.join("\n").as_bytes()).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn conversation(&self) -> (Conversation, Results) {
        let model = ModelCaller {
            model: UsableModel {
                provider: Rc::new(Scripted::open(&self.path("script"), "lead", "w").unwrap()),
                facts: ModelFacts::default(),
            },
            system: "You work alone.".into(),
            max_answer_tokens: 1024,
            thinking: Thinking::default(),
            secrets: Rc::new(Redactor::new([])),
            situation: Box::new(String::new),
            show: Rc::new(|_: &Progress| {}),
        };
        let transcript = Transcript::at(self.path("transcript")).unwrap();
        let writer = Rc::new(OwnTranscript(RefCell::new(transcript)));
        let journal = Journal::new(writer, Rc::new(SystemClock));
        let tools = Rc::new(file_tools(&self.path("workspace")));
        let (report, results) = unbounded_channel();
        let report = move |id, result| report.send((id, result)).unwrap();
        (Conversation::new(journal, model, tools, report), results)
    }

    fn resumed(&self) -> (Conversation, Results) {
        let (mut conversation, results) = self.conversation();
        for entry in self.transcript() {
            conversation.remember(&entry);
        }
        (conversation, results)
    }

    fn transcript(&self) -> Vec<Entry> {
        let text = fs::read_to_string(self.path("transcript")).unwrap();
        text.lines().map(|line| Line::read(line.as_bytes()).unwrap().entry).collect()
    }
}

async fn ask(conversation: &mut Conversation, prompt: &str) {
    let prompt = Entry::User { content: prompt.into() };
    conversation.journal.record(prompt, &mut NoRoom).await.unwrap();
}

/// Runs one prompt to the model's last text; every tool call may run.
async fn run_to_end(
    conversation: &mut Conversation,
    results: &mut Results,
    prompt: &str,
) -> TurnEnd {
    ask(conversation, prompt).await;
    let mut turn = TurnMachine::new(10, VecDeque::new());
    let mut events = VecDeque::from([TurnEvent::InputTaken { unseen: 0 }]);
    loop {
        let event = match events.pop_front() {
            Some(event) => event,
            None => {
                let (id, result) = results.recv().await.unwrap();
                TurnEvent::Work(conversation.end_work(id, result).unwrap())
            }
        };
        let (next, todo) = turn.step(event);
        for action in todo {
            match action {
                TurnAction::Effect(effect) => {
                    conversation.perform(effect, &mut NoRoom).await.unwrap();
                }
                TurnAction::Host(HostAction::TakeInput) => {
                    events.push_back(TurnEvent::InputTaken { unseen: 0 });
                }
                TurnAction::Host(HostAction::Judge(call)) => {
                    let verdict = match conversation.tools.inspect(&call) {
                        Ok(_) => CallVerdict::Run,
                        Err(why) => CallVerdict::Refuse(why.to_string()),
                    };
                    events.push_back(TurnEvent::Judged(verdict));
                }
                TurnAction::Host(_) => {}
            }
        }
        match next {
            ControlFlow::Continue(next) => turn = next,
            ControlFlow::Break(end) => {
                let (outcome, rounds) = (end.outcome, end.rounds);
                let entry = Entry::TurnEnd { outcome, rounds, report: None, cut_off: false };
                conversation.journal.record(entry, &mut NoRoom).await.unwrap();
                return end;
            }
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    runtime.unwrap().block_on(test);
}

#[test]
fn a_conversation_runs_without_a_mailbox_to_its_last_text() {
    let place = TranscriptFolder::new(&[
        json!({"tools": [
            {"name": "write_file", "input": {"path": "a.txt", "content": "one\n"}},
            {"name": "read_file", "input": {"path": "a.txt"}},
        ]}),
        json!({"tools": [{"name": "read_file", "input": {"path": "missing.txt"}}]}),
        json!({"text": "a.txt says one"}),
        json!({"text": "you are welcome"}),
    ]);
    run(async {
        let (mut conversation, mut results) = place.conversation();
        let end = run_to_end(&mut conversation, &mut results, "write a.txt and read it").await;
        assert_eq!((end.outcome, end.rounds), (Outcome::Done, 3));
        assert_eq!(end.text, "a.txt says one");
        assert_eq!(fs::read_to_string(place.path("workspace/a.txt")).unwrap(), "one\n");

        // The transcript holds the intent before each result, and every call has a result.
        let entries = place.transcript();
        let mut started = Vec::new();
        let mut results_seen = 0;
        for entry in &entries {
            if let Entry::ToolStart { tool_use_id, .. } = entry {
                started.push(tool_use_id.clone());
            } else if let Entry::ToolResult { tool_use_id, content, is_error, .. } = entry {
                assert_eq!(started.last(), Some(tool_use_id));
                assert_eq!(*is_error, content.contains("missing.txt"), "{content}");
                results_seen += 1;
            }
        }
        assert_eq!((started.len(), results_seen), (3, 3));
        assert!(matches!(entries.last(), Some(Entry::TurnEnd { .. })));

        // A second conversation on the same transcript continues after the end of the first one.
        let before = conversation.journal.memory.messages();
        drop(conversation);
        let (mut resumed, mut results) = place.resumed();
        assert_eq!(resumed.journal.memory.messages(), before);
        let end = run_to_end(&mut resumed, &mut results, "thank you").await;
        assert_eq!(end.text, "you are welcome");
    });
    let mut names: Vec<_> = fs::read_dir(place.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["script", "transcript", "workspace"], "nothing else was made");
}

#[test]
fn a_reply_that_was_cancelled_is_not_taken_for_that_of_the_next_call() {
    let place = TranscriptFolder::new(&[json!({"text": "hello"})]);
    run(async {
        let (mut conversation, mut results) = place.conversation();
        ask(&mut conversation, "go").await;
        conversation.perform(TurnEffect::CallModel, &mut NoRoom).await.unwrap();
        let (late, reply) = results.recv().await.unwrap();
        conversation.perform(TurnEffect::Cancel, &mut NoRoom).await.unwrap();
        conversation.perform(TurnEffect::CallModel, &mut NoRoom).await.unwrap();
        assert!(conversation.end_work(late, reply).is_none());
        let (id, reply) = results.recv().await.unwrap();
        assert!(id != late && conversation.end_work(id, reply).is_some());
    });
}
