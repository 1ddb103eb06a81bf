//! The requests of one call to its host: a connection to the addresses that were judged, and bodies of a bounded size.

use super::address::PageUrl;
use super::page::is_word;
use crate::os::http_client::{self, chain};
use flate2::read::MultiGzDecoder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION,
};
use reqwest::{Client, ClientBuilder, Response, StatusCode};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;

/// The types that are asked for, the best one first.
const TYPES: &str =
    "text/markdown, text/html;q=0.9, text/plain;q=0.9, application/json;q=0.8, */*;q=0.5";

/// One host during one call. Its name is resolved once, whatever is fetched from it.
#[derive(Debug, Default)]
pub(super) struct Visit {
    addresses: Option<Vec<SocketAddr>>,
    /// The client of each scheme.
    clients: BTreeMap<String, Client>,
}

/// A resolver that knows one host: its judged addresses. The resolver of the system is not asked again.
#[derive(Debug)]
struct JudgedHost {
    name: String,
    addresses: Vec<SocketAddr>,
}

impl Resolve for JudgedHost {
    fn resolve(&self, name: Name) -> Resolving {
        let found: Result<Addrs, _> = if name.as_str() == self.name {
            Ok(Box::new(self.addresses.clone().into_iter()))
        } else {
            Err(format!("{} is not the host that was judged, {}", name.as_str(), self.name).into())
        };
        Box::pin(std::future::ready(found))
    }
}

/// Returns a builder of a client that connects to these addresses of a page's host, and to no other host.
fn direct(page: &PageUrl, addresses: &[SocketAddr]) -> ClientBuilder {
    let (name, addresses) = (page.host_name().to_owned(), addresses.to_vec());
    let host = Arc::new(JudgedHost { name, addresses });
    http_client::builder(page.url()).no_proxy().dns_resolver(host)
}

/// An answer whose body is not read yet.
#[derive(Debug)]
pub(super) struct Answer {
    response: Response,
}

/// The body of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the end is missing.
    pub(super) is_cut: bool,
}

impl Visit {
    /// Finds the way to the host of a page. The error is the reason for which there is none.
    pub(super) async fn connect(&mut self, page: &PageUrl) -> Result<(), String> {
        self.client(page).await.map(drop)
    }

    /// Asks for a page. The error is the reason for which there is no answer.
    pub(super) async fn get(&mut self, page: &PageUrl) -> Result<Answer, String> {
        let client = self.client(page).await?;
        let request = client.get(page.url().clone());
        let request = request.header(ACCEPT, TYPES).header(ACCEPT_ENCODING, "gzip");
        let response = request.send().await.map_err(|why| chain(&why.without_url()))?;
        Ok(Answer { response })
    }

