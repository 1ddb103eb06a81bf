//! Mail between hosts: the frames in which a relay carries lines of inboxes, their acknowledgements, and the field that an
//! arrived line has (docs/machines.md).
//!
//! A *link* is (host of the sender, epoch of its relay, recipient). The lines of a link have dense numbers from 1.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the protocol between relays.
pub const RELAY_PROTOCOL: u32 = 1;

/// The rule for names of hosts, for people.
pub const HOST_NAME_RULE: &str = "the name of a host is 1 to 32 characters: a lower-case letter first, then lower-case letters, digits or '-'";

/// The most lines of a frame.
pub const FRAME_LINES: usize = 500;

/// The size from which a frame gets no further line, in bytes. A longer line is a frame of its own.
pub const FRAME_BYTES: usize = 700_000;

/// The name of a host. It always matches `^[a-z][a-z0-9-]{0,31}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// A text that is no name of a host. The field is the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name of a host: {HOST_NAME_RULE}")]
pub struct NotAHostName(pub String);

impl HostName {
    /// Parses a name.
    ///
    /// # Errors
    /// The text breaks [`HOST_NAME_RULE`].
    pub fn parse(text: &str) -> Result<Self, NotAHostName> {
        let is_good = text.len() <= 32
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if is_good {
            Ok(Self(text.into()))
        } else {
            Err(NotAHostName(text.chars().take(64).collect()))
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostName {
    type Error = NotAHostName;

    fn try_from(text: String) -> Result<Self, NotAHostName> {
        Self::parse(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

/// The epoch of a relay: 16 hexadecimal digits, made once with its state. A relay whose state was lost has another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Epoch(String);

/// The version of a value that a host tells the others: of two of one epoch, the later one is greater. A carrier that was put
/// back to an earlier state tells earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueVersion {
    /// The epoch of the host's relay.
    pub epoch: Epoch,
    /// The number of starts of the relay.
    pub start: u64,
    /// The number of values since then.
    pub number: u64,
}

impl ValueVersion {
    /// Whether this value is earlier than another one of the same host.
    pub fn is_before(&self, other: &Self) -> bool {
        self.epoch == other.epoch && (self.start, self.number) < (other.start, other.number)
    }
}

/// A text that is no epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an epoch has 16 hexadecimal digits")]
pub struct NotAnEpoch;

impl Epoch {
    /// Makes the epoch of a random number.
    pub fn of(number: u64) -> Self {
        Self(format!("{number:016x}"))
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Epoch {
    type Error = NotAnEpoch;

    fn try_from(text: String) -> Result<Self, NotAnEpoch> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 16 && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(NotAnEpoch)
        }
    }
}

impl From<Epoch> for String {
    fn from(epoch: Epoch) -> Self {
        epoch.0
    }
}

/// The first line of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHead {
    /// The [`RELAY_PROTOCOL`] of the sender.
    pub v: u32,
    /// The host that sends the frame.
    pub src: HostName,
    /// The epoch of its relay.
    pub epoch: Epoch,
}

/// A line of an inbox on its way to the host of its recipient.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FrameLine {
    /// The recipient.
    pub to: String,
    /// The number of the line in its link.
    pub seq: u64,
    /// The highest number that a home of the recipient has acknowledged: no line up to it comes again.
    pub base: u64,
    /// The number of times that the sender had been placed on a host when its host took in the line; 0 if the sender is no
    /// placed agent.
    #[serde(default)]
    pub term: u64,
    /// Whether the sender's host has verified the sender.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub verified: bool,
    /// The line as it stood in the inbox. Without the seal, if the seal was verified: it was for a key of that host.
    pub line: Box<RawValue>,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(yes: &bool) -> bool {
    *yes
}

/// A frame: the unit of transport.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The first line.
    pub head: FrameHead,
    /// The lines of mail, in the order of their links.
    pub lines: Vec<FrameLine>,
}

/// A body that is no frame.
#[derive(Debug, thiserror::Error)]
pub enum NotAFrame {
    /// A line does not parse.
    #[error("line {0} is not of a frame: {1}")]
    Line(usize, serde_json::Error),
    /// The frame is of another version of the protocol.
    #[error("version {0} of the protocol between hosts, and this program knows {RELAY_PROTOCOL}")]
    Version(u32),
}

impl Frame {
    /// Parses the body of a message of the carrier.
    ///
    /// # Errors
    /// The body is no frame of this version.
    pub fn parse(body: &[u8]) -> Result<Self, NotAFrame> {
        let mut lines =
            body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate();
        let (_, head) = lines.next().unwrap_or_default();
        let head: FrameHead =
            serde_json::from_slice(head).map_err(|why| NotAFrame::Line(1, why))?;
        if head.v != RELAY_PROTOCOL {
            return Err(NotAFrame::Version(head.v));
        }
        let line = |(at, line): (usize, &[u8])| {
            serde_json::from_slice(line).map_err(|why| NotAFrame::Line(at + 1, why))
        };
        Ok(Self { head, lines: lines.map(line).collect::<Result<_, _>>()? })
    }

    /// Serializes the frame.
    ///
    /// # Errors
    /// A line cannot be serialized.
    pub fn body(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut body = serde_json::to_vec(&self.head)?;
        body.push(b'\n');
        for line in &self.lines {
            serde_json::to_writer(&mut body, line)?;
            body.push(b'\n');
        }
        Ok(body)
    }
}

/// The part of one link that a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProgress {
    /// The recipient.
    pub to: String,
    /// The number of the line that is expected next: all before it stand in the inbox, synced, or were refused.
    pub next: u64,
    /// The refused lines that the source may not know of, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<u64, String>,
    /// Whether lines from `next` on are to be sent again: later ones have come before them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// An acknowledgement, or the answer to the question for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// The [`RELAY_PROTOCOL`] of the sender.
    pub v: u32,
    /// The epoch of the relay whose lines are acknowledged.
    pub epoch: Epoch,
    /// The links, of which one or more have moved.
    pub links: Vec<LinkProgress>,
    /// The number of messages that the carrier still has for the acknowledging host; only in an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
}

/// The question of a relay for the progress of its links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressQuestion {
    /// The [`RELAY_PROTOCOL`] of the sender.
    pub v: u32,
    /// The epoch of the relay that asks.
    pub epoch: Epoch,
}

/// The field `via` of a line that came from another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// The host of the sender.
    pub host: HostName,
    /// The epoch of its relay.
    pub epoch: Epoch,
    /// The number of the line in its link.
    pub seq: u64,
    /// The [`FrameLine::term`] of the line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub term: u64,
    /// The value that the field had at the sender's host.
    #[serde(default, rename = "via", skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
}

