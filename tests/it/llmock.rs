//! A team against a server of an independent author, which refuses calls and breaks streams at random and
//! judges the client: it must be content. `scripts/llmock-check` gets it and serves.

use crate::crew::{assert_left_in_order, script};
use crate::harness::Team;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SKIPPED: i32 = 77;

/// It may have to be installed first.
const STARTING: Duration = Duration::from_secs(330);

/// The server; it ends with the test.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts it; nothing when it cannot be had here.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/llmock-check");
        let process = Command::new(check).arg(port.to_string()).spawn().unwrap();
        let mut server = Self { process, port };
        let began = Instant::now();
        while server.get("/health").is_none() {
            if let Some(ended) = server.process.try_wait().unwrap() {
                assert_eq!(ended.code(), Some(SKIPPED), "the server ended");
                return None;
            }
            assert!(began.elapsed() < STARTING, "the server does not answer");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Some(server)
    }

    /// The body of an answer; nothing when there is none.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// The story: two teammates on that server, given work again and again by a lead that reads from a script.
#[test]
fn an_independent_judge_is_content_with_a_team() {
    let Some(server) = Server::start() else {
        eprintln!("SKIPPED an_independent_judge_is_content_with_a_team: llmock cannot be had here");
        return;
    };
    let team = Team::new();
    team.variable("ANTHROPIC_API_KEY", "sk-ant-llmock");
    team.variable("ANTHROPIC_BASE_URL", &format!("http://127.0.0.1:{}/anthropic", server.port));
    let spawn = |name: &str| {
        let order = json!({"name": name, "role": "worker", "prompt": "Say hello.",
            "model": "anthropic/claude-sonnet-4-5"});
        json!({"name": "spawn_teammate", "input": order})
    };
    let mut lines = vec![json!({"agent": "lead", "tools": [spawn("alice"), spawn("bob")]})];
    lines.extend((0..40).map(|_| json!({"agent": "lead", "text": "noted"})));
    let model = script(&team, &lines);
    team.team(&["lead", "-p", "begin", "--model", &model, "--timeout", "100"]).expect(0);
    for round in 0..3 {
        let prompt = format!("go on, {round}");
        let args =
            ["--model", "anthropic/claude-sonnet-4-5", "--mode", "bypass", "--timeout", "100"];
        team.team(&[&["lead", "-p", &prompt][..], &args].concat()).expect(0);
    }
    let verdict: Value = serde_json::from_str(&server.get("/_llmock/verdict").unwrap()).unwrap();
    println!("{verdict:#}");
    assert_eq!(verdict["passed"], true, "{verdict:#}");
    assert!(verdict["calls"].as_u64() >= Some(5), "{verdict:#}");
    assert!(verdict["faults_injected"].as_u64() >= Some(1), "{verdict:#}");
    for name in ["alice", "bob"] {
        let ends = team.lines(&format!("transcript/{name}.jsonl"));
        let done =
            ends.iter().filter(|line| line["kind"] == "turn_end" && line["outcome"] == "done");
        assert_eq!(done.count(), 1, "{}", team.picture());
    }
    assert_left_in_order(&team);
}
