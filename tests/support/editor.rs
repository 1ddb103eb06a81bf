//! An editor that drives a lead over the Agent Client Protocol, by script.

use crate::support::harness::Team;
use crate::support::scripts::wait;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

/// A running `team acp`. All that it has written is kept.
pub(crate) struct Editor<'t> {
    team: &'t Team,
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    received: Arc<Mutex<Vec<Value>>>,
    last_id: u64,
    /// The id of the open session.
    pub(crate) session: String,
}

impl<'t> Editor<'t> {
    /// Starts `team acp` with these arguments.
    pub(crate) fn start(team: &'t Team, args: &[&str]) -> Self {
        let args: Vec<&str> = ["acp"].iter().chain(args).copied().collect();
        let mut command = team.command("team", &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let kept = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A line that is no message fails each later wait.
                let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
                kept.lock().unwrap().push(message);
            }
        });
        let input = child.stdin.take();
        Self { team, child, input, received, last_id: 0, session: String::new() }
    }

    /// Starts `team acp` on a model, and opens a new session in the workspace.
    pub(crate) fn open(team: &'t Team, model: &str) -> Self {
        Self::open_with(team, model, &[])
    }

    /// The same with further arguments.
    pub(crate) fn open_with(team: &'t Team, model: &str, args: &[&str]) -> Self {
        let args: Vec<&str> = ["--model", model].iter().chain(args).copied().collect();
        let mut editor = Self::start(team, &args);
        editor.initialize();
        let opened = editor.call("session/new", &editor.place());
        editor.session = opened["sessionId"].as_str().unwrap().to_owned();
        editor
    }

    pub(crate) fn initialize(&mut self) -> Value {
        self.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))
    }

    /// Returns the parameters of a request that opens a session in the workspace.
    pub(crate) fn place(&self) -> Value {
        json!({ "cwd": self.team.workspace(), "mcpServers": [] })
    }

    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&message.to_string());
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(&message.to_string());
    }

    /// Returns all messages so far.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until a search in all messages so far finds something.
    #[track_caller]
    pub(crate) fn find<T>(&self, what: &str, search: impl Fn(&[Value]) -> Option<T>) -> T {
        let mut found = None;
        self.team.eventually(what, || {
            let messages = self.messages();
            let foreign = messages.iter().find(|it| it["jsonrpc"] != "2.0");
            assert_eq!(foreign, None, "a line on stdout is no message");
            found = search(&messages);
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub(crate) fn answer_to(&self, id: u64) -> Value {
        let is_it = |it: &&Value| it["id"] == id && it.get("method").is_none();
        self.find(&format!("answer {id}"), |all| all.iter().find(is_it).cloned())
    }

    /// Waits for the result of a request.
    #[track_caller]
    pub(crate) fn result(&self, id: u64) -> Value {
        let answer = self.answer_to(id);
        assert!(answer.get("result").is_some(), "{answer:#}");
        answer["result"].clone()
    }

    /// Waits for the error of a request: its code and its text.
    #[track_caller]
    pub(crate) fn error(&self, id: u64) -> (i64, String) {
        let answer = self.answer_to(id);
        let error = &answer["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("{answer:#}"));
        (code, error["message"].as_str().unwrap().to_owned())
    }

    /// Makes a request and waits for its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.result(id)
    }

    /// Makes a request and waits for its error.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> (i64, String) {
        let id = self.request(method, params);
        self.error(id)
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) fn prompt(&mut self, text: &str) -> u64 {
        let content = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": self.session, "prompt": content });
        self.request("session/prompt", &params)
    }

    /// Waits for the reason for which a prompt was over.
    #[track_caller]
    pub(crate) fn stop_reason(&self, id: u64) -> String {
        self.result(id)["stopReason"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt, and waits until its turn has ended in order.
    #[track_caller]
    pub(crate) fn say(&mut self, text: &str) {
        let id = self.prompt(text);
        assert_eq!(self.stop_reason(id), "end_turn");
    }

    pub(crate) fn cancel(&mut self) {
        let params = json!({ "sessionId": self.session });
        self.notify("session/cancel", &params);
    }

    /// Returns the updates of a kind so far, each without its session.
    pub(crate) fn updates(&self, kind: &str) -> Vec<Value> {
        let updates = self.messages().into_iter().filter(|it| it["method"] == "session/update");
        let updates = updates.map(|it| it["params"]["update"].clone());
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// Returns the text that the agent's side has told so far.
    pub(crate) fn text(&self) -> String {
        let chunks = self.updates("agent_message_chunk").into_iter();
        chunks.map(|chunk| chunk["content"]["text"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn wait_text(&self, text: &str) {
        self.find(&format!("the editor is told {text:?}"), |_| {
            self.text().contains(text).then_some(())
        });
    }

    /// Returns all that was told of the call whose id ends so, merged.
    pub(crate) fn tool_call(&self, id: &str) -> Value {
        let mut whole = json!({});
        for message in self.messages().iter().filter(|it| it["method"] == "session/update") {
            let update = &message["params"]["update"];
            let is_it = update["toolCallId"].as_str().is_some_and(|it| it.ends_with(id));
            if let Some(fields) = update.as_object().filter(|_| is_it) {
                whole.as_object_mut().unwrap().extend(fields.clone());
            }
        }
        whole
    }

    /// Waits for the question of this number, from 0, and returns its id and its parameters.
    #[track_caller]
    pub(crate) fn question(&self, number: usize) -> (Value, Value) {
        self.find(&format!("question {number}"), |all| {
            let asked = all.iter().filter(|it| it["method"] == "session/request_permission");
            asked.clone().nth(number).map(|it| (it["id"].clone(), it["params"].clone()))
        })
    }

    /// Returns the number of questions so far.
    pub(crate) fn questions(&self) -> usize {
        let is_question = |it: &&Value| it["method"] == "session/request_permission";
        self.messages().iter().filter(is_question).count()
    }

    /// Selects an option of a question.
    pub(crate) fn choose(&mut self, question: &Value, option: &str) {
        self.answer(question, &json!({ "outcome": { "outcome": "selected", "optionId": option } }));
    }

    /// Answers a request of the agent's side.
    pub(crate) fn answer(&mut self, id: &Value, result: &Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.write(&message.to_string());
    }

    /// Closes the input, and waits until the program has exited.
    #[track_caller]
    pub(crate) fn end(mut self) -> Option<i32> {
        self.input.take();
        wait(self.team, &mut self.child)
    }
}
