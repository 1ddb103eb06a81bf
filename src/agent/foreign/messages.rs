//! The messages of a foreign agent in one turn: the one that is being received, and the last whole one, which is the
//! report of the turn.

/// The longest text of one message, in bytes.
const TEXT_BYTES: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Messages {
    id: Option<String>,
    text: String,
    /// Whether the agent names its messages. A text without a name is then a warning of its program.
    are_named: bool,
    /// The agent's last whole message, or the reason for the end of the turn.
    pub(super) report: String,
}

impl Messages {
    /// Whether a piece of text begins another message.
    pub(super) fn is_next(&self, id: Option<&str>) -> bool {
        id != self.id.as_deref()
    }

    /// Adds a piece of text to the message that is being received.
    pub(super) fn add(&mut self, id: Option<String>, text: &str) {
        self.are_named |= id.is_some();
        self.id = id;
        let room = TEXT_BYTES.saturating_sub(self.text.len());
        self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
    }

    /// Ends the message that is being received, and returns its text.
    pub(super) fn finish(&mut self) -> String {
        let (id, text) = (self.id.take(), std::mem::take(&mut self.text));
        if !text.trim().is_empty() && (id.is_some() || !self.are_named) {
            self.report.clone_from(&text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_the_last_message_and_no_warning() {
        let mut messages = Messages::default();
        let mut say = |id: Option<&str>, text: &str| {
            if messages.is_next(id) {
                messages.finish();
            }
            messages.add(id.map(ToOwned::to_owned), text);
        };
        for (id, text) in [
            (Some("a"), "fir"),
            (Some("a"), "st"),
            (None, "warning"),
            (Some("b"), "last"),
            (None, "x"),
        ] {
            say(id, text);
        }
        assert_eq!((messages.finish().as_str(), messages.report.as_str()), ("x", "last"));
        let mut unnamed = Messages::default();
        unnamed.add(None, &"long ".repeat(100_000));
        assert_eq!(unnamed.finish().len(), TEXT_BYTES);
        unnamed.add(None, " ");
        unnamed.finish();
        assert_eq!(unnamed.report.len(), TEXT_BYTES);
    }
}
