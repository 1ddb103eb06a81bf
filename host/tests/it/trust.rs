//! A host that holds every right of its user at the server: what it can do, and what it cannot.

use crate::machines::{Machines, program};
use crate::pair::{Pair, text};
use agent_team::store::TeamDir;
use agent_team::store::relay::{HostIdentity, HostKeys, host_keys, identity};
use agent_team::wire::AgentName;
use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use team_host::trust::Trust;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The longest wait for an answer of the server.
const ANSWER: Duration = Duration::from_secs(10);

/// The time in which the server tells that it has refused something.
const REFUSAL: Duration = Duration::from_secs(10);

/// Subjects on which an attacker has the server publish.
const PUBLISHED_BY_SERVER: [&str; 6] = [
    "t.demo.mail.ann.gpu1",
    "t.demo.order.gpu1.ann",
    "t.demo.beat.gpu1",
    "$KV.team_demo.name.mallory",
    "$KV.team_demo.host.gpu1",
    "$KV.team_demo.least.gpu1",
];

/// The keys of a host that were taken over, and a connection with them.
struct Attacker {
    client: Client,
    refusals: mpsc::UnboundedReceiver<String>,
    trust: Trust,
}

/// The address of the own server of a host.
fn address(team: &Path) -> String {
    let config = fs::read_to_string(team.join("run/.state/relay/nats/server.conf")).unwrap();
    let listen = config.lines().find_map(|line| line.strip_prefix("listen: ")).unwrap();
    format!("nats://{}", listen.trim_matches('"'))
}

fn keys_of(team: &Path) -> (HostIdentity, HostKeys) {
    let dir = TeamDir::look(team).unwrap();
    (identity(&dir).unwrap().unwrap(), host_keys(&dir).unwrap().unwrap())
}

impl Attacker {
    /// Logs in at a server as the host of a folder.
    async fn log_in(server: &str, team: &Path) -> Result<Self, async_nats::ConnectError> {
        let (identity, keys) = keys_of(team);
        let (sender, refusals) = mpsc::unbounded_channel();
        let client = ConnectOptions::with_nkey(keys.connection.clone())
            .custom_inbox_prefix(format!("_INBOX.{}", identity.host))
            .event_callback(move |event| {
                drop(sender.send(event.to_string()));
                std::future::ready(())
            })
            .connect(server)
            .await?;
        let trust = Trust::new(&identity.team, &keys, BTreeMap::new()).unwrap();
        Ok(Self { client, refusals, trust })
    }

    /// Publishes, and returns whether the server has refused it.
    async fn is_refused(&mut self, subject: &str, reply: Option<&str>, body: &[u8]) -> bool {
        while self.refusals.try_recv().is_ok() {}
        let (subject, body) = (subject.to_owned(), Bytes::copy_from_slice(body));
        match reply {
            Some(reply) => self.client.publish_with_reply(subject, reply.to_owned(), body).await,
            None => self.client.publish(subject, body).await,
        }
        .unwrap();
        // The server answers in order.
        self.client.flush().await.unwrap();
        self.told_refusal().await
    }

    /// Whether the server has refused something up to now. It answers a harmless question that is refused in any case last.
    async fn told_refusal(&mut self) -> bool {
        let mark = format!("never.{}", self.client.new_inbox().replace('.', "-"));
        self.client.publish(mark.clone(), Bytes::new()).await.unwrap();
        self.client.flush().await.unwrap();
        let mut is_refused = false;
        loop {
            let told = timeout(REFUSAL, self.refusals.recv()).await.unwrap().unwrap();
            if told.to_lowercase().contains(&mark.to_lowercase()) {
                return is_refused;
            }
            is_refused |= told.to_lowercase().contains("permissions violation");
        }
    }

    /// Whether the server refuses a subscription.
    async fn may_not_read(&mut self, subject: &str) -> bool {
        while self.refusals.try_recv().is_ok() {}
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.client.flush().await.unwrap();
        self.told_refusal().await
    }
}

/// A frame with one line of mail, in an epoch of its own.
fn frame(src: &str, from: &str, to: &str, text: &str) -> Vec<u8> {
    let head = json!({"v": 1, "src": src, "epoch": "00000000000000ee"});
    let mail = json!({"type": "message", "from": from, "to": to, "content": text});
    let line = json!({"to": to, "seq": 1, "base": 0, "line": mail});
    format!("{head}\n{line}\n").into_bytes()
}

