//! A client of NATS `JetStream`: its text protocol over a socket.

use crate::poll::wait;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

const STREAM: &str = "MAIL";
const SUBJECT: &str = "mail";
const DURABLE: &str = "owner";

/// The number of messages that a consumer asks for at once, and a producer sends at once to fill a stream.
const BATCH: usize = 500;

/// The most messages that the server hands out without an acknowledgement.
const MAX_UNACKNOWLEDGED: usize = 10_000;

/// A message of the server.
#[derive(Debug)]
struct Message {
    subject: String,
    reply_to: Option<String>,
    /// The status of a message without content, for instance of a request that has expired.
    headers: String,
    text: String,
}

/// Creates the stream: its messages are in files, and each is removed once it is acknowledged.
pub(crate) fn create_stream(port: u16) {
    let stream = json!({
        "name": STREAM,
        "subjects": [SUBJECT],
        "retention": "workqueue",
        "storage": "file",
        "num_replicas": 1,
    });
    let answer = Connection::open(port).request("$JS.API.STREAM.CREATE.MAIL", &stream);
    assert!(answer.get("error").is_none(), "{answer}");
}

/// A connection that sends texts.
pub(crate) struct Producer {
    connection: Connection,
    sent: u64,
}

impl Producer {
    pub(crate) fn connect(port: u16) -> Self {
        Self { connection: Connection::open(port), sent: 0 }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.publish(text);
        self.connection.flush();
        self.acknowledgement();
    }

    pub(crate) fn fill(&mut self, text: &str, count: usize) {
        for start in (0..count).step_by(BATCH) {
            let messages = BATCH.min(count - start);
            for _ in 0..messages {
                self.publish(text);
            }
            self.connection.flush();
            for _ in 0..messages {
                self.acknowledgement();
            }
        }
    }

    fn publish(&mut self, text: &str) {
        self.sent += 1;
        let reply_to = format!("{}.{}", self.connection.inbox, self.sent);
        self.connection.publish(SUBJECT, &reply_to, text);
    }

    /// Waits until the stream has stored a message.
    fn acknowledgement(&mut self) {
        let answer = self.connection.message().text;
        assert!(answer.contains("\"seq\":"), "{answer}");
    }
}

/// A connection that pulls the messages of a durable consumer.
pub(crate) struct Consumer {
    connection: Connection,
    /// The number of messages that the server may still send.
    asked: usize,
    /// The number of messages since the last flush.
    taken: usize,
}

impl Consumer {
    /// Creates the durable consumer and asks for the first messages.
    pub(crate) fn connect(port: u16) -> Self {
        let mut connection = Connection::open(port);
        let consumer = json!({
            "stream_name": STREAM,
            "config": {
                "durable_name": DURABLE,
                "ack_policy": "explicit",
                "max_ack_pending": MAX_UNACKNOWLEDGED,
            },
        });
        let answer = connection.request("$JS.API.CONSUMER.DURABLE.CREATE.MAIL.owner", &consumer);
        assert!(answer.get("error").is_none(), "{answer}");
        let mut consumer = Self { connection, asked: 0, taken: 0 };
        consumer.ask();
        consumer
    }

    /// Sends the acknowledgements, and asks for more messages once half of the last have come.
    fn ask(&mut self) {
        if self.asked <= BATCH / 2 {
            let minute = 60_000_000_000_u64;
            let request = json!({ "batch": BATCH, "expires": minute }).to_string();
            let reply_to = format!("{}.pull", self.connection.inbox);
            let subject = "$JS.API.CONSUMER.MSG.NEXT.MAIL.owner";
            self.connection.publish(subject, &reply_to, &request);
            self.asked += BATCH;
        }
        self.connection.flush();
        self.taken = 0;
    }

    /// Waits for messages at most for `limit`, and acknowledges them.
    pub(crate) fn receive(&mut self, limit: Duration, take: &mut dyn FnMut(&str)) {
        if !self.connection.has_input(limit) {
            return;
        }
        loop {
            let message = self.connection.message();
            assert_eq!(message.headers, "", "{message:?}");
            take(&message.text);
            self.connection.publish(&message.reply_to.unwrap(), "", "+ACK");
            self.asked -= 1;
            self.taken += 1;
            if self.taken == BATCH / 2 || !self.connection.has_input(Duration::ZERO) {
                return self.ask();
            }
        }
    }
}

struct Connection {
    input: BufReader<TcpStream>,
    /// Messages that are not sent yet.
    output: Vec<u8>,
    /// The subject below which this connection receives.
    inbox: String,
}

impl Connection {
    /// Connects, and subscribes to everything below the inbox of this connection.
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let inbox =
            format!("_INBOX.{}-{}", std::process::id(), stream.local_addr().unwrap().port());
        let input = BufReader::with_capacity(1 << 16, stream);
        let mut connection = Self { input, output: Vec::new(), inbox };
        let options = json!({ "verbose": false, "pedantic": false, "headers": true });
        let inbox = &connection.inbox;
        write!(connection.output, "CONNECT {options}\r\nSUB {inbox}.> 1\r\n").unwrap();
        connection.flush();
        connection
    }

    fn publish(&mut self, subject: &str, reply_to: &str, text: &str) {
        write!(self.output, "PUB {subject} {reply_to} {}\r\n{text}\r\n", text.len()).unwrap();
    }

    fn flush(&mut self) {
        self.input.get_mut().write_all(&self.output).unwrap();
        self.output.clear();
    }

    fn has_input(&self, limit: Duration) -> bool {
        !self.input.buffer().is_empty() || wait(self.input.get_ref().as_fd(), limit)
    }

    /// Sends a request to the server and returns the answer.
    fn request(&mut self, subject: &str, request: &Value) -> Value {
        let reply_to = format!("{}.request", self.inbox);
        self.publish(subject, &reply_to, &request.to_string());
        self.flush();
        let answer = self.message();
        assert_eq!(answer.subject, reply_to);
        serde_json::from_str(&answer.text).unwrap()
    }

    /// Reads the next message, and answers pings before it.
    fn message(&mut self) -> Message {
        loop {
            let mut line = String::new();
            self.input.read_line(&mut line).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["MSG", subject, _, reply_to @ .., length] => {
                    return self.body(subject, reply_to, "0", length);
                }
                ["HMSG", subject, _, reply_to @ .., headers, length] => {
                    return self.body(subject, reply_to, headers, length);
                }
                ["PING"] => {
                    self.output.extend(b"PONG\r\n");
                    self.flush();
                }
                ["INFO" | "PONG" | "+OK", ..] => {}
                _ => panic!("NATS says {line:?}"),
            }
        }
    }

    fn body(&mut self, subject: &str, reply_to: &[&str], headers: &str, length: &str) -> Message {
        let [headers, length] = [headers, length].map(|number| number.parse::<usize>().unwrap());
        let mut bytes = vec![0; length + 2];
        self.input.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        let text = bytes.split_off(headers);
        let [headers, text] = [bytes, text].map(|bytes| String::from_utf8(bytes).unwrap());
        let reply_to = reply_to.first().map(|word| (*word).to_owned());
        Message { subject: subject.into(), reply_to, headers, text }
    }
}
