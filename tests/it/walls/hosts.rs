//! Commands that reach named hosts alone: a new one is a question, and public names hold at a real server.

use super::teams::printed;
use crate::support::approvals::{requests, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::{Team, has_python};
use crate::support::machines::refuse_calls;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, scripted_lead, spawn, tool_results,
};
use crate::support::skips::skipped;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

/// A call of `bash` that is to reach hosts.
fn reaching(command: &str, hosts: &[&str]) -> (&'static str, Value) {
    ("bash", json!({ "command": command, "hosts": hosts }))
}

fn set(team: &Team, settings: &str) {
    let folder = team.workspace().join(".config/team");
    fs::create_dir_all(&folder).unwrap();
    write(&folder.join("settings.toml"), settings);
}

/// Starts a server on loopback that answers `hello` to each request. Returns its host and port.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut read = [0; 1024];
            let asked = client.read(&mut read).unwrap_or_default();
            let answer = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..];
            client.write_all(if asked > 0 { answer } else { b"" }).unwrap_or_default();
        }
    });
    format!("localhost:{port}")
}

/// A command that fetches a page through the proxy around it.
fn fetch(host: &str) -> String {
    format!(
        "python3 -c 'import os, urllib.request as r; \
         p = r.ProxyHandler({{\"http\": os.environ[\"http_proxy\"]}}); os.environ[\"no_proxy\"] = \"\"; \
         print(r.build_opener(p).open(\"http://{host}/\").read().decode())'"
    )
}

fn a_new_host_is_a_question(team: &Team) {
    team.variable("TEAM_MODE", "default");
    set(
        team,
        "[permissions]\nallow = [\"bash\", \"network(*.allowed.test)\"]\ndeny = [\"network(*.denied.test)\"]\n",
    );
    let host = server();
    let get = fetch(&host);
    // Each question shows text of its own, so that no answer is typed under another one.
    let marked = |mark: &str| format!("echo {mark}; {get}");
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls(
            "alice",
            &[
                bash(&get),
                reaching(&get, &["a.denied.test"]),
                reaching("echo ran", &["b.allowed.test"]),
                reaching(&marked("first"), &[&host]),
                reaching(&marked("second"), &[&host]),
                reaching(&marked("third"), &[&host]),
                reaching(&get, &[&host]),
                bash(&get),
            ],
        ),
        says("alice", "alice is done"),
        says("lead", "the lead is done"),
    ];
    let mut lead = scripted_lead(team, &replies);
    lead.expect(&format!("alice asks to reach {host} with:"));
    lead.expect("echo first;");
    wait_asked(team, "alice");
    let asked = &requests(team)[0];
    assert_eq!(
        (&asked["kind"], &asked["description"]),
        (&json!("sandbox"), &json!(marked("first")))
    );
    lead.type_line("n not there");
    lead.expect("echo second;");
    wait_asked(team, "alice");
    lead.type_line("y");
    lead.expect("echo third;");
    wait_asked(team, "alice");
    lead.type_line("always");
    lead.expect("the lead is done");
    team.eventually("alice is done", || team.has_mail("lead", "alice", "alice is done"));
    let results = tool_results(team, "alice");
    let refused = |at: usize, words: &str| {
        let (_, text, _) = &results[at];
        assert!(!text.contains("hello") && text.contains(words), "{at}: {results:#?}");
    };
    refused(0, &format!("the proxy around commands refused {host}"));
    refused(0, &format!("repeat the command with \"hosts\": [\"{host}\"]"));
    refused(1, "denied by the rule \"network(*.denied.test)\"");
    assert_eq!(results[2].1, "ran\n", "a rule needs no question");
    refused(3, "not there");
    for (at, printed) in [(4, "second\nhello\n"), (5, "third\nhello\n"), (6, "hello\n")] {
        assert_eq!(results[at].1, printed, "{at}: {results:#?}");
    }
    refused(7, "refused");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

fn hosts_team(prepare: impl FnOnce(&mut Team)) -> Option<Team> {
    if !has_python("hosts that commands reach") {
        return None;
    }
    let mut team = Team::new();
    prepare(&mut team);
    team.variable("TEAM_SANDBOX_NETWORK", "hosts");
    super::can_wall(&team).then_some(team)
}