/// An order to start a teammate.
fn spawn_order(name: &str) -> Vec<u8> {
    let order = json!({
        "order": "spawn", "name": name, "role": "", "prompt": "obey", "message_id": "lead:1",
        "mode_of_lead": "bypass",
    });
    let carried = json!({"v": 1, "id": "000000000000000000000000000000ee", "order": order});
    carried.to_string().into_bytes()
}

/// Starts a member by hand on ann.
fn start_alice(pair: &Pair) -> Child {
    let mut alice = pair.on_ann(&program("team"));
    alice.args(["teammate", "alice", "--model", "rehearsal"]).stdin(Stdio::null());
    alice.stdout(Stdio::null()).stderr(Stdio::null());
    crate::rig::process::spawn_tied(alice).unwrap()
}

/// Returns all that has come for a member, read or not.
fn mail_of(team: &Path, member: &str) -> String {
    let dir = TeamDir::look(team).unwrap();
    let name = AgentName::mailbox(member).unwrap();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    read(&dir.transcript(&name)) + &read(&dir.inbox(&name))
}

/// Makes the server publish a message of the attacker on a subject of others: its answers and deliveries ask for no permission.
async fn delivered_by_server(attacker: &mut Attacker, body: &[u8], to: &str) {
    let (own, next) = ("t.demo.mail.gpu2.gpu2", "$JS.API.CONSUMER.MSG.NEXT.MAIL_demo.gpu2");
    // The relay of the host asks for the same messages, so not all of them come here.
    let batch = json!({"batch": 8, "expires": 2_000_000_000_u64}).to_string();
    assert!(!attacker.is_refused(next, Some(to), batch.as_bytes()).await);
    for _ in 0..16 {
        attacker.client.publish(own, Bytes::copy_from_slice(body)).await.unwrap();
    }
    attacker.client.flush().await.unwrap();
}

