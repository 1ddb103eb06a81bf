//! Colours of the live view: the same as everywhere, in the words of the library that draws it.
//!
//! Without colours only the selected row is set off, by swapping the terminal's own two.

use super::super::style::{Mark, Palette};
use ratatui::style::{Color, Modifier, Style};

/// How text is painted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    palette: Palette,
}

impl Paint {
    pub(super) fn of(palette: Palette) -> Self {
        Self { palette }
    }

    pub(super) fn dim(self) -> Style {
        self.colored(Style::new().add_modifier(Modifier::DIM))
    }

    pub(super) fn bold(self) -> Style {
        self.colored(Style::new().add_modifier(Modifier::BOLD))
    }

    pub(super) fn bad(self) -> Style {
        self.colored(Style::new().fg(Color::Red))
    }

    pub(super) fn warn(self) -> Style {
        self.colored(Style::new().fg(Color::Yellow))
    }

    /// The selected row, whether or not there are colours.
    pub(super) fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn mark(self, mark: Mark) -> Style {
        self.in_words_of(mark.style)
    }

    pub(super) fn member(self, color: &str) -> Style {
        Palette::of_member(color).map_or_else(Style::new, |style| self.in_words_of(style))
    }

    fn colored(self, style: Style) -> Style {
        if self.palette.is_colored() { style } else { Style::new() }
    }

    fn in_words_of(self, style: anstyle::Style) -> Style {
        let mut made = Style::new();
        if let Some(anstyle::Color::Ansi(color)) = style.get_fg_color() {
            made = made.fg(Color::Indexed(anstyle::Ansi256Color::from_ansi(color).index()));
        }
        if style.get_effects().contains(anstyle::Effects::DIMMED) {
            made = made.add_modifier(Modifier::DIM);
        }
        self.colored(made)
    }
}
