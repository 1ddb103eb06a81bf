//! The result of a call as text. Blocks that are no text are named, not shown.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::Serialize;

/// The text of a call's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallContent {
    pub(crate) text: String,
    /// Whether the tool reports a failure.
    pub(crate) is_error: bool,
}

impl CallContent {
    pub(super) fn of(result: CallToolResult) -> Self {
        let is_error = result.is_error.unwrap_or_default();
        let blocks: Vec<String> = result.content.into_iter().map(text_of).collect();
        let mut text = blocks.join("\n");
        // A server that structures its result repeats it as text, unless it is sparing.
        if text.is_empty()
            && let Some(value) = result.structured_content.filter(|value| !value.is_null())
        {
            text = value.to_string();
        }
        Self { text, is_error }
    }
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(it) => it.text,
        ContentBlock::Image(it) => hidden(&it.mime_type, &it.data),
        ContentBlock::Audio(it) => hidden(&it.mime_type, &it.data),
        ContentBlock::Resource(it) => match it.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.unwrap_or_else(|| "a file".into());
                format!("[{uri}] {}", hidden(&kind, &blob))
            }
            other => as_json(other),
        },
        ContentBlock::ResourceLink(it) => {
            let about = it.description.map(|about| format!(" ({about})")).unwrap_or_default();
            format!("[link: {}{about}]", it.uri)
        }
        other => as_json(other),
    }
}

/// Returns a block of a kind that this version does not know as it was sent.
fn as_json(block: impl Serialize) -> String {
    serde_json::to_string(&block).unwrap_or_default()
}

/// Names a block by its kind and size.
fn hidden(kind: &str, base64: &str) -> String {
    format!("[{kind}, {} kB, not shown]", (base64.len() * 3 / 4).div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_joined_and_all_else_is_named() {
        let image = "A".repeat(16_000);
        let result = json!({ "isError": true, "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": image, "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c", "description": "three" },
        ] });
        let content = CallContent::of(serde_json::from_value(result).unwrap());
        let text = "one\n[image/png, 12 kB, not shown]\n[file:///a]\ntwo\n[file:///b] [a file, 1 kB, not \
                    shown]\n[link: file:///c (three)]";
        assert_eq!(content, CallContent { text: text.into(), is_error: true });
        let structured = json!({ "content": [], "structuredContent": { "n": 1 } });
        let content = CallContent::of(serde_json::from_value(structured).unwrap());
        assert_eq!(content, CallContent { text: "{\"n\":1}".into(), is_error: false });
    }
}