#[test]
fn a_host_with_every_right_of_its_user_does_nothing_in_the_name_of_others() {
    let Some(pair) = Pair::or_skip() else { return };
    pair.add();
    pair.team_ok(&["host", "add", "gpu1", "--name", "gpu2", "--folder", "second"]);
    let mut lead = pair.start_lead();
    let mut alice = start_alice(&pair);
    let mut carol = pair.start_carol();
    let ann = pair.project().join(".team");
    let (gpu1, gpu2) =
        (pair.ssh.home().join(".team-hosts/demo/.team"), pair.ssh.home().join("second/.team"));
    pair.eventually("both are heard", || {
        pair.team_ok(&["host", "ls"]).matches("  up").count() == 2
    });
    pair.eventually("carol is known", || pair.knows_carol());
    let server = address(&ann);

    pair.network.host("ann").enter(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut attacker = Attacker::log_in(&server, &gpu2).await.unwrap();
            refused_by_the_server(&mut attacker).await;
            not_trusted(&mut attacker).await;
            refused_by_hosts(&mut attacker).await;
            // It is a member of the team all the same: what it says for itself arrives.
            let subject = "t.demo.mail.ann.gpu2";
            let own =
                attacker.trust.sign(subject, &frame("gpu2", "ci", "alice", "in its own name"));
            assert!(!attacker.is_refused(subject, None, &own).await);
        });
    });

    pair.eventually("its own mail arrives", || mail_of(&ann, "alice").contains("in its own name"));
    for (team, member) in [(&ann, "alice"), (&gpu1, "carol"), (&ann, "lead")] {
        let mail = mail_of(team, member);
        assert!(!mail.contains("forged"), "{member}: {mail}");
    }
    let log = |team: &Path| fs::read_to_string(team.join("run/.state/relay/log.jsonl")).unwrap();
    // The rig can tell: the server publishes what nobody may send.
    for subject in PUBLISHED_BY_SERVER {
        let context = subject.replace("$KV.team_demo", "kv.demo");
        pair.eventually(&context, || {
            (log(&ann) + &log(&gpu1)).contains(&format!(r#""context":"{context}""#))
        });
    }
    pair.eventually("what was stored elsewhere is refused", || {
        log(&gpu1).contains("it was sent on another subject")
    });
    let ls = pair.team_ok(&["ls"]);
    assert!(!ls.contains("mallory") && !ls.contains("eve"), "{ls}");
    assert!(!gpu1.join("run/.state/relay/supervisor.lock").exists(), "nobody obeys it");
    assert!(pair.team_ok(&["host", "ls"]).matches("  up").count() == 2, "all go on");

    // Removed, it is nobody.
    pair.team_ok(&["host", "rm", "gpu2"]);
    pair.eventually("it cannot log in any more", || {
        pair.network.host("ann").enter(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(Attacker::log_in(&server, &gpu2)).is_err()
        })
    });
    pair.team_ok(&["send", "carol", "the others go on"]);
    pair.eventually("the others go on", || pair.carol_has("the others go on"));
    for child in [&mut alice, &mut carol, &mut lead] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Tries everything that the permissions of the user forbid.
async fn refused_by_the_server(attacker: &mut Attacker) {
    let forged = frame("gpu1", "carol", "alice", "forged: published");
    for (subject, body) in [
        ("t.demo.mail.ann.gpu1", &forged[..]),
        ("t.demo.ack.ann.gpu1", b"{}"),
        ("t.demo.order.gpu1.ann", b"{}"),
        ("t.demo.beat.gpu1", b"{}"),
        ("$KV.team_demo.name.alice", b"{\"host\":\"gpu2\",\"term\":9}"),
        ("$KV.team_demo.host.gpu1", b"{}"),
        ("$KV.team_demo.member.gpu1.carol", b"{}"),
        ("$KV.team_demo.gone.gpu1", b"{\"by\":\"ann\"}"),
        ("$KV.team_demo.least.gpu1", b"{\"serial\":9}"),
        ("$JS.API.STREAM.DELETE.MAIL_demo", b""),
        ("$JS.API.STREAM.PURGE.MAIL_demo", b""),
        ("$JS.API.STREAM.PURGE.KV_team_demo", b""),
        ("$JS.API.STREAM.UPDATE.MAIL_demo", b"{\"name\":\"MAIL_demo\"}"),
        ("$JS.API.STREAM.CREATE.OTHER", b"{\"name\":\"OTHER\",\"subjects\":[\"t.>\"]}"),
        ("$JS.API.STREAM.MSG.GET.MAIL_demo", b"{\"seq\":1}"),
        ("$JS.API.DIRECT.GET.KV_team_demo", b"{\"seq\":1}"),
        ("$JS.API.CONSUMER.DELETE.MAIL_demo.gpu1", b""),
        ("$JS.API.CONSUMER.DELETE.KV_team_demo.gpu1", b""),
        ("$JS.API.CONSUMER.CREATE.KV_team_demo.x.$KV.team_demo.>", b"{}"),
        ("$JS.API.CONSUMER.MSG.NEXT.MAIL_demo.gpu1", b"1"),
        ("$JS.API.CONSUMER.CREATE.MAIL_demo", b"{}"),
        ("$JS.API.CONSUMER.DURABLE.CREATE.MAIL_demo.x", b"{}"),
        ("$JS.API.CONSUMER.CREATE.MAIL_demo.gpu2.t.demo.mail.gpu1.>", b"{}"),
    ] {
        let reply = subject.starts_with("$JS").then_some("_INBOX.gpu2.answer");
        assert!(attacker.is_refused(subject, reply, body).await, "{subject}");
        // A question to itself, with that subject for the answer.
        let own = "t.demo.sync.gpu2.gpu2";
        let mut asked = attacker.client.subscribe("t.demo.sync.gpu2.>").await.unwrap();
        assert!(!attacker.is_refused(own, Some(subject), b"{}").await);
        timeout(ANSWER, futures_util::StreamExt::next(&mut asked)).await.unwrap().unwrap();
        assert!(attacker.is_refused(subject, reply, body).await, "{subject} as an answer");
    }
    for subject in
        ["t.demo.mail.gpu1.>", "t.demo.mail.>", "t.demo.claim.ann.>", "_INBOX.ann.>", "$KV.>", ">"]
    {
        assert!(attacker.may_not_read(subject).await, "{subject}");
    }
    // One message that would remove all values of the bucket.
    let mut rollup = async_nats::HeaderMap::new();
    rollup.insert("Nats-Rollup", "all");
    let own = attacker.trust.sign("kv.demo.member.gpu2.x", b"{}");
    let context = async_nats::jetstream::new(attacker.client.clone());
    let put = context.publish_with_headers("$KV.team_demo.member.gpu2.x", rollup, own);
    assert!(put.await.unwrap().await.is_err(), "a bucket takes no rollup");
    // The subject names its own mail, and the body that of another host.
    let subject = "$JS.API.CONSUMER.CREATE.MAIL_demo.gpu2.t.demo.mail.gpu2.>";
    let other = json!({
        "stream_name": "MAIL_demo",
        "config": {"durable_name": "gpu2", "filter_subject": "t.demo.mail.gpu1.>", "ack_policy": "explicit"},
    });
    let body = Bytes::from(other.to_string());
    let answer = timeout(ANSWER, attacker.client.request(subject, body)).await.unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer["error"].is_object(), "{answer}");
}

