//! `team web` over HTTP: authentication, events and their delay, and that the page changes nothing.

use crate::support::approvals::append;
use crate::support::harness::{PATIENCE, Team};
use crate::support::http::{Answer, Events, ask};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use crate::ui::log_and_trace::snapshot;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::process::Child;
use std::time::{Duration, Instant};

/// A running `team web`.
pub(crate) struct Page {
    child: Child,
    pub(crate) port: u16,
    pub(crate) token: String,
}

impl Page {
    pub(crate) fn open(team: &Team, args: &[&str]) -> Self {
        let args: Vec<&str> = std::iter::once("web").chain(args.iter().copied()).collect();
        let mut child = team.start(&args);
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let rest = first.trim_end().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| {
            panic!("the first line is no address: {first:?}");
        });
        let (port, token) = rest.split_once("/?token=").unwrap();
        assert!(token.len() >= 32, "a token that could be guessed: {token}");
        Self { child, port: port.parse().unwrap(), token: token.into() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    pub(crate) fn target(&self, path: &str) -> String {
        let mark = if path.contains('?') { '&' } else { '?' };
        format!("{path}{mark}token={}", self.token)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        ask(self.port, "GET", &self.target(path), &[("host", &self.host())], "")
    }

    fn order(&self, order: &Value) -> Answer {
        let host = self.host();
        let headers = [("host", host.as_str()), ("content-type", "application/json")];
        ask(self.port, "POST", &self.target("/orders"), &headers, &order.to_string())
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn follow(&self, path: &str) -> Events {
        Events::follow(self.port, &self.target(path))
    }

    /// Stops the program with SIGINT, and asserts its exit code.
    pub(crate) fn close(mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGINT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
    }
}

/// A team without a lead. Alice accepts mail only while her process runs, `user` always does.
fn quiet_team() -> Team {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team
}

/// Waits for a matching event of this kind. Returns it with the time of its arrival.
fn wait_for(events: &Events, kind: &str, fits: impl Fn(&Value) -> bool) -> (Value, Instant) {
    loop {
        let data = events.data.recv_timeout(Duration::from_secs(60)).expect("an event");
        let changes: Vec<Value> = serde_json::from_str(&data).unwrap();
        if let Some(found) =
            changes.into_iter().find(|change| change["kind"] == kind && fits(change))
        {
            return (found, Instant::now());
        }
    }
}

#[test]
fn only_the_printed_address_is_authorised() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let host = page.host();
    let at = |headers: &[(&str, &str)], target: &str| ask(page.port, "GET", target, headers, "");
    let good = page.target("/");
    let own = ("host", host.as_str());
    assert_eq!(at(&[own], &good).status, 200);

    let mut wrong = page.token.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == '0' { '1' } else { '0' });
    for target in ["/", "/?token=", &format!("/?token={wrong}"), "/events", "/orders"] {
        let refused = at(&[own], target);
        assert_eq!(refused.status, 403, "{target}");
        assert!(!refused.body.contains(&page.token));
    }
    for foreign in ["evil.example", "127.0.0.1", &format!("evil.example:{}", page.port)] {
        assert_eq!(at(&[("host", foreign)], &good).status, 403, "{foreign}");
    }
    assert!(at(&[], &good).status >= 400, "a request without a host");
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(at(&[own, ("origin", origin)], &good).status, 403, "{origin}");
        let events = at(&[own, ("origin", origin)], &page.target("/events"));
        assert_eq!(events.status, 403, "{origin}");
    }
    page.close();
}

#[test]
fn no_file_is_reached_by_a_path() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    for path in [
        "/../config.json",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/conversation?name=../config",
        "/conversation?name=..%2F..%2Fetc%2Fpasswd",
        "/conversation?name=%00",
    ] {
        let refused = page.get(path);
        assert!(matches!(refused.status, 400 | 404), "{path}: {refused:?}");
        assert!(!refused.body.contains("root:"), "{path}");
    }
    page.close();
}

#[test]
fn the_page_is_self_contained() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let (first, second) = (page.get("/"), page.get("/"));
    let policy = first.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_ne!(Some(policy), second.header("content-security-policy"), "a nonce is used once");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    let scripts: Vec<_> = first.body.match_indices("<script").collect();
    assert_eq!(scripts.len(), 1);
    assert!(first.body.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(!first.body.contains("{{"), "something was not filled in");
    assert_eq!(first.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(first.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(first.header("cache-control"), Some("no-store"));
    page.close();
}

#[test]
fn without_control_nothing_can_be_changed() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let before = snapshot(&team.path(""));
    for order in [json!({"do":"send","to":"user","text":"x"}), json!({"do":"stop","name":"alice"})]
    {
        let refused = page.order(&order);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.body.contains("--control"), "{refused:?}");
    }
    for method in ["PUT", "DELETE", "POST"] {
        let refused = ask(page.port, method, &page.target("/"), &[("host", &page.host())], "");
        assert_eq!(refused.status, 405, "{method}");
    }
    assert_eq!(snapshot(&team.path("")), before);
    page.close();
}

