//! The colours of the live view: the palette as styles of ratatui.
//!
//! Without colours only the selected row is highlighted, in reverse video.

use super::super::style::{Mark, Palette};
use ratatui::style::{Color, Modifier, Style};

/// The styles of a palette.
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

    /// The selected row, with and without colours.
    pub(super) fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn mark(self, mark: Mark) -> Style {
        self.converted(mark.style)
    }

    pub(super) fn member(self, color: &str) -> Style {
        Palette::of_member(color).map_or_else(Style::new, |style| self.converted(style))
    }

    fn colored(self, style: Style) -> Style {
        if self.palette.is_colored() { style } else { Style::new() }
    }

    fn converted(self, style: anstyle::Style) -> Style {
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
