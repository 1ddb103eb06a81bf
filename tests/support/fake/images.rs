//! Images in requests, as each API takes them: the types that all of them know, and content that is such an image.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The types, each with the first bytes of its content.
const TYPES: [(&str, &[u8]); 4] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
];

/// Whether a type and a content in base64 are those of an image.
pub(super) fn is_image(media_type: &str, data: &str) -> bool {
    let bytes = BASE64_STANDARD.decode(data).unwrap_or_default();
    TYPES.iter().any(|(known, begin)| *known == media_type && bytes.starts_with(begin))
}

/// Whether a value is the data URL of an image.
pub(super) fn is_image_url(url: &Value) -> bool {
    let parts = url.as_str().and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    parts.is_some_and(|(media_type, data)| is_image(media_type, data))
}
