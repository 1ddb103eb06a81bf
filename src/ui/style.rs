//! Colours and marks: one palette for all output.
//!
//! The caller decides whether there is a terminal, and reads the environment.

use crate::wire::roster::Status;
use anstyle::{AnsiColor, Style};

/// The value of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Styles text; the plain palette leaves it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    colored: bool,
}

/// The colours of members, in the order of assignment. Red is reserved for failures.
const MEMBER_COLORS: [(&str, AnsiColor); 10] = [
    ("blue", AnsiColor::Blue),
    ("green", AnsiColor::Green),
    ("yellow", AnsiColor::Yellow),
    ("magenta", AnsiColor::Magenta),
    ("cyan", AnsiColor::Cyan),
    ("bright_blue", AnsiColor::BrightBlue),
    ("bright_green", AnsiColor::BrightGreen),
    ("bright_yellow", AnsiColor::BrightYellow),
    ("bright_magenta", AnsiColor::BrightMagenta),
    ("bright_cyan", AnsiColor::BrightCyan),
];

/// The mark and the word of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The mark, one column wide.
    pub(crate) glyph: char,
    /// The word after the mark.
    pub(crate) word: &'static str,
    pub(super) style: Style,
}

/// Whether a life lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// A process holds it.
    Alive,
    /// It is free, whatever the roster says.
    Dead,
}

impl Mark {
    /// The mark of a status; a member without a process that has not ended in order is shown as dead.
    pub(crate) fn of(status: Status, life: Life) -> Self {
        let plain = Style::new();
        let color = |color: AnsiColor| plain.fg_color(Some(color.into()));
        let (glyph, word, style) = match (status, life) {
            (Status::Shutdown, _) => ('·', "shutdown", plain.dimmed()),
            (Status::Failed, _) => ('✗', "failed", color(AnsiColor::Red)),
            (_, Life::Dead) => ('✗', "dead", color(AnsiColor::Red)),
            (Status::Starting, Life::Alive) => ('◌', "starting", color(AnsiColor::Cyan)),
            (Status::Working, Life::Alive) => ('●', "working", color(AnsiColor::Green)),
            (Status::Idle, Life::Alive) => ('○', "idle", plain),
            (Status::Waiting, Life::Alive) => ('◐', "waiting", color(AnsiColor::Yellow)),
            (Status::Stopping, Life::Alive) => ('◑', "stopping", color(AnsiColor::Yellow)),
        };
        Self { glyph, word, style }
    }
}

impl Palette {
    /// The palette for a choice; `terminal` is whether the output is a terminal. The caller turns
    /// [`ColorChoice::Auto`] into [`ColorChoice::Never`] if `NO_COLOR` is set.
    pub(crate) fn new(choice: ColorChoice, terminal: bool) -> Self {
        let colored = match choice {
            ColorChoice::Auto => terminal,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self { colored }
    }

    /// No colours.
    pub(crate) fn plain() -> Self {
        Self { colored: false }
    }

    /// Secondary text.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    /// Titles and names.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Failures.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint(Style::new().fg_color(Some(AnsiColor::Red.into())), text)
    }

    /// Warnings.
    pub(crate) fn warn(self, text: &str) -> String {
        self.paint(Style::new().fg_color(Some(AnsiColor::Yellow.into())), text)
    }

    /// Text in a member's colour; unchanged for an unknown colour word.
    pub(crate) fn member(self, color: &str, text: &str) -> String {
        match Self::of_member(color) {
            Some(style) => self.paint(style, text),
            None => text.to_owned(),
        }
    }

    /// The style of a member's colour word.
    pub(super) fn of_member(color: &str) -> Option<Style> {
        let known = MEMBER_COLORS.iter().find(|(word, _)| *word == color);
        known.map(|(_, color)| Style::new().fg_color(Some((*color).into())))
    }

    /// Whether the palette has colours.
    pub(super) fn is_colored(self) -> bool {
        self.colored
    }

    /// Text in the colour of a status.
    pub(crate) fn mark(self, mark: Mark, text: &str) -> String {
        self.paint(mark.style, text)
    }

    /// Styles each line separately: a pager or a redrawn prompt may start at any line.
    fn paint(self, style: Style, text: &str) -> String {
        if !self.colored || style.is_plain() {
            return text.to_owned();
        }
        let paint = |line: &str| match line {
            "" => String::new(),
            line => format!("{}{line}{}", style.render(), style.render_reset()),
        };
        text.split('\n').map(paint).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_decides_about_colours() {
        let red = "\x1b[31mno\x1b[0m";
        assert_eq!(Palette::new(ColorChoice::Auto, true).bad("no"), red);
        assert_eq!(Palette::new(ColorChoice::Auto, false).bad("no"), "no");
        assert_eq!(Palette::new(ColorChoice::Always, false).bad("no"), red);
        assert_eq!(Palette::new(ColorChoice::Never, true).bad("no"), "no");
    }

    #[test]
    fn every_line_is_styled_separately() {
        let painted = Palette::new(ColorChoice::Always, true).dim("a\n\nb\n");
        assert_eq!(painted, "\x1b[2ma\x1b[0m\n\n\x1b[2mb\x1b[0m\n");
    }

    #[test]
    fn every_member_colour_has_a_style() {
        for word in crate::wire::roster::COLORS {
            assert!(MEMBER_COLORS.iter().any(|(known, _)| *known == word), "{word}");
        }
    }

    #[test]
    fn a_member_without_a_process_is_shown_as_dead_unless_it_ended() {
        assert_eq!(Mark::of(Status::Working, Life::Dead).word, "dead");
        assert_eq!(Mark::of(Status::Shutdown, Life::Dead).word, "shutdown");
        assert_eq!(Mark::of(Status::Failed, Life::Dead).word, "failed");
    }
}