#[test]
fn a_message_is_shown_within_a_fifth_of_a_second_of_its_send() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let events = page.follow("/events");
    wait_for(&events, "team", |_| true);
    // The quickest of several rounds counts, because load delays single messages, not all of them.
    let (begin, mut best, mut round) = (Instant::now(), Duration::MAX, 0);
    while best >= Duration::from_millis(200) && begin.elapsed() < PATIENCE {
        round += 1;
        let text = format!("hello {round}");
        team.team(&["send", "user", &text, "--from", "lead"]).expect(0);
        let sent = Instant::now();
        let (message, told) = wait_for(&events, "mail", |message| message["content"] == text);
        assert_eq!((&message["to"], &message["stage"]), (&json!("user"), &json!("appended")));
        best = best.min(told.saturating_duration_since(sent));
    }
    assert!(best < Duration::from_millis(200), "{best:?}");
    page.close();
}

#[test]
fn message_content_is_sent_as_data() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let events = page.follow("/events");
    wait_for(&events, "team", |_| true);
    let text = "</script><script>alert(1)</script>\u{1b}[2J\u{202e}\ndata: []\n\n";
    team.team(&["send", "user", text, "--from", "lead"]).expect(0);
    let (message, _) = wait_for(&events, "mail", |_| true);
    assert_eq!(message["content"], text);
    assert!(!page.get("/").body.contains("alert(1)"), "the page itself holds no message");
    page.close();
}

#[test]
fn only_loopback_listens() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    // Find the address of this machine towards others. A UDP `connect` sends nothing.
    let towards = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    match towards.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() && !address.is_unspecified() => {
            let refused =
                TcpStream::connect_timeout(&(address, page.port).into(), Duration::from_secs(2));
            assert!(refused.is_err(), "{address} answers");
        }
        other => skipped(&format!("this machine has no other interface: {other:?}")),
    }
    let listening = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X} ", page.port);
    let ours: Vec<&str> =
        listening.lines().filter(|line| line.contains(&port) && line.contains(" 0A ")).collect();
    assert!(!ours.is_empty());
    assert!(ours.iter().all(|line| line.contains("0100007F:")), "{ours:?}");
    page.close();
}

#[test]
fn a_port_in_use_and_a_folder_without_a_team_are_errors() {
    let team = quiet_team();
    let page = Page::open(&team, &[]);
    let ran = team.team(&["web", "--port", &page.port.to_string()]).expect(1);
    assert!(ran.err.contains("--port"), "{ran:?}");
    page.close();
    let nobody = Team::new().team(&["web"]).expect(1);
    assert!(nobody.err.contains("there is no team here"), "{nobody:?}");
}

