//! Requests to the proxy: to open a tunnel to a host, or to fetch something from one by plain HTTP.

use crate::wire::host::split_port;
use std::fmt::{Display, Write as _};
use std::io;

/// The maximum size of the head of a request.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

const MAX_HEADERS: usize = 128;

/// Headers between a client and its proxy, which a server does not get. The proxy names the host itself.
const DROPPED: [&str; 8] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "upgrade",
];

/// A request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// Bytes in both directions, from now on.
    Tunnel { host: String, port: u16 },
    /// One request by HTTP, with its head for the server.
    Fetch { host: String, port: u16, head: Vec<u8>, body_bytes: u64 },
}

/// The reason for which a request is not carried out, with its status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: &'static str,
    pub(super) text: String,
}

impl ProxyRequest {
    /// Reads the head of a request, and returns it with its length; `None` if more of it is to come.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(why) => return Err(Refusal::malformed(why)),
        };
        let (method, target) =
            (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        let parsed = if method == "CONNECT" {
            let (host, port) = authority(target, None)?;
            Self::Tunnel { host, port }
        } else {
            fetch(method, target, request.headers)?
        };
        Ok(Some((parsed, length)))
    }

    pub(super) fn target(&self) -> (&str, u16) {
        match self {
            Self::Tunnel { host, port } | Self::Fetch { host, port, .. } => (host, *port),
        }
    }
}

fn fetch(
    method: &str,
    target: &str,
    headers: &[httparse::Header<'_>],
) -> Result<ProxyRequest, Refusal> {
    let Some(rest) = target.strip_prefix("http://") else {
        return Err(Refusal::malformed(
            "a proxy needs CONNECT, or an address that begins with http://",
        ));
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(at);
    let (host, port) = authority(named, Some(80))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head =
        format!("{method} {slash}{path} HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n")
            .into_bytes();
    let mut body_bytes = None;
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if name == "transfer-encoding" {
            let text = "plain HTTP without Content-Length is not passed on; use https".into();
            return Err(Refusal { status: "411 Length Required", text });
        }
        if name == "content-length" {
            let length =
                std::str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok());
            if body_bytes.is_some() || length.is_none() {
                return Err(Refusal::malformed("its Content-Length is not one number"));
            }
            body_bytes = length;
        }
        if !DROPPED.contains(&name.as_str()) {
            head.extend_from_slice(header.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(header.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok(ProxyRequest::Fetch { host, port, head, body_bytes: body_bytes.unwrap_or_default() })
}

/// Reads a host and its port.
fn authority(text: &str, default_port: Option<u16>) -> Result<(String, u16), Refusal> {
    let (host, port) = split_port(text).map_err(Refusal::malformed)?;
    let port = port.or(default_port).ok_or_else(|| Refusal::malformed("it names no port"))?;
    // A name server or a log must get nothing else.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err(Refusal::malformed("it names no host"));
    }
    Ok((host.to_owned(), port))
}

impl Refusal {
    pub(super) fn forbidden(text: String) -> Self {
        Self { status: "403 Forbidden", text }
    }

    pub(super) fn malformed(why: impl Display) -> Self {
        Self { status: "400 Bad Request", text: format!("this is not a request to a proxy: {why}") }
    }

    pub(super) fn unreachable(host: &str, why: &io::Error) -> Self {
        Self { status: "502 Bad Gateway", text: format!("{host} cannot be reached: {why}") }
    }

    pub(super) fn late() -> Self {
        Self { status: "504 Gateway Timeout", text: "no answer in time".into() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
    pub(super) fn broken(why: io::Error) -> Self {
        Self {
            status: "400 Bad Request",
            text: format!("the connection of the client broke: {why}"),
        }
    }

    /// Returns the answer to the client.
    pub(super) fn response(&self) -> String {
        let Self { status, text } = self;
        let mut response =
            format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n");
        let body = format!("team: {text}\n");
        let length = body.len();
        let _infallible =
            write!(response, "Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<(ProxyRequest, usize)>, Refusal> {
        ProxyRequest::parse(text.as_bytes())
    }

    #[test]
    fn a_tunnel_names_a_host_and_a_port() {
        let (tunnel, length) =
            parse("CONNECT packages.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\nrest")
                .unwrap()
                .unwrap();
        assert_eq!(tunnel.target(), ("packages.example.com", 443));
        assert_eq!(length, 54);
        assert_eq!(parse("CONNECT packages.example.com:443 HTTP/1.1\r\n").unwrap(), None);
        for bad in [
            "CONNECT packages.example.com HTTP/1.1\r\n\r\n",
            "CONNECT user@packages.example.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT /run/docker.sock:443 HTTP/1.1\r\n\r\n",
            "CONNECT unix%3a/x:1 HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "GET /path HTTP/1.1\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\x02\x00",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fetch_reaches_the_server_with_the_host_of_its_address_alone() {
        let text = "POST http://a.example/x?y=1 HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: secret\r\n\
                    Connection: keep-alive\r\nContent-Length: 3\r\nAccept: */*\r\n\r\nabc";
        let (ProxyRequest::Fetch { host, port, head, body_bytes }, _) =
            parse(text).unwrap().unwrap()
        else {
            panic!("no fetch")
        };
        assert_eq!((host.as_str(), port, body_bytes), ("a.example", 80, 3));
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "POST /x?y=1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 3\r\nAccept: */*\r\n\r\n"
        );
        for bad in [
            "Transfer-Encoding: chunked",
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: x",
        ] {
            assert!(
                parse(&format!("POST http://a.example/ HTTP/1.1\r\n{bad}\r\n\r\n")).is_err(),
                "{bad}"
            );
        }
    }

    proptest! {
        /// No bytes make it panic, and no host with odd characters comes out.
        #[test]
        fn any_bytes_are_a_request_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let line = [b"CONNECT ".as_slice(), &bytes, b" HTTP/1.1\r\n\r\n"].concat();
            for bytes in [bytes, line] {
                if let Ok(Some((request, length))) = ProxyRequest::parse(&bytes) {
                    prop_assert!(length <= bytes.len());
                    prop_assert!(request.target().0.bytes().all(|byte| byte.is_ascii_graphic()));
                }
            }
        }
    }
}