/// Has the server publish in the name of others, which the hosts do not trust.
async fn not_trusted(attacker: &mut Attacker) {
    for subject in PUBLISHED_BY_SERVER {
        let is_refused =
            attacker.is_refused("$JS.API.STREAM.INFO.MAIL_demo", Some(subject), b"").await;
        assert!(!is_refused, "{subject}");
    }
    // Content of its own reaches subscriptions of others only with the subject on which it was sent.
    let (own, orders) = ("t.demo.mail.gpu2.gpu2", "t.demo.order.gpu1.ann");
    let stored = attacker.trust.sign(own, &spawn_order("mallory")).to_vec();
    delivered_by_server(attacker, &stored, orders).await;
}

/// Sends in its own name, within its permissions, and the other hosts refuse it.
async fn refused_by_hosts(attacker: &mut Attacker) {
    // Mail of a member of another host.
    let subject = "t.demo.mail.gpu1.gpu2";
    for from in ["alice", "lead"] {
        let mail =
            attacker.trust.sign(subject, &frame("gpu2", from, "carol", "forged: of another host"));
        assert!(!attacker.is_refused(subject, None, &mail).await);
    }
    let asked = async |subject: &str, question: Bytes, within: Duration| {
        let asked = attacker.client.request(subject.to_owned(), question);
        let answer = timeout(within, asked).await.ok()?.ok()?;
        let opened = attacker.trust.open(&answer.subject, &answer.payload).unwrap();
        Some(String::from_utf8(opened.body.to_vec()).unwrap())
    };
    let number = std::cell::Cell::new(0);
    let question = |subject: &str, word: &str, body: &[u8]| {
        number.set(number.get() + 1);
        let head = format!("{word} {:032x}\n", number.get());
        attacker.trust.sign(subject, &[head.as_bytes(), body].concat())
    };
    let ask = async |subject: &str, body: &[u8]| {
        // The host says by which word it is to be asked.
        let again = asked(subject, question(subject, "-", body), ANSWER).await.unwrap();
        let fresh = question(subject, again.trim_start_matches("again ").trim(), body);
        let answer = asked(subject, fresh.clone(), ANSWER).await.unwrap();
        // The same question again is nothing to it.
        assert_eq!(asked(subject, fresh, Duration::from_secs(1)).await, None);
        assert!(asked(subject, question(subject, "-", body), ANSWER).await.is_some());
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let answer = ask("t.demo.order.gpu1.gpu2", &spawn_order("eve")).await;
    let why = answer["answer"]["why"].as_str().unwrap();
    assert!(why.contains("obeys no orders of gpu2"), "{answer}");
    for (name, host) in [("lead", "gpu2"), ("eve", "gpu1"), ("alice", "gpu2"), ("carol", "gpu2")] {
        let wanted = json!({"name": name, "placement": {"host": host, "term": 9}});
        let claim = json!({"v": 1, "names": [wanted]});
        let answer = ask("t.demo.claim.ann.gpu2", claim.to_string().as_bytes()).await;
        assert_eq!(answer["answers"][0]["answer"], "refused", "{name}: {answer}");
    }
    // It would have another host sign something for another place.
    let stolen =
        attacker.trust.sign("t.demo.sync.ann.gpu2", b"{\"v\":1,\"epoch\":\"00000000000000ee\"}");
    let reply = Some("t.demo.mail.gpu1.ann");
    assert!(!attacker.is_refused("t.demo.sync.ann.gpu2", reply, &stolen).await);
}

#[test]
fn mail_for_a_host_that_was_removed_waits_quietly() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let ann = machines.get("ann");
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    ann.team_ok(&["host", "rm", "gpu1"]);
    machines.eventually("it is not heard", || ann.member("carol").unwrap()["away"] == true);
    ann.team_ok(&["send", "carol", "after the removal"]);
    let log = || fs::read_to_string(ann.dir.relay_log()).unwrap();
    let words = ["a frame is not published", "does not say how far its mail has come"];
    let told = || words.map(|words| log().matches(words).count());
    machines.eventually("it is told", || told().iter().any(|count| *count > 0));
    // Time for some more tries.
    std::thread::park_timeout(Duration::from_secs(5));
    assert!(told().iter().all(|count| *count <= 1), "{}", log());
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn signs_of_life_that_a_server_repeats_are_none() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines.eventually("gpu1 hears ann", || {
        machines.get("gpu1").team_ok(&["host", "ls"]).contains(" up ")
    });
    let (url, hub) = (machines.server.url(), machines.network.hub().clone());
    let (kept, is_kept) = std::sync::mpsc::channel();
    let (stop, mut is_over) = tokio::sync::oneshot::channel::<()>();
    // As somebody who runs the server: it keeps one, and repeats it when the host is gone.
    let repeating = std::thread::spawn(move || {
        hub.enter(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = async_nats::connect(&url).await.unwrap();
                let mut beats = client.subscribe("t.demo.beat.ann").await.unwrap();
                let beat = futures_util::StreamExt::next(&mut beats).await.unwrap().payload;
                kept.send(()).unwrap();
                while is_over.try_recv().is_err() {
                    client.publish("t.demo.beat.ann", beat.clone()).await.unwrap();
                    client.flush().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            });
        });
    });
    is_kept.recv_timeout(ANSWER).unwrap();
    machines.get_mut("ann").kill_relay();
    machines.eventually("ann is away in spite of them", || {
        machines.get("gpu1").team_ok(&["host", "ls"]).contains(" away ")
    });
    machines.get_mut("ann").start_relay();
    machines.eventually("ann is heard again", || {
        machines.get("gpu1").team_ok(&["host", "ls"]).contains(" up ")
    });
    stop.send(()).unwrap();
    repeating.join().unwrap();
}

