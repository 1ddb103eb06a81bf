//! Files that come with a message: the field `attachments` of its line (docs/format.md).
//!
//! The sender's program copies a file into the team folder, so that it stays as it was. A relay brings the copy to the
//! recipient's host before the line, and puts the path on that host into it.

use super::file_view::ContentHash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The field of a message with its attachments.
pub const ATTACHMENTS: &str = "attachments";

/// The most attachments of a message.
pub const MOST_ATTACHMENTS: usize = 16;

/// The most bytes of an attachment.
pub const MAX_ATTACHMENT_BYTES: u64 = 64 * 1024 * 1024;

/// The most bytes of the name of an attachment.
const MAX_NAME_BYTES: usize = 200;

/// A file that comes with a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// The absolute path of the copy, on the host of the one who reads the line.
    pub path: String,
    /// The size, in bytes.
    pub bytes: u64,
    /// The hash of the content.
    pub hash: ContentHash,
    /// Whether it did not come with the line: its host had it no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

impl Attachment {
    /// Returns the attachments of a message. A field of this name that says anything else is somebody's own: then there are
    /// none.
    pub fn all_of(message: &Map<String, Value>) -> Vec<Self> {
        let given = message.get(ATTACHMENTS).and_then(Value::as_array);
        let given = given.filter(|given| given.len() <= MOST_ATTACHMENTS);
        let read = |value: &Value| {
            let attachment = Self::deserialize(value).ok()?;
            attachment.is_sound().then_some(attachment)
        };
        given.and_then(|given| given.iter().map(read).collect()).unwrap_or_default()
    }

    /// Returns the name of the file: the last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it names a copy in a team folder and nothing else.
    pub fn is_sound(&self) -> bool {
        is_attachment_name(self.name())
            && self.bytes <= MAX_ATTACHMENT_BYTES
            && self.hash.is_sound()
    }
}

/// Whether a file of this name can be attached: the name is a part of a path on every host.
pub fn is_attachment_name(name: &str) -> bool {
    !["", ".", ".."].contains(&name)
        && name.len() <= MAX_NAME_BYTES
        && !name.chars().any(|c| c == '/' || c.is_control())
}

/// Replaces the attachments of a message.
pub fn set_attachments(message: &mut Map<String, Value>, attachments: &[Attachment]) {
    let list = attachments.iter().filter_map(|it| serde_json::to_value(it).ok());
    message.insert(ATTACHMENTS.into(), Value::Array(list.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attachments_are_read_back_and_other_uses_of_the_field_are_none() {
        let hash = ContentHash::of(b"x");
        let whole = json!({ "path": "/a/plot.png", "bytes": 3, "hash": hash });
        let with = |value: Value| {
            let mut message = Map::new();
            message.insert(ATTACHMENTS.into(), value);
            Attachment::all_of(&message)
        };
        let read = with(json!([whole]));
        assert_eq!(read.iter().map(Attachment::name).collect::<Vec<_>>(), ["plot.png"]);
        let mut message = Map::new();
        set_attachments(&mut message, &read);
        assert_eq!(message[ATTACHMENTS], json!([whole]));
        let change = |key: &str, value: Value| {
            let mut other = whole.clone();
            other[key] = value;
            json!([whole, other])
        };
        for bad in [
            json!("a.txt"),
            json!({}),
            json!([1]),
            json!([{ "path": "/a/b" }]),
            change("path", json!("/a/..")),
            change("path", json!("/a/")),
            change("path", json!("a\nb")),
            change("path", json!("x".repeat(201))),
            change("bytes", json!(MAX_ATTACHMENT_BYTES + 1)),
            change("bytes", json!(-1)),
            change("hash", json!("../../etc")),
            change("hash", json!("")),
            Value::Array(vec![whole.clone(); MOST_ATTACHMENTS + 1]),
        ] {
            assert_eq!(with(bad.clone()), [], "{bad}");
        }
        assert_eq!(with(json!([])), []);
    }
}