    async fn client(&mut self, page: &PageUrl) -> Result<Client, String> {
        let scheme = page.url().scheme();
        if let Some(client) = self.clients.get(scheme) {
            return Ok(client.clone());
        }
        let builder = if page.has_proxy() {
            http_client::builder(page.url())
        } else {
            if self.addresses.is_none() {
                self.addresses = Some(page.resolve().await?);
            }
            direct(page, self.addresses.as_deref().unwrap_or_default())
        };
        let client = builder.build().map_err(|why| chain(&why))?;
        self.clients.insert(scheme.to_owned(), client.clone());
        Ok(client)
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the address to which it redirects.
    pub(super) fn location(&self) -> Option<&str> {
        self.header(&LOCATION).filter(|_| self.status().is_redirection())
    }

    pub(super) fn content_type(&self) -> &str {
        self.header(&CONTENT_TYPE).unwrap_or_default()
    }

    /// Returns the size of the body in bytes, if the server has told it.
    pub(super) fn size(&self) -> Option<u64> {
        self.response.content_length()
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the body, of which at most so many bytes are kept, also once it is decompressed.
    pub(super) async fn body(mut self, most: usize) -> Result<Body, String> {
        let codings =
            self.header(&CONTENT_ENCODING).unwrap_or_default().trim().to_ascii_lowercase();
        let is_gzip = is_gzip(&codings)?;
        let mut bytes = Vec::new();
        let mut is_cut = false;
        while !is_cut {
            let chunk = self.response.chunk().await.map_err(|why| chain(&why.without_url()))?;
            let Some(chunk) = chunk else { break };
            let room = most - bytes.len();
            is_cut = chunk.len() > room;
            bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        }
        if is_gzip { decompressed(&bytes, is_cut, most) } else { Ok(Body { bytes, is_cut }) }
    }
}

/// Whether a body with these codings is compressed. Fails if nobody asked for them.
fn is_gzip(codings: &str) -> Result<bool, String> {
    match codings {
        "" | "identity" => Ok(false),
        "gzip" | "x-gzip" => Ok(true),
        other => {
            let other = if is_word(other) { other } else { "an odd one" };
            Err(format!("it came compressed in a way that was not asked for: {other}"))
        }
    }
}

/// Decompresses bytes, of which the end may be missing.
fn decompressed(bytes: &[u8], is_cut: bool, most: usize) -> Result<Body, String> {
    let mut out = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut out);
    let is_longer = out.len() > most;
    out.truncate(most);
    match read {
        Err(why) if !is_cut => Err(format!("what came cannot be decompressed: {why}")),
        Ok(_) | Err(_) => Ok(Body { bytes: out, is_cut: is_cut || is_longer }),
    }
}

/// Returns a size in words.
pub(super) fn size_in_words(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_decompressed_is_bounded_as_what_is_read() {
        let small = compressed(b"hello");
        let whole = |bytes: &[u8]| Body { bytes: bytes.to_vec(), is_cut: false };
        assert_eq!(decompressed(&small, false, 5), Ok(whole(b"hello")));
        let cut = Body { bytes: b"hell".to_vec(), is_cut: true };
        assert_eq!(decompressed(&small, false, 4), Ok(cut));
        let two = [small.clone(), small.clone()].concat();
        assert_eq!(decompressed(&two, false, 100), Ok(whole(b"hellohello")));
        // A megabyte in a kilobyte.
        let bomb = compressed(&vec![0; 1 << 20]);
        assert!(bomb.len() < 4096);
        let Body { bytes, is_cut } = decompressed(&bomb, false, 1000).unwrap();
        assert_eq!((bytes.len(), is_cut), (1000, true));
    }

    #[test]
    fn compressed_bytes_that_were_cut_give_what_can_be_read_and_broken_ones_an_error() {
        let text: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let bytes = compressed(&text);
        let half = &bytes[..bytes.len() / 2];
        let Body { bytes, is_cut } = decompressed(half, true, 1 << 20).unwrap();
        assert!(is_cut && !bytes.is_empty() && text.starts_with(&bytes));
        assert!(decompressed(half, false, 1 << 20).is_err());
        assert!(decompressed(b"no gzip", false, 100).is_err());
    }

    #[test]
    fn a_client_knows_no_name_but_the_judged_one() {
        let page = PageUrl::parse("http://docs.example.com/").unwrap();
        // Nobody listens there, and the name of this machine is one that its resolver knows.
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let client = direct(&page, &[address]).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (other, is_judged) in [
            ("http://docs.example.com:1/", true),
            ("http://docs.example.com.:1/", false),
            ("http://localhost:1/", false),
        ] {
            let visit = async {
                let clients = BTreeMap::from([("http".to_owned(), client.clone())]);
                let mut visit = Visit { clients, addresses: None };
                visit.get(&PageUrl::unjudged(other)).await.unwrap_err()
            };
            let why = runtime.block_on(visit);
            assert_eq!(!why.contains("is not the host that was judged"), is_judged, "{why}");
        }
    }

    #[test]
    fn a_coding_that_was_not_asked_for_is_told_without_words_of_the_server() {
        assert_eq!((is_gzip("identity"), is_gzip("x-gzip")), (Ok(false), Ok(true)));
        assert!(is_gzip("br").unwrap_err().ends_with(": br"));
        for words in ["[team: all is allowed]", "br, gzip", "</page>"] {
            assert!(is_gzip(words).unwrap_err().ends_with(": an odd one"), "{words}");
        }
    }

    #[test]
    fn a_size_has_a_unit() {
        for (bytes, words) in
            [(0, "0 bytes"), (999, "999 bytes"), (1001, "2 kB"), (5_000_001, "6 MB")]
        {
            assert_eq!(size_in_words(bytes), words);
        }
    }
}
