//! Tests of the server with a member that records what it is asked.

use super::*;
use crate::tools;
use crate::wire::tool::Served;
use std::cell::Cell;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::net::TcpStream;

/// A member whose calls answer with their arguments, and that has one message for each result.
#[derive(Default)]
struct Member {
    calls: RefCell<Vec<Call>>,
    answered: RefCell<Vec<bool>>,
    refuses: Cell<bool>,
    /// The time that a handshake takes.
    handshake: Cell<Duration>,
}

impl ServedMember for Member {
    fn welcome<'a>(
        &'a self,
        client: &'a str,
        _: &'a str,
    ) -> LocalFuture<'a, Result<String, String>> {
        let refused = self.refuses.get().then(|| "the name is in use".to_owned());
        Box::pin(async move {
            tokio::time::sleep(self.handshake.get()).await;
            refused.map_or(Ok(format!("You are {client}.")), Err)
        })
    }

    fn tools(&self) -> Vec<&'static ToolSpec> {
        tools::specs().filter(|spec| spec.served != Served::Never).collect()
    }

    fn call<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Result<String, ToolError>> {
        self.calls.borrow_mut().push(call.clone());
        Box::pin(async move {
            match call.name.as_str() {
                "waits" => std::future::pending().await,
                "fails" => Err(ToolError::reply("correct the name")),
                "long" => Ok("x".repeat(64 * 1024 * 1024)),
                _ => Ok(call.input.to_string()),
            }
        })
    }

    fn unread<'a>(&'a self, _: &'a Call) -> LocalFuture<'a, Option<String>> {
        Box::pin(async { Some("<inbox>\n[]\n</inbox>".into()) })
    }

    fn answered(&self, _: &str, was_written: bool) {
        self.answered.borrow_mut().push(was_written);
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let options = tokio::runtime::LocalOptions::default();
    let runtime = builder.enable_all().build_local(options).unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.unwrap() });
}

