//! A team against llmock, a server of an independent author. It refuses calls and breaks streams on request, and
//! checks the client. `scripts/llmock-check` installs and runs it.

use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, script};
use crate::support::skips::skipped;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SKIPPED: i32 = 77;

/// The time limit for the start of the server, including its installation.
const STARTING: Duration = Duration::from_secs(330);

/// Ports that the kernel does not hand to those who ask for any: between the choice of the port and the start of the
/// server may lie its installation, and another test must not get the port in that time.
const PORTS: Range<u16> = 20_000..30_000;

/// The server process, killed on drop with what it started.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts the server, or returns `None` if it cannot be installed here.
    fn start() -> Option<Self> {
        let port =
            PORTS.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/llmock-check");
        let process = Command::new(check).arg(port.to_string()).process_group(0).spawn().unwrap();
        let mut server = Self { process, port };
        let began = Instant::now();
        while !server.is_serving() {
            if let Some(ended) = server.process.try_wait().unwrap() {
                assert_eq!(ended.code(), Some(SKIPPED), "the server ended");
                return None;
            }
            assert!(began.elapsed() < STARTING, "the server does not answer");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Some(server)
    }

    /// Whether llmock answers on the port, and not another server.
    fn is_serving(&self) -> bool {
        self.get("/health").is_some_and(|body| body.contains("\"version\""))
    }

    /// Requests a path. Returns the body of the response, or `None` if there is none.
    fn get(&self, path: &str) -> Option<String> {
        self.ask("GET", path, "")
    }

    /// The response as JSON.
    fn tells(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).unwrap()).unwrap()
    }

    /// Sets the faults of the next calls.
    fn order(&self, behaviors: &[Value]) {
        let order = json!({ "behaviors": behaviors }).to_string();
        let said = self.ask("POST", "/_llmock/scenario", &order).unwrap();
        assert!(said.contains("\"queued\""), "{said}");
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let _ended = killpg(group, Signal::SIGKILL);
        let _reaped = self.process.wait();
    }
}

/// The number of chunks in the answer to a first call: message start, text start, ping, two words, text end; tool
/// call start, input, tool call end; two chunks for the end of the message.
const CHUNKS: usize = 11;

/// Each member has its own model, so that the server can tell their calls apart.
const TEAMMATES: [&str; CHUNKS - 1] =
    ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy"];

/// The behaviour of the server for a member: its first call gets one refusal, three broken streams, then an answer
/// with a tool call. The second call is answered normally. Over all members, every kind of break occurs at every
/// chunk.
///
/// Random faults do not work here. A call with ten faults in a row is given up, and the checker, which sees only
/// requests, takes the last fault for an accepted stream.
fn fate(model: &str, place: usize) -> Vec<Value> {
    let whose = json!({ "model": model });
    let status = if place.is_multiple_of(2) { 429 } else { 503 };
    let breaks = ["truncate", "malformed", "disconnect"].iter().enumerate().map(|(kind, word)| {
        let chunk = (place + 4 * kind) % CHUNKS;
        json!({"type": "stream_fault", "kind": word, "after_chunks": chunk, "match": whose})
    });
    let look = json!([{"name": "list_teammates", "arguments": {}}]);
    let first =
        json!({"type": "reply", "text": "I look.", "tool_calls": look, "times": 4, "match": whose});
    let second = json!({"type": "reply", "text": "Hello.", "times": null, "match": whose});
    let refusal = json!({"type": "fail", "status": status, "retry_after": 0.3, "match": whose});
    [refusal].into_iter().chain(breaks).chain([first, second]).collect()
}

/// The requests of each call in order. A repeated request has the same content.
fn attempts(server: &Server) -> BTreeMap<String, Vec<Value>> {
    let mut calls: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut request in server.tells("/_llmock/requests")["requests"].as_array().unwrap().clone() {
        request.as_object_mut().unwrap().remove("body");
        calls.entry(request["fingerprint"].to_string()).or_default().push(request);
    }
    calls
}

/// Ten teammates and their lead get one prompt each. Each first call is refused once and broken three times.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn an_independent_server_accepts_the_requests_of_a_team() {
    let Some(server) = Server::start() else {
        skipped("llmock cannot be had here");
        return;
    };
    let team = Team::new();
    team.variable("ANTHROPIC_API_KEY", "sk-ant-llmock");
    team.variable("ANTHROPIC_BASE_URL", &format!("http://127.0.0.1:{}/anthropic", server.port));
    let members = TEAMMATES.iter().chain(&["lead"]);
    members.clone().enumerate().for_each(|(place, name)| server.order(&fate(name, place)));
    let spawn = |name: &&str| {
        let order = json!({"name": name, "role": "worker", "prompt": "Say hello.",
            "model": format!("anthropic/{name}")});
        json!({"name": "spawn_teammate", "input": order})
    };
    let spawns: Vec<Value> = TEAMMATES.iter().map(spawn).collect();
    let mut lines = vec![json!({"agent": "lead", "tools": spawns})];
    lines.extend((0..40).map(|_| json!({"agent": "lead", "text": "noted"})));
    let model = script(&team, &lines);
    team.team(&["lead", "-p", "begin", "--model", &model, "--timeout", "600"]).expect(0);
    let args = ["lead", "-p", "go on", "--model", "anthropic/lead", "--timeout", "600"];
    team.team(&args).expect(0);

    let verdict = server.tells("/_llmock/verdict");
    println!("{verdict:#}");
    let calls = attempts(&server);
    assert_eq!(verdict["passed"], true, "{verdict:#}\n{calls:#?}");
    assert_eq!(verdict["faults_injected"], 4 * (TEAMMATES.len() + 1), "{verdict:#}\n{calls:#?}");
    // For a stream with an invalid chunk that was sent completely, the checker does not notice whether it is
    // requested again. So the test checks each call, too.
    assert_eq!(calls.len(), 2 * (TEAMMATES.len() + 1), "{calls:#?}");
    for tries in calls.values() {
        let faults: Vec<&Value> = tries.iter().map(|request| &request["fault"]).collect();
        let is_whole = tries.last().is_some_and(|last| last["fault"].is_null());
        assert!(is_whole && matches!(tries.len(), 1 | 5), "{faults:?}");
    }
    for name in members {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        let count = |kind: &str, key: &str, word: &str| {
            lines.iter().filter(|line| line["kind"] == kind && line[key] == word).count()
        };
        let did =
            [count("turn_end", "outcome", "done"), count("tool_start", "name", "list_teammates")];
        assert_eq!(did, [1, 1], "{name}: {}", team.describe());
    }
    assert_left_in_order(&team);
}
