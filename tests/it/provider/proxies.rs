//! A network that is reached only through a proxy: the model of lead and teammates, and the variables that agents'
//! commands get.

use crate::support::fake::{Fake, Reply, RequestView};
use crate::support::fake_models::{KEY, agent_of, call, headless};
use crate::support::harness::{SYSTEM_PATH, Team};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A host that only the proxy knows.
const HOST: &str = "model.test";

/// Whether openssl is installed, which makes the certificate of [`HOST`]. The tests that need it are skipped
/// otherwise.
fn has_openssl() -> bool {
    let found = SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join("openssl").exists());
    if !found {
        eprintln!("SKIPPED, openssl is not installed: https through a proxy was not tested");
    }
    found
}

/// A proxy for https. Behind it is one host, [`HOST`], which is a fake endpoint.
struct Proxy {
    port: u16,
    /// The targets of the CONNECT requests.
    asked: Arc<Mutex<Vec<String>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy and writes the host's certificate to `model.pem` in `folder`.
    fn start(folder: &Path, fake: &Fake) -> Self {
        let (key, pem) = (folder.join("model.key"), folder.join("model.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=model.test"])
            .args(["-addext", "subjectAltName=DNS:model.test"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&pem)
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&pem).unwrap()],
                PrivateKeyDer::from_pem_file(&key).unwrap(),
            );
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, behind) = (Arc::new(Mutex::new(Vec::new())), fake.port());
        let targets = Arc::clone(&asked);
        let acceptor = thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                let (config, targets) = (Arc::clone(&config), Arc::clone(&targets));
                let mut reader = BufReader::new(stream.unwrap());
                let mut first = String::new();
                reader.read_line(&mut first).unwrap_or_default();
                // The connection of the drop sends nothing.
                let Some(target) = first.split(' ').nth(1).map(ToOwned::to_owned) else { break };
                targets.lock().unwrap().push(target);
                connections.push(thread::spawn(move || drop(tunnel(reader, config, behind))));
            }
            for connection in connections {
                connection.join().unwrap();
            }
        });
        Self { port, asked, acceptor: Some(acceptor) }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the targets since the last call.
    fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

/// Serves one request: answers the CONNECT, ends the TLS of the host, and hands the request to the fake.
fn tunnel(
    mut reader: BufReader<TcpStream>,
    config: Arc<ServerConfig>,
    behind: u16,
) -> std::io::Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = BufReader::new(StreamOwned::new(tls, stream));
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if tls.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let line = head[from..].to_lowercase();
        length =
            line.strip_prefix("content-length:").map_or(length, |it| it.trim().parse().unwrap());
    }
    let mut body = vec![0; length];
    tls.read_exact(&mut body)?;
    let mut server = TcpStream::connect(("127.0.0.1", behind))?;
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    server.shutdown(Shutdown::Write)?;
    let mut answer = BufReader::new(server);
    let mut status = String::new();
    answer.read_line(&mut status)?;
    let client = tls.get_mut();
    client.write_all(format!("{status}connection: close\r\n").as_bytes())?;
    std::io::copy(&mut answer, client)?;
    client.conn.send_close_notify();
    client.flush()
}

/// Returns a team whose model is behind a proxy.
fn proxied(team: &Team) {
    team.variable("ANTHROPIC_API_KEY", KEY);
    team.variable("ANTHROPIC_BASE_URL", &format!("https://{HOST}"));
}

fn play(view: &RequestView) -> Reply {
    let print = "echo \"$https_proxy|$NO_PROXY|$SSL_CERT_FILE|$HOUSE|$OTHER|$ANTHROPIC_API_KEY|\"";
    match (agent_of(view).as_str(), view.turn()) {
        ("lead", 0) => {
            let alice = json!({ "name": "alice", "role": "coder", "prompt": "begin" });
            call(view, "spawn_teammate", &alice)
        }
        (_, 0) | ("lead", 1) => call(view, "bash", &json!({ "command": print })),
        _ => Reply::text("done"),
    }
}

