//! A client of Redis streams: the protocol RESP over a socket.

use crate::poll::wait;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const STREAM: &str = "mail";
const GROUP: &str = "owner";

/// The most messages that one read takes.
const BATCH: &str = "500";

/// The number of commands that [`Producer::fill`] sends at once.
const PIPELINE: usize = 500;

/// A reply of the server.
#[derive(Debug, PartialEq)]
enum Reply {
    /// A status, a number or a text.
    Text(String),
    List(Vec<Reply>),
    Nil,
}

/// A connection that sends texts.
pub(crate) struct Producer(Connection);

impl Producer {
    pub(crate) fn connect(socket: &Path) -> Self {
        Self(Connection::open(socket))
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.command(&["XADD", STREAM, "*", "text", text]);
        self.0.flush();
        self.0.reply();
    }

    pub(crate) fn fill(&mut self, text: &str, count: usize) {
        for start in (0..count).step_by(PIPELINE) {
            let commands = PIPELINE.min(count - start);
            for _ in 0..commands {
                self.0.command(&["XADD", STREAM, "*", "text", text]);
            }
            self.0.flush();
            for _ in 0..commands {
                self.0.reply();
            }
        }
    }
}

/// A connection that reads as the only member of a consumer group.
pub(crate) struct Consumer {
    connection: Connection,
    /// The number of replies to come before that to the read.
    before_read: usize,
}

impl Consumer {
    /// Creates the group and sends the first read.
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut connection = Connection::open(socket);
        connection.command(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]);
        connection.flush();
        connection.reply();
        let mut consumer = Self { connection, before_read: 0 };
        consumer.read_on();
        consumer
    }

    /// Asks for the next messages. The server answers once there are some.
    fn read_on(&mut self) {
        let read = ["XREADGROUP", "GROUP", GROUP, "it", "COUNT", BATCH, "BLOCK", "0"];
        self.connection.command(&[&read[..], &["STREAMS", STREAM, ">"]].concat());
        self.connection.flush();
    }

    /// Waits for messages at most for `limit`, and removes them from the stream.
    pub(crate) fn receive(&mut self, limit: Duration, take: &mut dyn FnMut(&str)) {
        while self.connection.has_input(limit) {
            let reply = self.connection.reply();
            if self.before_read > 0 {
                self.before_read -= 1;
                continue;
            }
            let ids = entries(reply, take);
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            self.connection.command(&[&["XACK", STREAM, GROUP], &ids[..]].concat());
            self.connection.command(&[&["XDEL", STREAM], &ids[..]].concat());
            self.before_read = 2;
            return self.read_on();
        }
    }
}

/// Hands the texts of a reply to XREADGROUP to a function. Returns the ids.
fn entries(reply: Reply, take: &mut dyn FnMut(&str)) -> Vec<String> {
    // [[stream, [[id, [field, text]], ...]]]
    let mut streams = reply.into_list();
    let entries = streams.remove(0).into_list().remove(1).into_list();
    entries
        .into_iter()
        .map(|entry| {
            let mut entry = entry.into_list();
            take(&entry.remove(1).into_list().remove(1).into_text());
            entry.remove(0).into_text()
        })
        .collect()
}

impl Reply {
    fn into_list(self) -> Vec<Self> {
        match self {
            Self::List(list) => list,
            other @ (Self::Text(_) | Self::Nil) => panic!("not a list: {other:?}"),
        }
    }

    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            other @ (Self::List(_) | Self::Nil) => panic!("not a text: {other:?}"),
        }
    }
}

struct Connection {
    input: BufReader<UnixStream>,
    /// Commands that are not sent yet.
    output: Vec<u8>,
}

impl Connection {
    fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        Self { input: BufReader::with_capacity(1 << 16, stream), output: Vec::new() }
    }

    fn command(&mut self, words: &[&str]) {
        write!(self.output, "*{}\r\n", words.len()).unwrap();
        for word in words {
            write!(self.output, "${}\r\n{word}\r\n", word.len()).unwrap();
        }
    }

    fn flush(&mut self) {
        self.input.get_mut().write_all(&self.output).unwrap();
        self.output.clear();
    }

    fn has_input(&self, limit: Duration) -> bool {
        !self.input.buffer().is_empty() || wait(self.input.get_ref().as_fd(), limit)
    }

    fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" | ":" => Reply::Text(rest.into()),
            "$" => rest.parse().map_or(Reply::Nil, |length: usize| self.text(length)),
            "*" => rest.parse().map_or(Reply::Nil, |length: usize| {
                Reply::List((0..length).map(|_| self.reply()).collect())
            }),
            _ => panic!("Redis says {line}"),
        }
    }

    fn text(&mut self, length: usize) -> Reply {
        let mut bytes = vec![0; length + 2];
        self.input.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        Reply::Text(String::from_utf8(bytes).unwrap())
    }
}
