//! The styles of the frame.

use super::super::view::View;
use ratatui::style::{Color, Modifier, Style};

/// The style of the selected row; it needs no colours.
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The style of a match of the search without colours.
const MATCH: Style = Style::new().add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED));

impl View {
    /// Converts a style of the palette into a style of ratatui; plain without colours.
    pub(super) fn style(&self, style: anstyle::Style) -> Style {
        let mut made = Style::new();
        if !self.palette.is_colored {
            return made;
        }
        if let Some(anstyle::Color::Ansi(color)) = style.get_fg_color() {
            made = made.fg(Color::Indexed(anstyle::Ansi256Color::from_ansi(color).index()));
        }
        for (effect, modifier) in
            [(anstyle::Effects::DIMMED, Modifier::DIM), (anstyle::Effects::BOLD, Modifier::BOLD)]
        {
            if style.get_effects().contains(effect) {
                made = made.add_modifier(modifier);
            }
        }
        made
    }

    /// Returns the style of a match of the search.
    pub(super) fn match_style(&self) -> Style {
        if self.palette.is_colored {
            MATCH.fg(Color::Black).bg(Color::Yellow).remove_modifier(Modifier::DIM)
        } else {
            MATCH
        }
    }
}
