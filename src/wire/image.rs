//! An image that a tool has shown to a model. Its content is a file beside the transcript.

use super::file_view::ContentHash;
use super::words::words;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The number of pixels that count as one token. The providers count differently; this is the estimate of Anthropic.
const PIXELS_PER_TOKEN: u64 = 750;

/// The most tokens of an image: providers make large ones smaller.
const MOST_TOKENS: u64 = 1_600;

words! {
    /// The type of an image, of those that every provider takes.
    pub enum ImageType {
        /// Portable Network Graphics.
        Png = "image/png",
        /// JPEG.
        Jpeg = "image/jpeg",
        /// Graphics Interchange Format.
        Gif = "image/gif",
        /// WebP.
        Webp = "image/webp",
    }
}

/// An image that a model was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownImage {
    /// The path of the file, as the call gave it.
    pub path: String,
    /// The hash of the content, by which it is found.
    pub hash: ContentHash,
    /// The type of the content.
    pub media_type: ImageType,
    /// In pixels.
    pub width: u64,
    /// In pixels.
    pub height: u64,
    /// The size of the content in bytes.
    pub bytes: u64,
}

impl ShownImage {
    /// Returns an estimate of the tokens that the image costs.
    pub fn tokens(&self) -> u64 {
        (self.width.saturating_mul(self.height) / PIXELS_PER_TOKEN).min(MOST_TOKENS)
    }
}

/// Deserializes a list of images without those of another form.
pub(super) fn those_understood<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ShownImage>, D::Error> {
    let values = Value::deserialize(deserializer)?;
    let values = values.as_array().cloned().unwrap_or_default();
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}