#[test]
fn with_control_a_person_writes_and_stops() {
    let team = Team::new();
    let mut lead = Terminal::start(
        team.command("team", &["lead", "--model", "rehearsal", "--mode", "bypass"]),
    );
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder) and bob (tester). Have alice send bob a message.");
    team.eventually("bob has alice's message", || team.has_mail("bob", "alice", ""));
    let page = Page::open(&team, &["--control"]);
    let events = page.follow("/events");
    let (members, _) = wait_for(&events, "team", |change| {
        change["members"].as_array().is_some_and(|members| members.len() == 3)
    });
    assert_eq!(members["members"][1]["name"], "alice");
    let done = page.order(&json!({"do":"send","to":"alice","text":"Run echo from-the-page"}));
    assert_eq!(done.status, 200, "{done:?}");
    // The events may skip quick intermediate stages, but not the last one.
    let (message, _) = wait_for(&events, "mail", |message| {
        message["content"] == "Run echo from-the-page" && message["stage"] == "answered"
    });
    let trace = page.get(&format!("/trace?id={}", message["id"].as_str().unwrap()));
    let trace: Value = serde_json::from_str(&trace.body).unwrap();
    let mut stages: Vec<&str> = trace["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["stage"].as_str().unwrap())
        .collect();
    // The stage `claimed` may be shown, because the claim is kept for late writers.
    stages.retain(|stage| *stage != "claimed");
    assert_eq!(stages, ["acknowledged", "answered"], "{trace:#}");
    assert!(team.has_mail("alice", "user", "from-the-page"));

    let talk = page.follow("/conversation?name=alice");
    let said = talk.data.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(said.contains("from-the-page"), "{said}");

    for bad in [json!({"do":"send","to":"nobody","text":"x"}), json!({"do":"stop","name":"nobody"})]
    {
        let refused = page.order(&bad);
        assert_eq!(refused.status, 409, "{refused:?}");
        let told: Value = serde_json::from_str(&refused.body).unwrap();
        assert!(!told["hint"].as_str().unwrap().is_empty());
    }
    assert_eq!(page.order(&json!({"do":"stop","name":"../lead"})).status, 409);
    assert_eq!(page.order(&json!({"do":"purge"})).status, 400);

    let stopped = page.order(&json!({"do":"stop","name":"bob"}));
    assert_eq!(stopped.status, 200, "{stopped:?}");
    assert!(stopped.body.contains("bob ended when asked"), "{stopped:?}");
    assert_eq!(team.status("bob"), "shutdown");
    page.close();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

#[test]
fn with_control_a_person_answers_what_is_asked() {
    let team = Team::new();
    let args = ["lead", "--model", "rehearsal", "--mode", "default"];
    let mut lead = Terminal::start(team.command("team", &args));
    lead.expect("/quit ends the team");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    let page = Page::open(&team, &["--control"]);
    let events = page.follow("/events");
    for (verb, outcome) in [("approve", "approved"), ("deny", "rejected")] {
        let sent =
            page.order(&json!({"do":"send","to":"alice","text":format!("Run touch {verb}")}));
        assert_eq!(sent.status, 200, "{sent:?}");
        let (told, _) = wait_for(&events, "requests", |change| change["requests"][0].is_object());
        let asked = &told["requests"][0];
        assert_eq!((&asked["from"], &asked["question"]["tool"]), (&json!("alice"), &json!("bash")));
        let answered = page.order(&json!({"do":verb,"id":asked["question"]["request_id"]}));
        assert!(answered.body.contains(outcome), "{answered:?}");
        wait_for(&events, "requests", |change| change["requests"] == json!([]));
        team.wait_status("alice", "idle");
    }
    assert!(team.workspace().join("approve").exists());
    assert!(!team.workspace().join("deny").exists());
    assert_eq!(page.order(&json!({"do":"approve","id":"nobody:1"})).status, 409);
    page.close();
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

#[test]
fn with_control_a_person_starts_a_teammate_without_the_model() {
    let team = Team::new();
    let args = ["lead", "--model", "rehearsal", "--mode", "default"];
    let order = |name: &str, mode: Value| json!({"do":"spawn","name":name,"role":"coder","prompt":"Say hello","mode":mode});
    let mut lead = Terminal::start(team.command("team", &args));
    lead.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    let page = Page::open(&team, &["--control"]);
    for (bad, why) in [
        (order("lead", Value::Null), "lead"),
        (order("../x", Value::Null), "../x"),
        (order("alice", json!("loose")), "is not a mode"),
        (order("alice", json!("bypass")), "bypass"),
        (json!({"do":"spawn","name":"alice","role":" ","prompt":"x"}), "its role is empty"),
        (json!({"do":"spawn","name":"alice","role":"r","prompt":""}), "its prompt is empty"),
        (json!({"do":"spawn","name":"alice","role":"r","prompt":"x","model":"no/such"}), "no/such"),
    ] {
        let refused = page.order(&bad);
        assert_eq!(refused.status, 409, "{bad}: {refused:?}");
        assert!(refused.body.contains(why) && refused.body.contains("hint"), "{refused:?}");
    }
    assert_eq!(team.roster()["members"], json!([]));
    let incarnation = team.roster()["lead"]["incarnation"].clone();
    for (from, incarnation) in [("eve", &incarnation), ("user", &json!("another"))] {
        let forged = json!({"type":"spawn_request","from":from,"name":"mallory","role":"r",
            "prompt":"x","request_id":format!("{from}:1"),"incarnation":incarnation});
        append(&team, "lead", &forged);
    }
    let started = page.order(&order("alice", json!("plan")));
    assert_eq!(started.status, 200, "{started:?}");
    assert!(started.body.contains("Spawned alice (coder)"), "{started:?}");
    assert_eq!(team.member("alice")["mode"], "plan");
    team.eventually("alice has her task", || team.has_mail("alice", "lead", "Say hello"));
    lead.expect("lead: started: Spawned alice");
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 1, "nobody forged a teammate");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    let refused = page.order(&order("bob", Value::Null));
    assert!(refused.body.contains("only a lead starts teammates"), "{refused:?}");
    page.close();
    team.wait_no_process();
}