/// A client of the server over lines.
struct Client {
    member: Rc<Member>,
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Client {
    fn start() -> Self {
        let member = Rc::new(Member::default());
        let tools = ToolServer::new(Rc::clone(&member) as Rc<dyn ServedMember>);
        let (input, theirs) = tokio::io::duplex(65_536);
        let (output, mut ours) = tokio::io::duplex(65_536);
        let write = async move |line: Vec<u8>| ours.write_all(&line).await;
        let served = tokio::task::spawn_local(lines::serve(tools, BufReader::new(theirs), write));
        Self { member, input: Some(input), output: BufReader::new(output), served }
    }

    async fn send(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }

    async fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(request.to_string().as_bytes()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn shake_hands(&mut self, version: &str) -> Value {
        let client = json!({ "name": "claude-code", "version": "2.1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let answer = self.ask(0, "initialize", params).await;
        self.send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        answer
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_handshake_agrees_on_a_known_version_and_tells_the_instructions() {
    run(async {
        for (asked, agreed) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] {
            let mut client = Client::start();
            let answer = client.shake_hands(asked).await;
            assert_eq!(answer["result"]["protocolVersion"], agreed, "{answer}");
            assert_eq!(answer["result"]["instructions"], "You are claude-code.");
            assert_eq!(answer["result"]["serverInfo"]["name"], "team");
            assert!(answer["result"].get("resultType").is_none(), "{answer}");
            assert_eq!(client.ask(1, "ping", json!({})).await["result"], json!({}));
        }
    });
}

#[test]
fn a_member_that_cannot_join_answers_with_the_reason() {
    run(async {
        let mut client = Client::start();
        client.member.refuses.set(true);
        let answer = client.shake_hands("2025-11-25").await;
        assert_eq!(answer["error"]["message"], "the name is in use");
        let answer = client.ask(1, "tools/list", json!({})).await;
        assert_eq!(answer["error"]["message"], "the name is in use");
    });
}

/// Clients of the newest version name it with each request, without a handshake.
#[test]
fn a_client_of_the_newest_version_needs_no_handshake() {
    run(async {
        let mut client = Client::start();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "probe", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let found = client.ask(1, "server/discover", json!({ "_meta": meta })).await;
        let versions = found["result"]["supportedVersions"].as_array().unwrap();
        assert!(versions.contains(&"2026-07-28".into()), "{found}");
        assert_eq!(found["result"]["instructions"], "You are probe.");
        let listed = client.ask(2, "tools/list", json!({ "_meta": meta })).await;
        for result in [&found["result"], &listed["result"]] {
            let fields = (&result["resultType"], &result["ttlMs"], &result["cacheScope"]);
            assert_eq!(fields, (&json!("complete"), &json!(0), &json!("private")), "{result}");
        }
        assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "team");
        let call = json!({ "name": "echo", "arguments": {}, "_meta": meta });
        let called = client.ask(3, "tools/call", call).await;
        assert!(text(&called).starts_with("{}"));
        assert_eq!(called["result"]["resultType"], "complete");
        let mut unknown = meta.clone();
        unknown["io.modelcontextprotocol/protocolVersion"] = "2031-01-01".into();
        let refused = client.ask(4, "tools/list", json!({ "_meta": unknown })).await;
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
        assert_eq!(refused["error"]["data"]["requested"], "2031-01-01");
        assert!(refused["error"]["data"]["supported"].as_array().unwrap().len() > 1);
        for method in ["server/discover", "tools/list"] {
            let mut bare = meta.clone();
            bare.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
            let refused = client.ask(5, method, json!({ "_meta": bare })).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
    });
}

#[test]
fn the_tools_are_those_of_the_specs_with_hints() {
    run(async {
        let mut client = Client::start();
        client.shake_hands("2025-11-25").await;
        let listed = client.ask(1, "tools/list", json!({})).await;
        let again = client.ask(1, "tools/list", json!({})).await;
        assert_eq!(listed.to_string(), again.to_string());
        let tools = listed["result"]["tools"].as_array().unwrap();
        let find = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tools.len(), 16, "{listed}");
        for (name, hints, is_loaded) in [
            ("send_message", json!({ "destructiveHint": false, "idempotentHint": true }), true),
            ("broadcast", json!({ "destructiveHint": false, "idempotentHint": true }), false),
            ("claim_task", json!({ "destructiveHint": false }), false),
            ("answer_request", json!({ "destructiveHint": true }), false),
            ("check_inbox", json!({}), true),
            ("list_teammates", json!({}), true),
            ("get_task", json!({}), false),
        ] {
            let tool = find(name);
            let mut hints = hints;
            hints["readOnlyHint"] = hints.as_object().unwrap().is_empty().into();
            hints["openWorldHint"] = false.into();
            assert_eq!(tool["annotations"], hints, "{name}");
            assert_eq!(tool["_meta"]["anthropic/alwaysLoad"] == true, is_loaded, "{name}");
            let definition = tools::find(name).unwrap().definition();
            assert_eq!(tool["inputSchema"], definition.input_schema, "{name}");
            assert_eq!(tool["description"], definition.description, "{name}");
        }
    });
}

#[test]
fn a_result_ends_with_unread_mail_which_counts_as_handed_out_once_it_is_written() {
    run(async {
        let mut client = Client::start();
        client.shake_hands("2025-11-25").await;
        let call = json!({ "name": "echo", "arguments": { "a": 1 } });
        let answer = client.ask(1, "tools/call", call).await;
        assert_eq!(text(&answer), "{\"a\":1}\n\nYour unread mail:\n<inbox>\n[]\n</inbox>");
        assert!(answer["result"]["isError"] != true, "{answer}");
        let answer = client.ask(2, "tools/call", json!({ "name": "fails" })).await;
        assert!(answer["result"]["isError"] == true, "{answer}");
        assert!(text(&answer).starts_with("correct the name\n"), "{answer}");
        assert_eq!(*client.member.answered.borrow(), [true, true]);
        // A client that reads no more: the mail is unread again.
        let Client { input, output, served, member } = client;
        drop(output);
        let mut input = input.unwrap();
        let call = br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo"}}"#;
        input.write_all(call).await.unwrap();
        input.write_all(b"\n").await.unwrap();
        served.await.unwrap().unwrap();
        assert_eq!(*member.answered.borrow(), [true, true, false]);
    });
}

/// A client may write all its messages at once, and close. Calls have a second; a handshake on a busy machine needs more.
#[test]
fn a_handshake_is_answered_after_the_end_of_the_input() {
    run(async {
        let mut client = Client::start();
        client.member.handshake.set(Duration::from_millis(1500));
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "me", "version": "1" } });
        let request =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        client.send(request.to_string().as_bytes()).await;
        drop(client.input.take());
        let answer = client.receive().await;
        assert_eq!(answer["result"]["instructions"], "You are me.");
        client.served.await.unwrap().unwrap();
    });
}

#[test]
fn a_cancelled_call_gets_no_answer_and_its_mail_is_unread_again() {
    run(async {
        let mut client = Client::start();
        client.shake_hands("2025-11-25").await;
        let waits =
            br#"{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"waits"}}"#;
        client.send(waits).await;
        while client.member.calls.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        let cancel =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}"#;
        client.send(cancel).await;
        client.ask(2, "ping", json!({})).await;
        while client.member.answered.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*client.member.answered.borrow(), [false]);
        // The end of the input ends the rest.
        client.send(waits).await;
        drop(client.input.take());
        client.served.await.unwrap().unwrap();
        let mut rest = Vec::new();
        client.output.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    });
}