#[test]
fn a_code_is_of_use_to_one_host_and_only_the_first_one_invites() {
    let Some(machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let refusal = |args: &[&str]| {
        let output = gpu.team(args);
        assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    let said = refusal(&["host", "invite", "gpu2"]);
    assert!(said.contains("ann signs the hosts of this team in"), "{said}");
    let said = refusal(&["host", "add", "gpu2"]);
    assert!(said.contains("ann signs the hosts of this team in"), "{said}");
    let said = refusal(&["host", "give-up", "ann"]);
    assert!(said.contains("ann signs the hosts of this team in"), "{said}");

    let url = machines.server.url();
    let code = ann.invitation("gpu2");
    let folders = ["one", "two"].map(|folder| gpu.folder().join(folder));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
    }
    let join = |folder: &Path, code: &str| {
        let mut command = gpu.command("team");
        command.current_dir(folder).args(["host", "join", &url, "--code", code]);
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    // Else the nearest team folder upward is meant.
    for folder in &folders {
        fs::create_dir(folder.join(".team")).unwrap();
    }
    let [one, two] = &folders;
    let (mut cut, mut changed) = (code.clone(), code.clone());
    cut.truncate(40);
    changed.replace_range(20..21, if code.as_bytes()[20] == b'A' { "B" } else { "A" });
    for wrong in [&cut, &changed] {
        let (joined, said) = join(one, wrong);
        assert!(!joined && said.contains("this host cannot join"), "{said}");
    }
    let (joined, said) = join(gpu.folder(), &code);
    assert!(!joined && said.contains("this folder is host gpu1 of team demo"), "{said}");
    for _ in ["joins", "asks again: the answer may have been lost"] {
        let (joined, said) = join(one, &code);
        assert!(joined, "{said}");
    }
    let (joined, said) = join(two, &code);
    assert!(!joined && said.contains("another host has joined with this code"), "{said}");
    // A later invitation makes an earlier one void.
    let first = ann.invitation("gpu3");
    ann.invitation("gpu3");
    let (joined, said) = join(two, &first);
    assert!(!joined && said.contains("not that of the last invitation"), "{said}");
    let said = text(&ann.team(&["host", "rm", "gpu2"]).stdout);
    assert!(said.contains("its keys are withdrawn"), "{said}");
    let secrets = keys_of(gpu.dir.root()).1;
    for file in ["host.json", "log.jsonl", "hosts.json"] {
        let read = fs::read_to_string(gpu.dir.root().join("run/.state/relay").join(file)).unwrap();
        assert!(!read.contains(&secrets.signing) && !read.contains(&secrets.connection), "{file}");
    }
}

#[test]
fn hosts_that_join_at_the_server_of_another_one_talk_over_tls_with_it_alone() {
    let Some(mut machines) = Machines::at_own_server_or_skip(&["ann", "gpu1", "mini"]) else {
        return;
    };
    let mut carol = machines.get("gpu1").start_member("carol");
    let mut dave = machines.get("mini").start_member("dave");
    machines.wait_known("carol", true);
    machines.wait_known("dave", true);
    machines.get("mini").team_ok(&["send", "carol", "over TLS"]);
    machines.eventually("it arrives", || machines.get("gpu1").has_mail("carol", "over TLS"));
    let log = machines.get("ann").dir.root().join("run/.state/relay/nats/log");
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.contains("Violation"), "every host may do what it needs:\n{log}");

    // A host whose answer was lost asks again, when its own keys may log in already.
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    let code = ann.invitation("late");
    let folder = gpu.folder().join("late");
    fs::create_dir_all(folder.join(".team")).unwrap();
    for is_again in [false, true] {
        if is_again {
            // The server is told of the new host meanwhile.
            std::thread::park_timeout(Duration::from_millis(2500));
        }
        let mut command = gpu.command("team");
        let url = format!("nats://{}:4222", ann.address());
        let joined = command.current_dir(&folder).args(["host", "join", &url, "--code", &code]);
        let output = joined.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let first = ann.invitation("later");
    ann.invitation("later");
    fs::remove_dir_all(folder.join(".team")).unwrap();
    fs::create_dir(folder.join(".team")).unwrap();
    let mut command = gpu.command("team");
    let url = format!("nats://{}:4222", ann.address());
    let output =
        command.current_dir(&folder).args(["host", "join", &url, "--code", &first]).output();
    let said = text(&output.unwrap().stderr);
    assert!(said.contains("its server lets nobody in with this code"), "{said}");

    // Without TLS the server says nothing, and a server with another certificate is none.
    let at = std::net::SocketAddr::from((ann.address(), 4222));
    let greeting = machines.network.host("gpu1").enter(|| {
        let mut line = String::new();
        let stream = std::net::TcpStream::connect(at).unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
        line
    });
    assert!(greeting.contains(r#""tls_required":true"#), "{greeting}");
    let host = gpu.dir.root().join("run/.state/relay/host.json");
    let known: Value = serde_json::from_str(&fs::read_to_string(&host).unwrap()).unwrap();
    assert_eq!(known["servers"], json!([format!("nats://{at}")]));
    let pin = known["pin"].as_str().unwrap().to_owned();
    machines.get_mut("gpu1").kill_relay();
    let text = fs::read_to_string(&host).unwrap();
    let other = format!("{}{}", if pin.starts_with('A') { "B" } else { "A" }, &pin[1..]);
    crate::rig::files::write_private(&host, text.replace(&pin, &other));
    machines.get_mut("gpu1").start_relay();
    machines.eventually("the server is not trusted", || {
        let log = machines.get("gpu1").dir.root().join("run/.state/relay/log.jsonl");
        fs::read_to_string(log).unwrap().contains("there is no connection to the server")
    });
    machines.get("ann").team_ok(&["host", "rm", "mini"]);
    // Two ways lead there, and either may be the first: the withdrawal that it reads, and the server that knows its key no more.
    machines.eventually("a host that is removed is told so", || {
        let said = fs::read_to_string(machines.get("mini").folder().join("relay.err")).unwrap();
        said.contains("was withdrawn") || said.to_lowercase().contains("authorization violation")
    });
    for child in [&mut carol, &mut dave] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