impl Via {
    /// Returns the field of an arrived message; `None` if the message was written on this host.
    pub fn of(message: &Map<String, Value>) -> Option<Self> {
        let via = message.get(super::message::VIA)?;
        via.is_object().then(|| serde_json::from_value(via.clone()).ok())?
    }

    /// Returns the host on which the message was written. One that moved with its recipient has come over several.
    pub fn origin(self) -> HostName {
        let before = self.before.and_then(|before| serde_json::from_value::<Self>(before).ok());
        before.map_or(self.host, Self::origin)
    }

    /// Writes the field in front of the other fields of a line, which is one JSON object.
    ///
    /// # Errors
    /// The line is not an object, or cannot be serialized.
    pub fn mark(mut self, line: &str) -> Result<String, serde_json::Error> {
        let line = line.trim();
        let mut object: Map<String, Value> = serde_json::from_str(line)?;
        self.before = object.shift_remove(super::message::VIA);
        let via = serde_json::to_string(&self)?;
        // The sender's own text wherever possible.
        let rest = match (&self.before, line.strip_prefix('{')) {
            (None, Some(rest)) if !object.is_empty() => rest.to_owned(),
            (None | Some(_), None | Some(_)) => {
                let rest = serde_json::to_string(&object)?;
                rest.trim_start_matches('{').to_owned()
            }
        };
        let comma = if object.is_empty() { "" } else { "," };
        Ok(format!(r#"{{"via":{via}{comma}{rest}"#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn via(seq: u64) -> Via {
        let host = HostName::parse("a").unwrap();
        Via { host, epoch: Epoch::of(255), seq, term: 0, before: None }
    }

    #[test]
    fn names_of_hosts_and_epochs() {
        for good in ["a", "gpu1", "dev-box", &"x".repeat(32)] {
            assert_eq!(HostName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "1a", "-a", "A", "a.b", "a b", "a/b", "a*", "ä", &"x".repeat(33)] {
            HostName::parse(bad).unwrap_err();
        }
        assert_eq!(Epoch::of(255).as_str(), "00000000000000ff");
        for bad in ["", "00000000000000fF", "0000000000000fff0", "g000000000000000"] {
            Epoch::try_from(bad.to_owned()).unwrap_err();
        }
    }

    #[test]
    fn a_frame_is_read_back_with_its_lines_as_they_stood() {
        let line = r#"{"id":"x", "from" : "bob","content":"1.0","n":1.50}"#;
        let head = FrameHead {
            v: RELAY_PROTOCOL,
            src: HostName::parse("a").unwrap(),
            epoch: Epoch::of(1),
        };
        let raw = RawValue::from_string(line.into()).unwrap();
        let one =
            FrameLine { to: "carol".into(), seq: 12, base: 9, term: 1, verified: false, line: raw };
        let body = Frame {
            head: head.clone(),
            lines: vec![one.clone(), FrameLine { verified: true, ..one }],
        };
        let body = body.body().unwrap();
        let read = Frame::parse(&body).unwrap();
        assert_eq!(read.head, head);
        let of = |line: &FrameLine| {
            (line.to.clone(), line.seq, line.base, line.verified, line.line.get().to_owned())
        };
        let expected = |verified| ("carol".to_owned(), 12, 9, verified, line.to_owned());
        assert_eq!(
            read.lines.iter().map(of).collect::<Vec<_>>(),
            [expected(false), expected(true)]
        );
        let text = String::from_utf8(body).unwrap();
        assert!(matches!(
            Frame::parse(text.replace("\"v\":1", "\"v\":2").as_bytes()),
            Err(NotAFrame::Version(2))
        ));
        for bad in ["", "x", "{}", &text.replace("\"seq\":12", "\"seq\":-1")] {
            assert!(matches!(Frame::parse(bad.as_bytes()), Err(NotAFrame::Line(..))), "{bad}");
        }
    }

    #[test]
    fn an_arrived_line_says_by_which_host_it_came_and_keeps_all_else() {
        let marked = via(3).mark(r#"{"from":"bob" ,"content":"x"}"#).unwrap();
        assert_eq!(
            marked,
            r#"{"via":{"host":"a","epoch":"00000000000000ff","seq":3},"from":"bob" ,"content":"x"}"#
        );
        let object: Map<String, Value> = serde_json::from_str(&marked).unwrap();
        assert_eq!(Via::of(&object), Some(via(3)));
        let marked = via(4).mark(r#"{"from":"bob","via":"command","content":"x"}"#).unwrap();
        let object: Map<String, Value> = serde_json::from_str(&marked).unwrap();
        assert_eq!(object["via"]["via"], "command");
        assert_eq!((&object["from"], &object["content"]), (&json!("bob"), &json!("x")));
        assert_eq!(Via::of(&object).unwrap().seq, 4);
        assert_eq!(
            via(5).mark("{}").unwrap(),
            r#"{"via":{"host":"a","epoch":"00000000000000ff","seq":5}}"#
        );
        via(6).mark("[]").unwrap_err();
        assert_eq!(via(1).origin(), via(1).host);
        let second = Via { host: HostName::parse("b").unwrap(), term: 2, ..via(1) };
        let marked = second.mark(r#"{"via":{"host":"a","epoch":"00000000000000ff","seq":3}}"#);
        let object: Map<String, Value> = serde_json::from_str(&marked.unwrap()).unwrap();
        let read = Via::of(&object).unwrap();
        assert_eq!((read.term, read.host.as_str()), (2, "b"));
        assert_eq!(read.origin().as_str(), "a");
        let by_hand = json!({"via": "command", "content": "x"});
        assert_eq!(Via::of(by_hand.as_object().unwrap()), None);
    }
}
