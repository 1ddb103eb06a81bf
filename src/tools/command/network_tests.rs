//! Commands that reach named hosts through the proxy of their agent: real walls, real sockets. A test host has an
//! address of this machine, so its pattern has a port; the rules for public ones are tested with namespaces, in
//! `tests/it/walls`.

use super::wall_tests::{Fixture, Way, walled};
use crate::wire::host::HostPattern;
use crate::wire::sandbox::SandboxNetwork;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// Starts a server that answers each connection with `hello` once it has read something.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut read = [0; 1024];
                if client.read(&mut read).is_ok_and(|count| count > 0) {
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    client.write_all(answer.as_bytes()).unwrap_or_default();
                }
            });
        }
    });
    port
}

fn fixture(way: Way, hosts: &[String]) -> Fixture {
    let mut fixture = Fixture::new(way);
    fixture.policy.network = SandboxNetwork::Hosts;
    fixture.policy.hosts = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
    fixture
}

/// Returns a command that sends these lines to the proxy, and prints the first line of the answer and the last.
fn ask(lines: &str) -> String {
    format!(
        "python3 -c '
import os, socket, urllib.parse as u
at = u.urlparse(os.environ[\"https_proxy\"])
s = socket.create_connection((at.hostname, at.port))
s.sendall(\"{lines}\".encode())
s.settimeout(20)
text = b\"\"
while (part := s.recv(4096)):
    text += part
    if b\"hello\" in text or b\"team: \" in text: break
lines = text.decode().splitlines()
print(lines[0] + \" | \" + lines[-1])'"
    )
}

#[test]
fn a_listed_host_is_reached_by_request_and_by_tunnel() {
    for way in walled() {
        let port = server();
        let fixture = fixture(way, &[format!("localhost:{port}")]);
        let fetch = ask(&format!("GET http://localhost:{port}/x HTTP/1.1\\r\\n\\r\\n"));
        assert_eq!(fixture.run(way, &fetch), "HTTP/1.1 200 OK | hello\n", "{way:?}");
        let tunnel = ask(&format!(
            "CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n"
        ));
        let said = fixture.run(way, &tunnel);
        assert_eq!(said, "HTTP/1.1 200 Connection established | hello\n", "{way:?}");
        let curl = format!("curl -sS --noproxy '' http://localhost:{port}/ && echo");
        assert_eq!(fixture.run(way, &curl), "hello\n", "{way:?}");
    }
}

/// Each is refused by the proxy, and named to the agent in the form in which it can ask for it.
#[test]
fn no_other_host_is_reached_through_the_proxy() {
    for way in walled() {
        let (open, closed) = (server(), server());
        let fixture =
            fixture(way, &[format!("localhost:{open}"), "localhost".into(), "name.invalid".into()]);
        for (target, status, asked_for) in [
            (format!("localhost:{closed}"), "403", format!("[\"localhost:{closed}\"]")),
            (format!("127.0.0.1:{open}"), "403", format!("[\"127.0.0.1:{open}\"]")),
            (
                format!("[::ffff:127.0.0.1]:{open}"),
                "403",
                format!("[\"[::ffff:127.0.0.1]:{open}\"]"),
            ),
            (format!("2130706433:{open}"), "403", String::new()),
            ("localhost:443".into(), "403", "[\"localhost:443\"]".into()),
            ("localhost:80".into(), "403", "[\"localhost:80\"]".into()),
            ("packages.example.com:443".into(), "403", "[\"packages.example.com\"]".into()),
            ("packages.example.com:22".into(), "403", "[\"packages.example.com:22\"]".into()),
            ("169.254.169.254:80".into(), "403", "[\"169.254.169.254:80\"]".into()),
            ("/run/docker.sock:80".into(), "400", String::new()),
            ("name.invalid:443".into(), "502", String::new()),
        ] {
            let said = fixture.run(way, &ask(&format!("CONNECT {target} HTTP/1.1\\r\\n\\r\\n")));
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{way:?} {target}: {said}");
            let note = format!("repeat the command with \"hosts\": {asked_for}]");
            assert_eq!(
                said.contains("[network: "),
                !asked_for.is_empty(),
                "{way:?} {target}: {said}"
            );
            assert!(asked_for.is_empty() || said.contains(&note), "{way:?} {target}: {said}");
        }
    }
}

/// No connection around the proxy succeeds.
#[test]
fn no_address_is_reached_past_the_proxy() {
    for way in walled() {
        let port = server();
        let attempts = [
            format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo out"),
            format!("(exec 3<>/dev/tcp/localhost/{port}) 2>/dev/null && echo out"),
            format!(
                "python3 -c 'import socket as s; a = s.socket(s.AF_INET6); a.settimeout(5); \
                 a.connect((\"::ffff:127.0.0.1\", {port}))' && echo out"
            ),
            format!(
                "python3 -c 'import socket as s; a = s.socket(); a.settimeout(5); \
                 a.sendto(b\"x\", 0x20000000, (\"127.0.0.1\", {port})); a.recv(1)' && echo out"
            ),
            format!(
                "python3 -c 'import socket as s; a = s.socket(s.AF_INET, s.SOCK_STREAM, 262); \
                 a.connect((\"127.0.0.1\", {port}))' && echo out"
            ),
            format!(
                "python3 -c 'import errno, socket as s; a = s.socket(); a.settimeout(5); a.setblocking(False); \
                 c = a.connect_ex((\"127.0.0.1\", {port})); exit(c not in (0, errno.EINPROGRESS))' && \
                 python3 -c 'import socket as s; s.create_connection((\"127.0.0.1\", {port}), 5)' && echo out"
            ),
            // The same socket, connected first to the proxy.
            format!(
                "python3 -c 'import socket as s; a = s.create_connection((\"127.0.0.1\", 3128)); \
                 import ctypes; c = ctypes.CDLL(None); c.connect(a.fileno(), b\"\\0\" * 16, 16); \
                 b = a.getsockname(); a.connect((\"127.0.0.1\", {port}))' && echo out"
            ),
        ];
        for attempt in attempts {
            let fixture = fixture(way, &[]);
            let said = fixture.run(way, &attempt);
            assert!(!said.contains("out\n"), "{way:?}: {attempt}: {said}");
        }
        let udp = "python3 -c 'import socket as s; a = s.socket(s.AF_INET, s.SOCK_DGRAM); \
                   a.sendto(b\"x\", (\"127.0.0.1\", 9))' 2>/dev/null && echo out";
        if way == Way::Rules {
            assert_eq!(
                fixture(way, &[]).run(way, udp),
                "[exit code 1]",
                "a name server is an address"
            );
        }
    }
}

/// The attempts would succeed where the network is open.
#[test]
fn the_attempts_get_out_where_the_network_is_open() {
    for way in walled() {
        let port = server();
        let fixture = Fixture::new(way);
        let connect = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo out");
        assert_eq!(fixture.run(way, &connect), "out\n", "{way:?}");
    }
}

#[test]
fn many_connections_at_once_are_served() {
    for way in walled() {
        let port = server();
        let fixture = fixture(way, &[format!("localhost:{port}")]);
        let fetch = format!("curl -sS --noproxy '' http://localhost:{port}/");
        let many = format!("for i in $(seq 40); do {fetch} & done | tr -d '\\n'; wait");
        assert_eq!(fixture.run(way, &many), "hello".repeat(40), "{way:?}");
    }
}

/// The socket of the proxy ends with its command.
#[test]
fn a_command_that_ends_leaves_no_proxy_behind() {
    for way in walled() {
        let fixture = fixture(way, &[]);
        let port = "python3 -c 'import socket as s; print(s.create_connection((\"127.0.0.1\", 3128)).getpeername()[1])'";
        let said = fixture.run(way, port);
        let port: u16 = said.trim().parse().unwrap();
        let is_open = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(!is_open, "{way:?}: {port}");
    }
}