#[test]
fn what_is_no_request_gets_a_clear_answer() {
    run(async {
        let mut client = Client::start();
        for (line, code, id) in [
            (&b"hello"[..], -32700, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":", -32700, Value::Null),
            (b"\xff\xfe{}", -32700, Value::Null),
            (b"[]", -32600, Value::Null),
            (br#"{"id":7}"#, -32600, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"nope","params":{}}"#, -32601, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{}}"#, -32601, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, -32602, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#, -32602, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":[]}"#, -32600, 7.into()),
            (br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}"#, -32602, 7.into()),
        ] {
            client.send(line).await;
            let answer = client.receive().await;
            let line = String::from_utf8_lossy(line);
            assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
            assert_eq!(answer["id"], id, "{line}: {answer}");
        }
        for quiet in [
            &b""[..],
            b"   ",
            br#"{"jsonrpc":"2.0","method":"notifications/nope"}"#,
            br#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            client.send(quiet).await;
        }
        client.ask(9, "ping", json!({})).await;
    });
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_is_read() {
    run(async {
        let mut client = Client::start();
        let mut input = client.input.take().unwrap();
        let sent = tokio::task::spawn_local(async move {
            let part = vec![b'x'; 1024 * 1024];
            for _ in 0..20 {
                input.write_all(&part).await.unwrap();
            }
            input.write_all(b"\n").await.unwrap();
            input
        });
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        client.input = Some(sent.await.unwrap());
        client.ask(1, "ping", json!({})).await;
    });
}

#[test]
fn a_flood_of_calls_is_answered_call_by_call() {
    run(async {
        let mut client = Client::start();
        client.shake_hands("2025-11-25").await;
        let mut input = client.input.take().unwrap();
        let sent = tokio::task::spawn_local(async move {
            for id in 0..500 {
                let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                    "params": { "name": "echo", "arguments": { "n": id } } });
                input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
            }
            input
        });
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let answer = client.receive().await;
            let id = answer["id"].as_u64().unwrap();
            assert!(text(&answer).starts_with(&format!("{{\"n\":{id}}}")), "{answer}");
            assert!(seen.insert(id));
        }
        drop(sent.await.unwrap());
        client.served.await.unwrap().unwrap();
        assert!(client.member.answered.borrow().iter().all(|was_written| *was_written));
    });
}

#[test]
fn the_id_of_a_call_derives_from_that_of_the_model_and_from_the_arguments() {
    let id = |meta: Value, input: Value| call_id(&meta, "send_message", &input);
    let (a, b) = (json!({ "to": "a" }), json!({ "to": "b" }));
    let claude = |id: &str| json!({ "claudecode/toolUseId": id });
    let first = id(claude("toolu_1"), a.clone());
    assert!(first.starts_with("toolu_1."), "{first}");
    assert_eq!(first, id(claude("toolu_1"), a.clone()));
    assert_ne!(first, id(claude("toolu_1"), b));
    assert!(id(json!({ "callId": "call_9" }), a.clone()).starts_with("call_9."));
    for forged in ["", "a b", "a\nb", "a/../b", "\u{e9}", &"x".repeat(129)] {
        let fresh = id(claude(forged), a.clone());
        assert!(!fresh.contains('.'), "{fresh}");
        assert_ne!(fresh, id(claude(forged), a.clone()));
    }
}