#[test]
fn a_new_host_is_a_question_to_the_user() {
    if let Some(team) = hosts_team(|_| ()) {
        a_new_host_is_a_question(&team);
    }
}

/// There the supervisor judges each connection.
#[test]
fn a_new_host_is_a_question_without_namespaces() {
    if let Some(team) = hosts_team(|team| refuse_calls(team, "namespaces")) {
        a_new_host_is_a_question(&team);
    }
}

/// Speaks through a tunnel to a host: plain text, or the greeting of TLS with another name in it.
const TUNNEL: &str = r#"
import os, socket, ssl, sys
target, name = sys.argv[1:]
proxy = socket.create_connection(("127.0.0.1", 3128))
proxy.settimeout(20)
proxy.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
status = proxy.recv(4096).decode().split("\r\n")[0]
out = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
if name != "plain":
    into, outof = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(into, outof, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    out = outof.read()
try:
    proxy.sendall(out)
    answer = proxy.recv(4096)
except OSError:
    answer = b""
print(target, name, status.split()[1], "reached" if b"hello" in answer else "closed")
"#;

/// Names with public addresses, in a network of the test's own.
#[test]
fn a_public_host_is_reached_by_its_own_name_alone() {
    let unshare = if geteuid().is_root() { ["--net", "--mount"] } else { ["-rn", "--mount"] };
    let can = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|it| it.status.success())
    };
    let ip = "ip link set lo up && ip address add 1.2.3.4/32 dev lo";
    if !can("unshare", &[unshare[0], unshare[1], "sh", "-c", ip]) {
        return skipped("no network of the test's own: it needs unshare and ip");
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/public_hosts.py");
    let (launcher, path) = (launcher.display().to_string(), log.path().display().to_string());
    let team = hosts_team(|team| {
        team.start_by(&["unshare", unshare[0], unshare[1], "python3", "-B", &launcher, &path]);
    });
    let Some(team) = team else { return };
    set(
        &team,
        "[sandbox]\nhosts = [\"a.team.test\", \"internal.team.test\", \"rebound.team.test\", \"b.team.test:22\"]\n",
    );
    write(&team.workspace().join("tunnel.py"), TUNNEL);
    let tries = [
        "a.team.test:443 a.team.test",
        "a.team.test:443 b.team.test",
        "a.team.test:443 plain",
        "b.team.test:443 a.team.test",
        "internal.team.test:443 internal.team.test",
        "rebound.team.test:443 rebound.team.test",
        "1.2.3.4:443 a.team.test",
        "a.team.test:22 plain",
        "b.team.test:22 plain",
    ];
    let mut commands: Vec<String> =
        tries.iter().map(|words| format!("python3 tunnel.py {words}")).collect();
    commands.push(fetch("a.team.test"));
    commands.push(format!("{} ; echo", fetch("b.team.test")));
    let all: Vec<_> = commands.iter().map(|command| bash(command)).collect();
    let model = script(&team, &[calls("lead", &all), says("lead", "done")]);
    headless(&team, &model, "begin").expect(0);
    let lines: Vec<String> =
        printed(&team, "lead").iter().map(|text| text.lines().next().unwrap().into()).collect();
    assert_eq!(
        lines[..9],
        [
            "a.team.test:443 a.team.test 200 reached",
            "a.team.test:443 b.team.test 200 closed",
            "a.team.test:443 plain 200 closed",
            "b.team.test:443 a.team.test 403 closed",
            "internal.team.test:443 internal.team.test 403 closed",
            "rebound.team.test:443 rebound.team.test 403 closed",
            "1.2.3.4:443 a.team.test 403 closed",
            "a.team.test:22 plain 403 closed",
            "b.team.test:22 plain 200 reached",
        ]
    );
    assert_eq!(lines[9], "hello");
    assert!(lines[10].contains("Traceback"), "{lines:?}");
    let reached = fs::read_to_string(log.path()).unwrap();
    assert_eq!(
        reached.lines().collect::<Vec<_>>(),
        ["tls", "['Host: x']", "['Host: a.team.test']"]
    );
}
