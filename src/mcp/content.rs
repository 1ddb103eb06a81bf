//! The result of a call as text. Blocks that are no text are named, not shown.

use super::error::ConnectionError;
use super::protocol::COMPLETE;
use serde::Deserialize;
use serde_json::Value;

/// The text of a call's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallContent {
    pub(crate) text: String,
    /// Whether the tool reports a failure.
    pub(crate) is_error: bool,
}

/// A block of a result. A block of another kind is shown as it was sent.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Block {
    Text { text: String },
    Image { data: String, mime_type: String },
    Audio { data: String, mime_type: String },
    Resource { resource: Resource },
    ResourceLink { uri: String, description: Option<String> },
}

#[derive(Debug, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Resource {
    Text { uri: String, text: String },
    Blob { uri: String, blob: String, mime_type: Option<String> },
}

impl CallContent {
    /// Reads the result of `tools/call`.
    ///
    /// # Errors
    /// It is none, or asks for something before the call is done.
    pub(super) fn of(result: &Value) -> Result<Self, ConnectionError> {
        let not_understood = |why: &str| Err(ConnectionError::NotUnderstood(why.into()));
        if result.get("resultType").is_some_and(|kind| kind != COMPLETE) {
            return not_understood("it asks for something that this program does not offer");
        }
        let content = result.get("content").and_then(Value::as_array);
        let structured = result.get("structuredContent").filter(|value| !value.is_null());
        let blocks = content.map(|blocks| blocks.iter().map(text_of).collect::<Vec<_>>());
        let is_error = result.get("isError") == Some(&Value::Bool(true));
        let text = match (blocks.map(|blocks| blocks.join("\n")), structured) {
            // A server that structures its result repeats it as text, unless it is sparing.
            (Some(text), None) => text,
            (Some(text), Some(_)) if !text.is_empty() => text,
            (_, Some(value)) => value.to_string(),
            (None, None) => return not_understood("it is no result of a call"),
        };
        Ok(Self { text, is_error })
    }
}

fn text_of(block: &Value) -> String {
    match Block::deserialize(block) {
        Ok(Block::Text { text }) => text,
        Ok(Block::Image { data, mime_type } | Block::Audio { data, mime_type }) => {
            hidden(&mime_type, &data)
        }
        Ok(Block::Resource { resource: Resource::Text { uri, text } }) => {
            format!("[{uri}]\n{text}")
        }
        Ok(Block::Resource { resource: Resource::Blob { uri, blob, mime_type } }) => {
            format!("[{uri}] {}", hidden(mime_type.as_deref().unwrap_or("a file"), &blob))
        }
        Ok(Block::ResourceLink { uri, description }) => {
            let about = description.map(|about| format!(" ({about})")).unwrap_or_default();
            format!("[link: {uri}{about}]")
        }
        Err(_) => block.to_string(),
    }
}

/// Names a block by its kind and size.
fn hidden(kind: &str, base64: &str) -> String {
    format!("[{kind}, {} kB, not shown]", (base64.len() * 3 / 4).div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(result: &Value) -> Option<(String, bool)> {
        let content = CallContent::of(result).ok()?;
        Some((content.text, content.is_error))
    }

    #[test]
    fn text_is_joined_and_all_else_is_named() {
        let image = "A".repeat(16_000);
        let result = json!({ "isError": true, "content": [
            { "type": "text", "text": "one", "annotations": { "later": 1 } },
            { "type": "image", "data": image, "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c", "description": "three" },
        ] });
        let text = "one\n[image/png, 12 kB, not shown]\n[file:///a]\ntwo\n[file:///b] [a file, 1 kB, not \
                    shown]\n[link: file:///c (three)]";
        assert_eq!(of(&result), Some((text.into(), true)));
        let structured = json!({ "content": [], "structuredContent": { "n": 1 } });
        assert_eq!(of(&structured), Some(("{\"n\":1}".into(), false)));
    }

    #[test]
    fn a_block_that_is_not_known_leaves_the_others_readable() {
        let unknown = json!({ "type": "hologram", "data": "x" });
        let broken = json!({ "type": "image", "data": 1 });
        let result = json!({ "content": [{ "type": "text", "text": "one" }, unknown, broken, 7] });
        let text = format!("one\n{unknown}\n{broken}\n7");
        assert_eq!(of(&result), Some((text, false)));
    }

    #[test]
    fn a_result_that_is_none_is_not_understood() {
        for none in [
            Value::Null,
            json!({}),
            json!({ "content": "text" }),
            json!({ "resultType": "input_required", "content": [] }),
        ] {
            assert_eq!(of(&none), None, "{none}");
        }
        assert_eq!(
            of(&json!({ "resultType": "complete", "content": [] })),
            Some((String::new(), false))
        );
    }
}