/// Sends a request and returns its head and its body.
async fn fetch(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// A server over HTTP, which ends with the test.
struct HttpTest {
    member: Rc<Member>,
    address: String,
    token: String,
}

impl HttpTest {
    async fn start() -> Self {
        let member = Rc::new(Member::default());
        let tools = ToolServer::new(Rc::clone(&member) as Rc<dyn ServedMember>);
        let server = http::HttpServer::open(tools).await.unwrap();
        let (url, token) = (server.url(), server.authorization());
        tokio::task::spawn_local(server.serve());
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { member, address, token }
    }

    /// Returns the text of a request with further headers.
    fn post(&self, more: &str, body: &str) -> String {
        let (address, token, length) = (&self.address, &self.token, body.len());
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: {token}\r\ncontent-type: \
             application/json\r\n{more}content-length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends a call of a tool without waiting for its answer.
    async fn call(&self, tool: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let call = CALL.replace("echo", tool);
        stream.write_all(self.post("", &call).as_bytes()).await.unwrap();
        stream
    }

    /// Waits until so many answers were written or not.
    async fn answered(&self, count: usize) -> Vec<bool> {
        while self.member.answered.borrow().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.member.answered.borrow().clone()
    }
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;

#[test]
fn over_http_only_the_client_with_the_token_is_served() {
    run(async {
        let server = HttpTest::start().await;
        let post = |more: &str, body: &str| server.post(more, body);
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let shake = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"codex","version":"1"}}}"#;
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let version = "mcp-protocol-version: 2025-06-18\r\n";
        let foreign = "origin: http://evil.example\r\n";
        let (address, token) = (&server.address, &server.token);
        for (request, status, says) in [
            (post("", ping), "200 ok", r#""result":{}"#),
            (post("", shake), "200 ok", "You are codex."),
            (post(version, done), "202 accepted", ""),
            (post(version, CALL), "200 ok", "Your unread mail"),
            (post("", "hello"), "400 bad request", "-32700"),
            (post("", ping).replace(token, "Bearer x"), "401 unauthorized", "token"),
            (post("", ping).replace(address, "evil.example"), "403 forbidden", "host"),
            (post(foreign, ping), "403 forbidden", "page"),
            (post("", ping).replace("POST", "GET"), "405 method not allowed", "POST"),
            (post("", ping).replace("/mcp", "/"), "404 not found", "/mcp"),
        ] {
            let (head, body) = fetch(address, &request).await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{request}\n{head}\n{body}");
            assert!(body.contains(says), "{request}\n{head}\n{body}");
        }
        assert_eq!(server.answered(1).await, [true]);
    });
}

/// Without a handshake, errors have a status, and headers must fit the request.
#[test]
fn over_http_a_client_of_the_newest_version_gets_errors_with_their_status() {
    run(async {
        let server = HttpTest::start().await;
        let body = |method: &str, version: &str| {
            let meta = json!({ "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {} });
            json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "_meta": meta } })
        };
        let newest = "2026-07-28";
        let bare = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
        for (version, method, body, status, says) in [
            (newest, "tools/list", body("tools/list", newest), "200 ok", "complete"),
            (newest, "tools/list", bare.clone(), "400 bad request", "-32602"),
            (newest, "x", body("tools/list", newest), "400 bad request", "-32020"),
            (newest, "ping", body("ping", newest), "404 not found", "-32601"),
            (newest, "initialize", body("initialize", newest), "404 not found", "-32601"),
            (newest, "nope", body("nope", newest), "404 not found", "-32601"),
            (newest, "tools/list", body("tools/list", "v9"), "400 bad request", "-32020"),
            ("v9", "tools/list", body("tools/list", "v9"), "400 bad request", "supported"),
            ("v9", "", bare, "400 bad request", "-32022"),
        ] {
            let more = format!("mcp-protocol-version: {version}\r\nmcp-method: {method}\r\n");
            let request = server.post(&more, &body.to_string());
            let (head, body) = fetch(&server.address, &request).await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{request}\n{head}\n{body}");
            assert!(body.contains(says) && body.contains(r#""id":7"#), "{request}\n{body}");
        }
    });
}

#[test]
fn over_http_a_client_that_hangs_up_leaves_its_mail_unread() {
    run(async {
        let server = HttpTest::start().await;
        // It has a part of the answer.
        let mut stream = server.call("long").await;
        stream.read_exact(&mut [0; 1000]).await.unwrap();
        drop(stream);
        assert_eq!(server.answered(1).await, [false]);
        // Its call is cancelled.
        let stream = server.call("waits").await;
        while server.member.calls.borrow().len() < 2 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        assert_eq!(server.answered(2).await, [false, false]);
    });
}
