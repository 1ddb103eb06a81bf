//! P12: the overhead of a model call over network and endpoint.
//!
//! The endpoint is a thread of this program that streams the same answer to every client. The reference is a bare
//! HTTP client that posts the same bytes and reads the answer to its end. The two clients alternate. Our client
//! also builds the request from a conversation, decodes the events and assembles the reply.

use crate::figure::{Figure, Size, Target, median, percentile};
use agent_team::llm::{Api, Client, ClientConfig, Credentials, Provider};
use agent_team::wire::chat::{Block, ChatMessage, Request, Role, Thinking, ToolDefinition};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

/// The number of messages in the conversation, of a thousand bytes each.
const MESSAGES: usize = 101;

/// The number of pieces of the answer.
const PIECES: usize = 100;

pub(crate) fn measure(size: &Size) -> Vec<Figure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (base, bodies) = endpoint();
    let config = ClientConfig::new(Api::Messages, &base, Credentials::Anonymous, "m");
    let ours = Client::new(config).unwrap();
    let request = conversation();
    // The first call connects, and records the body for the bare client.
    runtime.block_on(call(&ours, &request));
    let body = bodies.recv().unwrap();
    let bare = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = format!("{base}/v1/messages");
    runtime.block_on(post(&bare, &url, &body));

    let [mut above, mut above_late, mut plain, mut plain_late] = [(); 4].map(|()| Vec::new());
    for _ in 0..size.rounds {
        let (mut with_us, mut without) = (Vec::new(), Vec::new());
        for _ in 0..size.wakes {
            with_us.push(runtime.block_on(call(&ours, &request)));
            without.push(runtime.block_on(post(&bare, &url, &body)));
        }
        let late = percentile(&without, 99.0);
        above.push(median(&with_us) - median(&without));
        above_late.push(percentile(&with_us, 99.0) - late);
        plain.push(median(&without));
        plain_late.push(late);
    }
    let figure = |measure: &str, ours: &[f64], reference: &[f64], most| Figure {
        id: "P12",
        measure: measure.into(),
        unit: "ms",
        ours: median(ours),
        reference: Some(median(reference)),
        target: Target::Below(most),
    };
    vec![
        figure("a streamed call above a bare client's; that one's, p50", &above, &plain, 2.0),
        figure("the same, p99", &above_late, &plain_late, 10.0),
    ]
}

fn conversation() -> Request {
    let message = |at: usize| ChatMessage {
        role: if at.is_multiple_of(2) { Role::User } else { Role::Assistant },
        blocks: vec![Block::Text { text: format!("{at} {}", "words of a message ".repeat(55)) }],
    };
    let tool = |at: usize| ToolDefinition {
        name: format!("tool_{at}"),
        description: "Does something that takes a sentence or two to be described.".into(),
        input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
    };
    Request {
        system: "You are somebody in a team. ".repeat(50),
        messages: (0..MESSAGES).map(message).collect(),
        tools: (0..16).map(tool).collect(),
        max_tokens: 1024,
        thinking: Thinking::default(),
    }
}

/// Returns the duration of our call in milliseconds.
async fn call(client: &Client, request: &Request) -> f64 {
    let began = Instant::now();
    let mut shown = 0;
    let reply = client.turn(request, &mut |_| shown += 1).await.unwrap();
    assert_eq!((shown, reply.blocks.len()), (PIECES, 1));
    began.elapsed().as_secs_f64() * 1e3
}

/// Returns the duration of the bare exchange in milliseconds.
async fn post(client: &reqwest::Client, url: &str, body: &[u8]) -> f64 {
    let began = Instant::now();
    let request = client.post(url).header("content-type", "application/json");
    let mut response = request.body(body.to_vec()).send().await.unwrap();
    let mut length = 0;
    while let Some(piece) = response.chunk().await.unwrap() {
        length += piece.len();
    }
    assert!(length > PIECES);
    began.elapsed().as_secs_f64() * 1e3
}

/// Starts the endpoint, which ends with this process. Returns its base URL, and the first body that it gets.
fn endpoint() -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (first, bodies) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let first = first.clone();
            thread::spawn(move || serve(stream, &first));
        }
    });
    (base, bodies)
}

fn serve(mut stream: TcpStream, first: &Sender<Vec<u8>>) {
    stream.set_nodelay(true).unwrap();
    let events = answer();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(body) = next_body(&mut reader) {
        // Only the first body is used.
        let _unheard = first.send(body);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for event in &events {
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            stream.write_all(chunk.as_bytes()).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
}

fn next_body(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            return Some(body);
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
}

fn answer() -> Vec<String> {
    let event = |name: &str, mut data: serde_json::Value| {
        data["type"] = name.into();
        format!("event: {name}\ndata: {data}\n\n")
    };
    let usage = json!({"input_tokens": 9, "output_tokens": 1});
    let mut events = vec![
        event("message_start", json!({"message": {"model": "m", "usage": usage}})),
        event(
            "content_block_start",
            json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ];
    events.extend((0..PIECES).map(|at| {
        let delta = json!({"type": "text_delta", "text": format!("word {at} ")});
        event("content_block_delta", json!({"index": 0, "delta": delta}))
    }));
    events.push(event("content_block_stop", json!({"index": 0})));
    events.push(event("message_delta", json!({"delta": {"stop_reason": "end_turn"}})));
    events.push(event("message_stop", json!({})));
    events
}
