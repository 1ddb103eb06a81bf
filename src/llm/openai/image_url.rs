//! Images in requests: as data URLs, in both APIs.

use crate::wire::chat::Block;

/// Returns the data URL of an image whose content is loaded; `None` for another block.
pub(super) fn image_url(block: &Block) -> Option<String> {
    let Block::Image { image, data: Some(data) } = block else { return None };
    Some(format!("data:{};base64,{data}", image.media_type.word()))
}
