//! The change of a text file by a tool call, as people see it.

/// The maximum size of both contents of a change that is shown, in bytes.
const SHOWN_CHANGE_BYTES: usize = 512 * 1024;

/// The change of a text file by a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextChange {
    /// The path as the call gave it.
    pub(crate) path: String,
    /// The content before; `None` if there was no file.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
}

impl TextChange {
    /// Returns the change between two contents of a file; `None` if they are no text, are equal, or are too long to be
    /// shown.
    pub(crate) fn of(path: &str, before: Option<&[u8]>, after: &[u8]) -> Option<Self> {
        let size = before.map_or(0, <[u8]>::len) + after.len();
        if size > SHOWN_CHANGE_BYTES || before == Some(after) {
            return None;
        }
        let text = |bytes: &[u8]| {
            let text = str::from_utf8(bytes).ok()?;
            (!text.contains('\0')).then(|| text.to_owned())
        };
        let before = match before {
            Some(bytes) => Some(text(bytes)?),
            None => None,
        };
        Some(Self { path: path.to_owned(), before, after: text(after)? })
    }
}
