//! Images of the workspace, as models see them.

use crate::tools::call::ToolError;
use crate::wire::image::ImageType;
use imagesize::{ImageType as Format, blob_size, image_type};

/// The largest image that every provider takes, in bytes: 5 MB of base64.
const MAX_BYTES: usize = 3_750_000;

/// The largest width and height that every provider takes, in pixels.
const MAX_PIXELS: usize = 8_000;

/// The type and the size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageForm {
    pub(super) media_type: ImageType,
    pub(super) width: u64,
    pub(super) height: u64,
}

impl ImageForm {
    /// Returns the form of an image; `None` for another content.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let format = image_type(bytes).ok()?;
        let known = [
            (Format::Png, ImageType::Png),
            (Format::Jpeg, ImageType::Jpeg),
            (Format::Gif, ImageType::Gif),
            (Format::Webp, ImageType::Webp),
        ];
        let (_, media_type) = known.into_iter().find(|(known, _)| *known == format)?;
        if !is_whole(media_type, bytes) {
            return None;
        }
        let size = blob_size(bytes).ok()?;
        let pixels = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        Some(Self { media_type, width: pixels(size.width), height: pixels(size.height) })
    }

    pub(super) fn in_words(&self) -> String {
        let Self { media_type, width, height } = self;
        format!("{}, {width} x {height} pixels", media_type.word())
    }

    /// Fails if a provider would refuse the image, and with it the whole conversation.
    pub(super) fn check(&self, path: &str, bytes: &[u8]) -> Result<(), ToolError> {
        let most = u64::try_from(MAX_PIXELS).unwrap_or(u64::MAX);
        let why = if bytes.len() > MAX_BYTES {
            format!("{} bytes, models take up to {MAX_BYTES}", bytes.len())
        } else if self.width.max(self.height) > most {
            format!("{}, models take up to {MAX_PIXELS} in each direction", self.in_words())
        } else if self.width.min(self.height) == 0 {
            "a width or height of 0".into()
        } else {
            return Ok(());
        };
        Err(ToolError::Reply(format!(
            "the image {path} has {why}; make a smaller copy with bash and read that"
        )))
    }
}

/// Whether an image has its end: a provider refuses one that was cut off, and with it the whole conversation.
fn is_whole(media_type: ImageType, bytes: &[u8]) -> bool {
    const TAIL_BYTES: usize = 1024;
    let tail = bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
    let has = |part: &[u8]| tail.windows(part.len()).any(|it| it == part);
    match media_type {
        ImageType::Png => has(b"IEND") && bytes.windows(4).any(|it| it == b"IDAT"),
        ImageType::Jpeg => has(b"\xff\xd9"),
        ImageType::Gif => bytes.last() == Some(&0x3b) && bytes.contains(&0),
        ImageType::Webp => {
            let size = bytes.get(4..8).and_then(|it| it.try_into().ok()).map(u32::from_le_bytes);
            size.is_some_and(|size| u64::from(size) + 8 <= bytes.len() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the beginning of a PNG file of this size.
    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend([width, height].map(u32::to_be_bytes).concat());
        bytes.extend(b"\x08\x06\0\0\0\0\0\0\0\0\0\0\0IDAT\0\0\0\0\0\0\0\0IEND\xaeB`\x82");
        bytes
    }

    #[test]
    fn an_image_is_known_by_its_content_and_one_that_a_provider_refuses_is_refused() {
        let form = ImageForm::of(&png(640, 480)).unwrap();
        assert_eq!(form.in_words(), "image/png, 640 x 480 pixels");
        assert_eq!(
            ImageForm::of(b"GIF89a\x02\0\x03\0\0\0\0\x3b").unwrap().in_words(),
            "image/gif, 2 x 3 pixels"
        );
        assert_eq!(ImageForm::of(b"\x89PNG\r\n\x1a\n"), None, "it has no size");
        assert_eq!(ImageForm::of(b"text"), None);
        assert_eq!(ImageForm::of(&png(640, 480)[..45]), None, "it is cut off");
        assert_eq!(ImageForm::of(b"GIF89a is the begin of a text"), None);
        form.check("a.png", &[]).unwrap();
        let large = vec![0; MAX_BYTES + 1];
        for (size, bytes, says) in [
            ((640, 480), &large[..], "3750001 bytes, models take up to 3750000"),
            ((8_001, 5), &[], "8001 x 5 pixels, models take up to 8000"),
            ((0, 5), &[], "a width or height of 0"),
        ] {
            let form = ImageForm::of(&png(size.0, size.1)).unwrap();
            let why = form.check("a.png", bytes).unwrap_err().to_string();
            assert!(why.contains(says) && why.contains("a smaller copy"), "{why}");
        }
    }
}
