//! A client that speaks MCP over the input and output of a real `team mcp`.

use crate::support::harness::Team;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A client and its server.
pub(crate) struct Client {
    pub(crate) server: Child,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: BufReader<ChildStdout>,
    count: u64,
    /// The texts of results at which no wait for mail has looked.
    results: Vec<String>,
}

impl Client {
    pub(crate) fn start(team: &Team, args: &[&str]) -> Self {
        let mut command = team.command("team", &[&["mcp"], args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().unwrap());
        Self { server, input, output, count: 0, results: Vec::new() }
    }

    /// Starts a client that has joined; `program` is its name.
    pub(crate) fn join(team: &Team, args: &[&str], program: &str) -> Self {
        let mut client = Self::start(team, args);
        let answer = client.shake_hands(program);
        assert!(answer["result"]["instructions"].is_string(), "{answer}");
        client
    }

    pub(crate) fn shake_hands(&mut self, program: &str) -> Value {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": program, "version": "2.1" } });
        let answer = self.ask("initialize", &params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        answer
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request without waiting for its answer; returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.count += 1;
        let id = self.count;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        id
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let answer = self.receive();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool; returns the text of the result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        self.results.push(text(&answer));
        text(&answer)
    }

    /// Returns the first result that has mail with this text, also one of an earlier call: mail comes with any answer.
    pub(crate) fn wait_mail(&mut self, part: &str) -> String {
        let has_it = |result: &String| {
            result.split_once("<inbox>\n").is_some_and(|(_, mail)| mail.contains(part))
        };
        for waits in 0..3 {
            if waits > 0 {
                self.results.clear();
                self.call("check_inbox", &json!({ "wait_seconds": 45 }));
            }
            if let Some(at) = self.results.iter().position(has_it) {
                return self.results.drain(..=at).next_back().unwrap();
            }
        }
        panic!("no mail has {part:?}");
    }

    /// Ends the input; returns the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        self.server.wait().unwrap().code()
    }

    pub(crate) fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

pub(crate) fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Returns the contents of the mail in a result.
pub(crate) fn mail_in(result: &str) -> Vec<String> {
    let Some((_, rest)) = result.split_once("<inbox>\n") else { return Vec::new() };
    let block = rest.split("\n</inbox>").next().unwrap();
    let mail: Vec<Value> = serde_json::from_str(block).unwrap();
    mail.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}
