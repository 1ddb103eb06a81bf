//! A client of NATS for the tests of the rig: one connection, one request at a time.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection.
#[derive(Debug)]
pub(crate) struct NatsWire {
    stream: BufReader<TcpStream>,
    patience: Duration,
}

impl NatsWire {
    /// Begins a session on a new connection. No answer is waited for longer than `patience`.
    pub(crate) fn open(stream: TcpStream, patience: Duration) -> Result<Self> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let mut wire = Self { stream: BufReader::new(stream), patience };
        wire.expect_line("INFO ")?;
        wire.send(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB reply 1\r\nPING\r\n")?;
        wire.expect_line("PONG")?;
        Ok(wire)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    /// Reads lines until one begins so, and answers pings meanwhile: they are no sign that the line will come.
    fn expect_line(&mut self, start: &str) -> Result<String> {
        let begun = Instant::now();
        loop {
            if begun.elapsed() > self.patience {
                return Err(ErrorKind::TimedOut.into());
            }
            let line = self.read_line()?;
            if line.starts_with(start) {
                return Ok(line);
            }
            if line.starts_with("PING") {
                self.send(b"PONG\r\n")?;
            } else if line.starts_with("-ERR") {
                return Err(Error::other(line));
            }
        }
    }

    /// Publishes on a subject, and returns the first answer.
    pub(crate) fn request(&mut self, subject: &str, body: &[u8]) -> Result<Value> {
        let head = format!("PUB {subject} reply {}\r\n", body.len());
        self.send(&[head.as_bytes(), body, b"\r\n"].concat())?;
        let line = self.expect_line("MSG ")?;
        let length = line.split_whitespace().last().and_then(|it| it.parse().ok());
        let mut answer = vec![0; length.ok_or_else(|| Error::other(line.clone()))?];
        self.stream.read_exact(&mut answer)?;
        serde_json::from_slice(&answer).map_err(Error::other)
    }

    /// Creates a stream of this name, for the subject of this name and all below it.
    pub(crate) fn create_stream(&mut self, name: &str) -> Result<Value> {
        let config = json!({ "name": name, "subjects": [name, format!("{name}.>")] });
        self.request(&format!("$JS.API.STREAM.CREATE.{name}"), config.to_string().as_bytes())
    }

    /// Returns the number of messages in a stream, or none if the stream does not exist.
    pub(crate) fn stream_length(&mut self, name: &str) -> Result<Option<u64>> {
        let info = self.request(&format!("$JS.API.STREAM.INFO.{name}"), b"")?;
        Ok(info["state"]["messages"].as_u64())
    }
}
