//! Keys of models that one host sends to another one: a teammate there works with one, and it is nowhere else. What hosts tell each
//! other cannot be read on its way.

use crate::lead::{Lead, said};
use crate::machines::{Machine, Machines};
use crate::rig::files::{temporary_folder, write_private};
use crate::rig::process::spawn_tied;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

/// A key of a model.
const CANARY: &str = "sk-ant-canary-0123456789-key";

/// A text that members write to each other.
const MAIL: &str = "the tide is low at seven";

/// Writes all frames that reach a network namespace into a file.
const SNIFFER: &str = "
import socket, sys
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
with open(sys.argv[1], 'wb', buffering=0) as out:
    while True:
        out.write(frames.recv(1 << 17))
";

/// A server with the API of Anthropic's models. It answers each request with the same words, and writes its key into a file.
const MODEL: &str = r#"
import http.server, json, sys
USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "fake", "content": [], "stop_reason": None, "usage": USAGE}
EVENTS = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is done."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
]
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        with open(sys.argv[1], "a") as keys:
            keys.write(self.headers.get("x-api-key", "none") + "\n")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in EVENTS:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    def log_message(self, *rest):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8642), Model)
open(sys.argv[1], "a").close()
server.serve_forever()
"#;

/// A host on which a server of models runs.
struct ModelServer {
    process: Child,
    folder: tempfile::TempDir,
}

impl ModelServer {
    /// Starts it, and has teammates of the host use it.
    fn start(machine: &Machine) -> Self {
        let folder = temporary_folder();
        let mut command = machine.command_of(Path::new("python3"));
        command.args(["-c", MODEL]).arg(folder.path().join("keys"));
        let process = spawn_tied(command).unwrap();
        let settings = machine.folder().join(".config/team");
        fs::create_dir_all(&settings).unwrap();
        let text =
            "model = \"anthropic/fake\"\n[anthropic]\nbase_url = \"http://127.0.0.1:8642\"\n";
        write_private(&settings.join("settings.toml"), text);
        Self { process, folder }
    }

