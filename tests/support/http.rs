//! A small HTTP/1.1 client that sends exactly what a test specifies, for the page and for `WebDriver`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// All headers in order, with names in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        lines.filter_map(|line| line.split_once(": ")).find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// Sends a request with these headers. `target` is sent unchanged.
pub(crate) fn ask(
    port: u16,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    send(&stream, method, target, headers, body);
    let mut reader = BufReader::new(stream);
    let (status, head) = read_head(&mut reader);
    let mut answer = Answer { status, head, body: String::new() };
    let length = answer.header("content-length").map(|length| length.parse::<u64>().unwrap());
    let mut bytes = Vec::new();
    match length {
        Some(length) => reader.take(length).read_to_end(&mut bytes).unwrap(),
        None => reader.read_to_end(&mut bytes).unwrap(),
    };
    answer.body = String::from_utf8(bytes).unwrap();
    answer
}

fn send(mut stream: &TcpStream, method: &str, target: &str, headers: &[(&str, &str)], body: &str) {
    let mut text = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        text = text + name + ": " + value + "\r\n";
    }
    text = format!("{text}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).unwrap();
}

fn read_head(reader: &mut impl BufRead) -> (u16, String) {
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let status = first.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default();
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            return (status, head);
        }
        let (name, value) = line.trim_end().split_once(':').unwrap();
        head = head + &name.to_lowercase() + ": " + value.trim() + "\n";
    }
}

/// The data of a stream of server-sent events. The drop closes the connection.
pub(crate) struct Events {
    stream: TcpStream,
    pub(crate) data: mpsc::Receiver<String>,
}

impl Events {
    pub(crate) fn follow(port: u16, target: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        send(&stream, "GET", target, &[("host", &format!("127.0.0.1:{port}"))], "");
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (status, head) = read_head(&mut reader);
        assert!(status == 200 && head.contains("text/event-stream"), "{status} {head}");
        let (tell, data) = mpsc::channel();
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                if let Some(data) = line.strip_prefix("data: ")
                    && tell.send(data.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { stream, data }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        drop(self.stream.shutdown(std::net::Shutdown::Both));
    }
}
