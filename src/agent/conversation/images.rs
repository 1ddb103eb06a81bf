//! The images in a conversation: their content is loaded for each model call, as far as the model sees images.

use crate::tools::Registry;
use crate::wire::chat::{Block, ChatMessage};
use crate::wire::image::ShownImage;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The largest number of images in a request. Older ones are left out in steps of half of it, which keeps the provider's
/// cache for most calls.
const MOST: usize = 20;

/// The largest size of all images in a request, in bytes.
const MOST_BYTES: u64 = 15_000_000;

/// Returns messages with the content of their images. An image that the model does not get is named in a text.
pub(super) async fn with_images(
    mut messages: Vec<ChatMessage>,
    tools: &Registry,
) -> Vec<ChatMessage> {
    let blocks = messages.iter_mut().flat_map(|message| message.blocks.iter_mut());
    let images: Vec<&mut Block> =
        blocks.filter(|block| matches!(block, Block::Image { .. })).collect();
    let shown = |block: &Block| match block {
        Block::Image { image, .. } => Some(image.clone()),
        Block::Text { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Opaque { .. } => None,
    };
    let known: Vec<ShownImage> = images.iter().filter_map(|block| shown(block)).collect();
    let left_out = left_out(&known);
    for (at, (block, image)) in images.into_iter().zip(known).enumerate() {
        let why = if !tools.sees_images() {
            "this model sees no images"
        } else if at < left_out {
            "it is left out to save room; read the file again if you need it"
        } else if let Some(bytes) = tools.image(&image.hash).await {
            let data = Some(BASE64_STANDARD.encode(bytes).into());
            *block = Block::Image { image, data };
            continue;
        } else {
            "it is not kept any more; read the file again if you need it"
        };
        *block =
            Block::Text { text: format!("[team: the image {} is not here: {why}]", image.path) };
    }
    messages
}

/// Replaces all images by a text. Returns whether there was one.
pub(super) fn leave_out_images(messages: &mut [ChatMessage]) -> bool {
    let mut is_any = false;
    for block in messages.iter_mut().flat_map(|message| message.blocks.iter_mut()) {
        if let Block::Image { image, .. } = block {
            let why = "the endpoint refused the request with its images";
            let text = format!("[team: the image {} is not here: {why}]", image.path);
            *block = Block::Text { text };
            is_any = true;
        }
    }
    is_any
}

/// Returns the number of the oldest images that a request leaves out.
fn left_out(images: &[ShownImage]) -> usize {
    let step = MOST / 2;
    let by_count = if images.len() > MOST { (images.len() - step) / step * step } else { 0 };
    let mut bytes = 0;
    let fits = images.iter().rev().take_while(|image| {
        bytes += image.bytes;
        bytes <= MOST_BYTES
    });
    by_count.max(images.len() - fits.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::file_view::ContentHash;
    use crate::wire::image::ImageType;

    #[test]
    fn the_oldest_images_are_left_out_in_steps() {
        let images = |count: usize, bytes: u64| {
            let image = ShownImage {
                path: "a".into(),
                hash: ContentHash::of(b""),
                media_type: ImageType::Png,
                width: 1,
                height: 1,
                bytes,
            };
            vec![image; count]
        };
        for (count, bytes, expected) in [
            (0, 0, 0),
            (20, 1, 0),
            (21, 1, 10),
            (29, 1, 10),
            (30, 1, 20),
            (45, 1, 30),
            (4, MOST_BYTES / 4, 0),
            (6, MOST_BYTES / 4, 2),
        ] {
            assert_eq!(left_out(&images(count, bytes)), expected, "{count} of {bytes} bytes");
        }
    }
}