    /// Returns the keys of the requests so far.
    fn keys(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("keys")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn is_there(&self) -> bool {
        self.folder.path().join("keys").exists()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() && fs::read(&path).is_ok_and(|bytes| contains(&bytes, text)) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Returns the processes whose environment or arguments contain a text.
fn processes_with(text: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_it = |pid: &i32| {
        let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        contains(&file("environ"), text) || contains(&file("cmdline"), text)
    };
    pids.filter(has_it).collect()
}

fn is_idle(machine: &Machine, member: &str) -> bool {
    machine.member(member).is_some_and(|it| it["status"] == "idle" && it["alive"] == true)
}

/// Sends carol a message from ann, which may not know yet that she has been started again.
fn send(machines: &Machines, text: &str) {
    let ann = machines.get("ann");
    machines
        .eventually("carol can be reached", || ann.team(&["send", "carol", text]).status.success());
}

#[test]
fn a_key_that_is_sent_is_in_the_memory_of_its_host_and_nowhere_else() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let captured = temporary_folder();
    let captured = captured.path().join("frames");
    let mut sniffer = machines.network.hub().command("python3");
    sniffer.args(["-c", SNIFFER]).arg(&captured).stdin(Stdio::null());
    let mut sniffer = spawn_tied(sniffer).unwrap();
    machines.eventually("frames are captured", || captured.exists());
    let model = ModelServer::start(machines.get("gpu1"));
    machines.eventually("the model runs", || model.is_there());
    // The lead starts the relay, and gives it the key through a pipe.
    machines.get_mut("ann").end_relay();
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let mut command = ann.command("team");
    command.env("ANTHROPIC_API_KEY", CANARY);
    let mut lead = Lead::run(ann, command, &[]);
    machines.eventually("gpu1 knows the lead", || gpu.is_alive("lead") == Some(true));
    let told = ann.team_ok(&["host", "send-key", "gpu1", "ANTHROPIC_API_KEY"]);
    assert!(told.contains("gpu1 gets ANTHROPIC_API_KEY"), "{told}");
    assert!(ann.team_ok(&["host", "ls"]).contains("ANTHROPIC_API_KEY"));
    lead.say("Spawn carol (trainer) on gpu1.");
    machines.eventually("carol has answered", || !model.keys().is_empty() && is_idle(ann, "carol"));
    ann.team_ok(&["send", "carol", MAIL]);
    machines.eventually("she has read it", || gpu.transcript("carol").contains(MAIL));
    // She is started again with the key, which her supervisor has in its memory.
    let pid = || gpu.member("carol").and_then(|it| it["pid"].as_i64()).unwrap_or_default();
    let (first, asked) = (pid(), model.keys().len());
    kill(Pid::from_raw(first.try_into().unwrap()), Signal::SIGKILL).unwrap();
    machines.eventually("she is started again", || pid() != first && is_idle(ann, "carol"));
    send(&machines, "again");
    machines.eventually("she has answered again", || model.keys().len() > asked);
    assert!(model.keys().iter().all(|key| key == CANARY), "{:?}", model.keys());

    let in_lead = |pid: &i32| *pid == lead.pid();
    let others: Vec<_> = processes_with(CANARY).into_iter().filter(|pid| !in_lead(pid)).collect();
    assert_eq!(others, Vec::<i32>::new(), "it is in the environment of the lead alone");
    let store = machines.server.store();
    for folder in [ann.folder(), gpu.folder(), &store] {
        assert_eq!(files_with(folder, CANARY), Vec::<String>::new());
    }
    // The rest can tell: mail is in files and not on the wire, and names are on the wire.
    assert!(!files_with(gpu.folder(), MAIL).is_empty());
    let frames = fs::read(&captured).unwrap();
    assert!(contains(&frames, "member.gpu1.carol"), "{} bytes", frames.len());
    assert!(!contains(&frames, CANARY) && !contains(&frames, MAIL));

    // A new teammate gets none, though the same supervisor goes on with carol; she keeps hers. The address is set there, so dave asks.
    let told = ann.team_ok(&["host", "send-key", "gpu1", "--none"]);
    assert!(told.contains("gpu1 gets no key any more"), "{told}");
    lead.say("Spawn dave (trainer) on gpu1.");
    machines.eventually("dave asks without a key", || {
        model.keys().last().is_some_and(|key| key == "none") && is_idle(ann, "dave")
    });
    let (second, asked) = (pid(), model.keys().len());
    kill(Pid::from_raw(second.try_into().unwrap()), Signal::SIGKILL).unwrap();
    machines.eventually("carol is started again", || pid() != second && is_idle(ann, "carol"));
    send(&machines, "once more");
    machines.eventually("she has answered", || model.keys().len() > asked);
    assert!(model.keys()[asked..].iter().all(|key| key == CANARY), "{:?}", model.keys());
    // A key that is not set here is no key.
    ann.team_ok(&["host", "send-key", "gpu1", "OPENAI_API_KEY"]);
    lead.say("Spawn erin (trainer) on gpu1.");
    machines.eventually("the lead is told", || {
        ann.transcript("lead").contains("gpu1 is to get OPENAI_API_KEY, which was not set")
    });
    assert!(gpu.member("erin").is_none());
    assert_eq!(lead.quit(), Some(0), "{}", said(ann));
    sniffer.kill().unwrap();
    sniffer.wait().unwrap();
}

#[test]
fn a_key_is_sent_to_a_known_host_and_only_if_it_is_one() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let ann = machines.get("ann");
    machines.eventually("ann hears gpu1", || ann.team_ok(&["host", "ls"]).contains(" up "));
    for (args, words) in [
        (["gpu2", "ANTHROPIC_API_KEY"], "did you mean gpu1?"),
        (["ann", "ANTHROPIC_API_KEY"], "it is this host"),
        (["gpu1", "PATH"], "these are: ANTHROPIC_API_KEY"),
    ] {
        let refused = ann.team(&[&["host", "send-key"], &args[..]].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(words), "{args:?}: {said}");
    }
    assert!(ann.team(&["host", "send-key", "gpu1"]).status.code() == Some(2));
    assert!(!ann.team_ok(&["host", "ls"]).contains("KEYS"));
    let told = ann.team_ok(&["host", "send-key", "gpu1", "OPENAI_API_KEY"]);
    assert!(told.contains("Not set here: OPENAI_API_KEY"), "{told}");
}
