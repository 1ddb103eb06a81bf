//! Tests of the client with scripted servers, over pipes and over HTTP.

use super::*;
use crate::os::spawn::spawn_local;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(20);

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let options = tokio::runtime::LocalOptions::default();
    let runtime = builder.enable_all().build_local(options).unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(60), test).await.unwrap() });
}

/// A server behind two pipes.
struct Server {
    input: BufReader<DuplexStream>,
    output: DuplexStream,
}

impl Server {
    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.input.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }

    async fn say(&mut self, message: Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, id: &Value, result: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }
}

/// Opens a connection whose server answers its first request with this result; returns that request, too.
async fn open(era: Era, first: Value) -> (Result<Connection, ConnectionError>, Server, Value) {
    let (output, their_output) = tokio::io::duplex(65_536);
    let (input, their_input) = tokio::io::duplex(65_536);
    let mut server = Server { input: BufReader::new(their_input), output: their_output };
    let opening = Connection::over_pipes(output, input, era, LIMIT);
    let serving = async {
        let request = server.receive().await;
        // A server may ask before it answers.
        server.say(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
        assert_eq!(server.receive().await, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
        server.answer(&request["id"], first).await;
        request
    };
    let (connection, request) = tokio::join!(opening, serving);
    (connection, server, request)
}

#[test]
fn a_handshake_needs_a_version_that_both_sides_know() {
    run(async {
        let (connection, mut server, asked) =
            open(Era::Handshake, json!({ "protocolVersion": "2025-06-18" })).await;
        assert_eq!(asked["method"], "initialize");
        assert_eq!(asked["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(asked["params"]["clientInfo"]["name"], "agent-team");
        assert_eq!(server.receive().await["method"], "notifications/initialized");
        assert!(!connection.unwrap().is_closed());
        for unknown in ["2031-01-01", "2026-07-28"] {
            let first = json!({ "protocolVersion": unknown });
            let why = open(Era::Handshake, first).await.0.err().unwrap();
            assert!(
                matches!(&why, ConnectionError::Refused(why) if why.contains(unknown)),
                "{why}"
            );
        }
    });
}

#[test]
fn without_a_handshake_each_request_has_its_metadata() {
    run(async {
        let first = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"] });
        let (connection, mut server, asked) = open(Era::Discover, first).await;
        assert_eq!(asked["method"], "server/discover");
        let connection = connection.unwrap();
        let arguments = json!({ "a": 1 });
        let calling = connection.call("echo", &arguments, LIMIT);
        let serving = async {
            let call = server.receive().await;
            server
                .answer(&call["id"], json!({ "content": [{ "type": "text", "text": "hi" }] }))
                .await;
            call
        };
        let (called, call) = tokio::join!(calling, serving);
        assert_eq!(called.unwrap().text, "hi");
        assert_eq!(
            (&call["params"]["name"], &call["params"]["arguments"]),
            (&json!("echo"), &arguments)
        );
        for meta in [&asked["params"]["_meta"], &call["params"]["_meta"]] {
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
            assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "agent-team");
            assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        }
        assert!(call["params"]["_meta"]["progressToken"].is_u64());
        let other = json!({ "supportedVersions": ["2031-01-01"] });
        let why = open(Era::Discover, other).await.0.err().unwrap();
        assert!(matches!(why, ConnectionError::Refused(_)), "{why}");
    });
}

#[test]
fn progress_extends_a_call_and_a_dropped_one_is_cancelled() {
    run(async {
        let (connection, mut server, _) =
            open(Era::Handshake, json!({ "protocolVersion": "2025-11-25" })).await;
        let connection = connection.unwrap();
        server.receive().await;
        let limit = Duration::from_millis(600);
        let calling = connection.call("slow", &Value::Null, limit);
        let serving = async {
            let call = server.receive().await;
            let token = &call["params"]["_meta"]["progressToken"];
            for _ in 0..4 {
                sleep(limit / 2).await;
                let params = json!({ "progressToken": token, "progress": 1 });
                let method = "notifications/progress";
                server.say(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
            }
            server.answer(&call["id"], json!({ "content": [] })).await;
        };
        assert!(tokio::join!(calling, serving).0.is_ok());
        // The progress of another call does not count.
        let calling = connection.call("slow", &Value::Null, limit);
        let serving = async {
            let call = server.receive().await;
            loop {
                let params = json!({ "progressToken": 77 });
                let method = "notifications/progress";
                server.say(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
                if let Ok(cancelled) = timeout(limit / 8, server.receive()).await {
                    return (call, cancelled);
                }
            }
        };
        let (called, (call, cancelled)) = tokio::join!(calling, serving);
        assert!(matches!(called, Err(ConnectionError::TimedOut(..))), "{called:?}");
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
        let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage" });
        server.say(ask).await;
        assert_eq!(server.receive().await["error"]["code"], -32601);
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        server.say(changed).await;
        while !connection.take_new_tools() {
            tokio::task::yield_now().await;
        }
        assert!(!connection.take_new_tools());
    });
}

#[test]
fn tools_are_listed_page_by_page_up_to_a_bound() {
    run(async {
        let (connection, mut server, _) =
            open(Era::Handshake, json!({ "protocolVersion": "2025-11-25" })).await;
        let connection = connection.unwrap();
        server.receive().await;
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let serving = async {
            let first = server.receive().await;
            assert_eq!(first["params"].get("cursor"), None);
            let page = json!({ "tools": [tool("a"), 7, {}], "nextCursor": "n" });
            server.answer(&first["id"], page).await;
            let second = server.receive().await;
            assert_eq!(second["params"]["cursor"], "n");
            server.answer(&second["id"], json!({ "tools": [tool("b")] })).await;
        };
        let (tools, ()) = tokio::join!(connection.tools(LIMIT), serving);
        let names: Vec<String> = tools.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["a", "b"]);
        let serving = async {
            loop {
                let request = server.receive().await;
                let many: Vec<Value> = (0..300).map(|_| tool("t")).collect();
                let page = json!({ "tools": many, "nextCursor": "again" });
                server.answer(&request["id"], page).await;
            }
        };
        let tools = tokio::select! {
            tools = connection.tools(LIMIT) => tools.unwrap(),
            () = serving => unreachable!(),
        };
        assert_eq!(tools.len(), 1000);
    });
}

/// A request as a server over HTTP gets it.
#[derive(Debug, Clone)]
struct Posted {
    method: String,
    /// The names are in lower case.
    headers: BTreeMap<String, String>,
    message: Value,
}

/// A server over HTTP; `reply` gets each request and returns the status line with further headers, and the body.
struct HttpServer {
    url: String,
    posted: Rc<RefCell<Vec<Posted>>>,
}

type Reply = (&'static str, String);

impl HttpServer {
    async fn start<F: Future<Output = Reply>>(
        reply: impl Fn(Posted) -> F + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let posted: Rc<RefCell<Vec<Posted>>> = Rc::default();
        let seen = Rc::clone(&posted);
        spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, reply) = (Rc::clone(&seen), reply.clone());
                spawn_local(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read_request(&mut stream).await {
                        seen.borrow_mut().push(request.clone());
                        let (head, body) = reply(request).await;
                        let length = body.len();
                        let text =
                            format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
                        stream.write_all(text.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { url, posted }
    }

    fn methods(&self) -> Vec<String> {
        let named = |it: &Posted| it.message["method"].as_str().unwrap_or(&it.method).to_owned();
        self.posted.borrow().iter().map(named).collect()
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Posted> {
    let (mut first, mut headers) = (String::new(), BTreeMap::new());
    if stream.read_line(&mut first).await.ok()? == 0 {
        return None;
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let method = first.split(' ').next().unwrap().to_owned();
    Some(Posted { method, headers, message: serde_json::from_slice(&body).unwrap_or_default() })
}

const AS_JSON: &str = "200 OK\r\nContent-Type: application/json";
const AS_EVENTS: &str = "200 OK\r\ncontent-type: text/event-stream; charset=utf-8";

fn result_of(request: &Posted, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": request.message["id"], "result": result }).to_string()
}

/// Answers as a server with sessions does; `None` for calls and for what it is not asked.
fn in_session(request: &Posted) -> Option<Reply> {
    match request.message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let body = result_of(request, &json!({ "protocolVersion": "2025-06-18" }));
            Some(("200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s1", body))
        }
        method if method.starts_with("notifications/") => Some(("202 Accepted", String::new())),
        _ if request.method == "GET" => Some(("405 Method Not Allowed", String::new())),
        _ if request.method == "DELETE" => Some(("200 OK", String::new())),
        _ => None,
    }
}

async fn connect(server: &HttpServer, era: Era) -> Result<Connection, ConnectionError> {
    let headers = [("X-Key", "k")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Connection::over_http(&server.url, &headers.into(), era, LIMIT).await
}

#[test]
fn a_session_over_http_is_named_by_each_request_and_ended() {
    run(async {
        let server = HttpServer::start(|request| async move {
            in_session(&request).unwrap_or_else(|| {
                let result = json!({ "content": [{ "type": "text", "text": "hi" }] });
                (AS_JSON, result_of(&request, &result))
            })
        })
        .await;
        let connection = connect(&server, Era::Handshake).await.unwrap();
        assert_eq!(connection.call("echo", &json!({}), LIMIT).await.unwrap().text, "hi");
        connection.close().await;
        let posted = server.posted.borrow();
        assert!(posted.iter().all(|it| it.headers["x-key"] == "k"), "{posted:?}");
        assert!(!posted[0].headers.contains_key("mcp-session-id"));
        assert!(!posted[0].headers.contains_key("mcp-protocol-version"));
        for later in &posted[1..] {
            assert_eq!(later.headers["mcp-session-id"], "s1");
            assert_eq!(later.headers["mcp-protocol-version"], "2025-06-18");
            assert!(!later.headers.contains_key("mcp-method"));
        }
        assert_eq!(posted.last().unwrap().method, "DELETE");
        assert!(posted.iter().any(|it| it.method == "GET"), "{posted:?}");
        let accepts = &posted[0].headers["accept"];
        assert!(accepts.contains("application/json") && accepts.contains("text/event-stream"));
    });
}

#[test]
fn a_session_that_was_forgotten_is_begun_again_once() {
    run(async {
        let forgets = Rc::new(RefCell::new(vec!["c", "c", "d"]));
        let server = HttpServer::start(move |request| {
            let forgets = Rc::clone(&forgets);
            async move {
                let name = request.message["params"]["name"].as_str().unwrap_or_default();
                let at = forgets.borrow().iter().position(|it| *it == name);
                if let Some(at) = at {
                    forgets.borrow_mut().remove(at);
                    return ("404 Not Found", String::new());
                }
                in_session(&request)
                    .unwrap_or_else(|| (AS_JSON, result_of(&request, &json!({ "content": [] }))))
            }
        })
        .await;
        let connection = connect(&server, Era::Handshake).await.unwrap();
        let refused = connection.call("c", &json!({}), LIMIT).await;
        assert!(matches!(refused, Err(ConnectionError::Refused(_))), "{refused:?}");
        assert!(connection.is_closed());
        let connection = connect(&server, Era::Handshake).await.unwrap();
        assert!(connection.call("d", &json!({}), LIMIT).await.is_ok());
        assert!(connection.take_new_tools() && !connection.is_closed());
        let methods = server.methods();
        assert_eq!(methods.iter().filter(|it| *it == "initialize").count(), 4, "{methods:?}");
    });
}

#[test]
fn events_bring_answers_progress_and_requests_of_the_server() {
    run(async {
        let server = HttpServer::start(|request| async move {
            if request.method == "GET" {
                let changed = json!({ "method": "notifications/tools/list_changed" });
                return (AS_EVENTS, format!("data: {changed}\n\n"));
            }
            in_session(&request).unwrap_or_else(|| {
                let ask = json!({ "id": "q", "method": "roots/list" });
                let forged = json!({ "id": 999, "result": {} });
                let answer = result_of(&request, &json!({ "content": [], "structuredContent": 1 }));
                (
                    AS_EVENTS,
                    format!(
                        ": hi\n\ndata: {ask}\n\ndata: x\n\ndata: {forged}\n\ndata: {answer}\n\n"
                    ),
                )
            })
        })
        .await;
        let connection = connect(&server, Era::Handshake).await.unwrap();
        assert_eq!(connection.call("echo", &json!({}), LIMIT).await.unwrap().text, "1");
        while !connection.take_new_tools() {
            sleep(Duration::from_millis(5)).await;
        }
        let posted = server.posted.borrow();
        let refused = posted.iter().find(|it| it.message["id"] == "q").unwrap();
        assert_eq!(refused.message["error"]["code"], -32601);
    });
}

#[test]
fn over_http_a_dropped_call_is_cancelled() {
    run(async {
        let server = HttpServer::start(|request| async move {
            match in_session(&request) {
                Some(reply) => reply,
                None => std::future::pending().await,
            }
        })
        .await;
        let connection = connect(&server, Era::Handshake).await.unwrap();
        let called = connection.call("slow", &json!({}), Duration::from_millis(100)).await;
        assert!(matches!(called, Err(ConnectionError::TimedOut(..))), "{called:?}");
        while !server.methods().contains(&"notifications/cancelled".to_owned()) {
            sleep(Duration::from_millis(5)).await;
        }
        let posted = server.posted.borrow();
        let id_of = |method: &str| {
            let it = posted.iter().find(|it| it.message["method"] == method).unwrap();
            it.message.pointer("/params/requestId").unwrap_or(&it.message["id"]).clone()
        };
        assert_eq!(id_of("tools/call"), id_of("notifications/cancelled"));
    });
}

#[test]
fn without_a_handshake_headers_name_version_method_and_tool() {
    run(async {
        let server = HttpServer::start(|request| async move {
            let result = json!({ "supportedVersions": ["2026-07-28"], "resultType": "complete", "content": [] });
            (AS_JSON, result_of(&request, &result))
        })
        .await;
        let connection = connect(&server, Era::Discover).await.unwrap();
        connection.call("l\u{f6}g", &json!({}), LIMIT).await.unwrap();
        connection.close().await;
        let posted = server.posted.borrow();
        let named = |at: usize, name: &str| posted[at].headers.get(name).cloned();
        assert_eq!(server.methods(), ["server/discover", "tools/call"]);
        for at in [0, 1] {
            assert_eq!(named(at, "mcp-protocol-version").as_deref(), Some("2026-07-28"));
            assert_eq!(named(at, "mcp-method"), Some(server.methods()[at].clone()));
        }
        assert_eq!(
            (named(0, "mcp-name"), named(1, "mcp-name")),
            (None, Some("=?base64?bMO2Zw==?=".into()))
        );
    });
}

#[test]
fn a_failure_over_http_says_whether_the_call_may_have_been_done() {
    run(async {
        let server = HttpServer::start(|request| async move {
            let error =
                json!({ "jsonrpc": "2.0", "id": null, "error": { "code": 1, "message": "bad" } });
            match request.message["params"]["name"].as_str() {
                Some("login") => ("401 Unauthorized", String::new()),
                Some("error") => {
                    ("400 Bad Request\r\ncontent-type: application/json", error.to_string())
                }
                Some("page") => ("403 Forbidden", "<p>no</p>".into()),
                Some("gateway") => ("502 Bad Gateway", String::new()),
                Some("other") => (AS_JSON, json!({ "id": 77, "result": {} }).to_string()),
                Some("html") => ("200 OK\r\ncontent-type: text/html", String::new()),
                Some("cut") => (AS_EVENTS, ": nothing\n\n".into()),
                Some("moved") => {
                    ("307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/", String::new())
                }
                _ => in_session(&request).unwrap(),
            }
        })
        .await;
        let connection = connect(&server, Era::Handshake).await.unwrap();
        for (tool, is_certain, says) in [
            ("login", true, "OAuth"),
            ("error", true, "bad"),
            ("page", true, "HTTP 403: <p>no</p>"),
            ("moved", true, "HTTP 307"),
            ("gateway", false, "HTTP 502"),
            ("other", false, "no answer to the request"),
            ("html", false, "neither JSON"),
            ("cut", false, "ended before the answer"),
        ] {
            let why = connection.call(tool, &json!({}), LIMIT).await.unwrap_err();
            assert_eq!(matches!(why, ConnectionError::Refused(_)), is_certain, "{tool}: {why}");
            assert!(why.to_string().contains(says), "{tool}: {why}");
        }
        let unreached = BTreeMap::new();
        let opened =
            Connection::over_http("http://127.0.0.1:1/", &unreached, Era::Handshake, LIMIT).await;
        let why = opened.err().unwrap();
        assert!(why.to_string().contains("cannot be reached"), "{why}");
        for plain in ["http://10.0.0.1/mcp", "ftp://127.0.0.1/", "nothing"] {
            let opened = Connection::over_http(plain, &unreached, Era::Handshake, LIMIT).await;
            assert!(matches!(opened, Err(ConnectionError::Refused(_))), "{plain}");
        }
    });
}
