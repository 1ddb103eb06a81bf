//! Colours and marks: one palette for all output.
//!
//! The caller determines whether the output is a terminal, and reads the environment.

use crate::wire::roster::{COLORS, Status};
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

/// The set of text styles; the plain palette leaves text unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Palette {
    pub(super) is_colored: bool,
}

pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const BOLD: Style = Style::new().bold();
pub(super) const BAD: Style = color(AnsiColor::Red);
pub(super) const WARN: Style = color(AnsiColor::Yellow);

/// The ANSI numbers of the words of [`COLORS`]. Red is reserved for failures.
const MEMBER_COLORS: [u8; COLORS.len()] = [4, 2, 3, 5, 6, 12, 10, 11, 13, 14];

const fn color(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
}

/// Returns the style of a member's colour word; plain for an unknown one.
pub(super) fn of_member(word: &str) -> Style {
    let known = COLORS.iter().zip(MEMBER_COLORS).find(|(known, _)| **known == word);
    let ansi = known.and_then(|(_, number)| anstyle::Ansi256Color(number).into_ansi());
    ansi.map_or_else(Style::new, color)
}

/// The mark and the word for an agent whose host is not heard.
pub(super) const AWAY: (&str, Style) = ("? away", WARN);

/// Returns the mark and the word of a status, and their style; a member that was found dead is shown as such.
pub(super) fn status_mark(status: Status, was_found_dead: bool) -> (&'static str, Style) {
    if was_found_dead {
        return ("✗ dead", BAD);
    }
    match status {
        Status::Shutdown => ("· shutdown", DIM),
        Status::Failed => ("✗ failed", BAD),
        Status::Starting => ("◌ starting", color(AnsiColor::Cyan)),
        Status::Working => ("● working", color(AnsiColor::Green)),
        Status::Idle => ("○ idle", Style::new()),
        Status::Waiting => ("◐ waiting", WARN),
        Status::Stopping => ("◑ stopping", WARN),
    }
}

impl Palette {
    /// Returns the palette for a choice; `terminal` tells whether the output is a terminal. The caller turns
    /// [`ColorChoice::Auto`] into [`ColorChoice::Never`] if `NO_COLOR` is set.
    pub(crate) fn new(choice: ColorChoice, terminal: bool) -> Self {
        let is_colored = match choice {
            ColorChoice::Auto => terminal,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self { is_colored }
    }

    pub(crate) fn plain() -> Self {
        Self::default()
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(DIM, text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint(BAD, text)
    }

    pub(crate) fn warn(self, text: &str) -> String {
        self.paint(WARN, text)
    }

    /// Returns text in a member's colour; unchanged for an unknown colour word.
    pub(crate) fn member(self, color: &str, text: &str) -> String {
        self.paint(of_member(color), text)
    }

    /// Styles each line separately: a pager or a redrawn prompt may start at any line.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if !self.is_colored || style.is_plain() {
            return text.to_owned();
        }
        let paint = |line: &str| match line {
            "" => String::new(),
            line => format!("{style}{line}{style:#}"),
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
        for (choice, terminal, wanted) in [
            (ColorChoice::Auto, true, red),
            (ColorChoice::Auto, false, "no"),
            (ColorChoice::Always, false, red),
            (ColorChoice::Never, true, "no"),
        ] {
            assert_eq!(Palette::new(choice, terminal).bad("no"), wanted, "{choice:?} {terminal}");
        }
    }

    #[test]
    fn every_line_is_styled_separately() {
        let painted = Palette::new(ColorChoice::Always, true).dim("a\n\nb\n");
        assert_eq!(painted, "\x1b[2ma\x1b[0m\n\n\x1b[2mb\x1b[0m\n");
    }

    #[test]
    fn every_member_colour_has_the_style_of_its_word() {
        for word in COLORS {
            let Some(anstyle::Color::Ansi(color)) = of_member(word).get_fg_color() else {
                panic!("{word} has no style");
            };
            assert_eq!(format!("{color:?}").to_lowercase(), word.replace('_', ""));
        }
    }
}