#[test]
fn lead_teammates_and_commands_use_the_proxy_and_the_certificates_of_the_environment() {
    if !has_openssl() {
        return;
    }
    let (team, fake) = (Team::new(), Fake::start(play));
    let proxy = Proxy::start(team.workspace(), &fake);
    let pem = team.workspace().join("model.pem").display().to_string();
    proxied(&team);
    let own = team.workspace().join(".config/team");
    std::fs::create_dir_all(&own).unwrap();
    let settings = "pass_environment = [\"HOUSE\"]\n";
    crate::support::child_process::write(&own.join("settings.toml"), settings);
    let variables = [
        ("https_proxy", proxy.url()),
        ("NO_PROXY", "intern.test".to_owned()),
        ("SSL_CERT_FILE", pem.clone()),
        ("HOUSE", "blue".to_owned()),
        ("OTHER", "red".to_owned()),
    ];
    for (name, value) in &variables {
        team.variable(name, value);
    }
    headless(&team, "begin", &[]).expect(0);
    let targets = proxy.take_asked();
    assert!(targets.len() >= 5, "{targets:?}");
    assert!(targets.iter().all(|target| target == "model.test:443"), "{targets:?}");
    let printed = format!("{}|intern.test|{pem}|blue|||", proxy.url());
    for name in ["lead", "alice"] {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        let results = lines.iter().filter(|line| line["kind"] == "tool_result");
        let is_there =
            results.filter_map(|line| line["content"].as_str()).any(|it| it.contains(&printed));
        assert!(is_there, "{name}: {}", team.describe());
    }
}

#[test]
fn each_variable_for_a_proxy_or_certificates_is_honoured_and_loopback_is_never_proxied() {
    if !has_openssl() {
        return;
    }
    let fake = Fake::queue([]);
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &fake);
    let (url, pem) = (proxy.url(), folder.path().join("model.pem").display().to_string());
    let folder = folder.path().display().to_string();
    let ask = |variables: &[(&str, &str)], base: &str| {
        let team = Team::new();
        proxied(&team);
        team.variable("ANTHROPIC_BASE_URL", base);
        for (name, value) in variables {
            team.variable(name, value);
        }
        let report = team.team(&["doctor", "--json"]).json();
        let findings = report["findings"].as_array().unwrap().clone();
        let found = findings.into_iter().find(|finding| finding["check"] == "endpoint").unwrap();
        (found["state"] == "ok", proxy.take_asked().len(), found["found"].to_string())
    };
    let host = format!("https://{HOST}");
    let certificate = ("SSL_CERT_FILE", pem.as_str());
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        assert!(ask(&[(name, &url), certificate], &host).0, "{name}");
    }
    // A folder of certificates has links named by their hashes.
    let rehash = Command::new("openssl").args(["rehash", &folder]).stderr(Stdio::null()).status();
    assert!(rehash.unwrap().success());
    assert!(ask(&[("HTTPS_PROXY", &url), ("SSL_CERT_DIR", &folder)], &host).0);
    let (is_fine, asked, found) = ask(&[("HTTPS_PROXY", &url)], &host);
    assert!(!is_fine && asked == 1 && found.contains("certificate"), "{found}");
    for (name, value) in [("NO_PROXY", HOST), ("no_proxy", ".test"), ("HTTP_PROXY", "")] {
        let proxied = ("HTTPS_PROXY", if name == "HTTP_PROXY" { "" } else { url.as_str() });
        let value = if value.is_empty() { url.as_str() } else { value };
        assert_eq!(ask(&[proxied, (name, value), certificate], &host).1, 0, "{name}");
    }
    let all = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let all = all.map(|name| (name, url.as_str()));
    let (is_fine, asked, found) = ask(&all, &fake.base_url());
    assert!(is_fine && asked == 0, "loopback was asked through the proxy: {found}");
    fake.take_violations();
}
