//! The layout of tables: aligned columns, or a list of their cells if the width is too small for columns.

use crate::ui::style::{BOLD, DIM};
use crate::ui::styled_text::StyledLine;
use anstyle::Style;
use pulldown_cmark::Alignment;

/// The least width to which a column with more text is reduced.
const MIN_COLUMN: usize = 8;

/// A table whose cells have been parsed. The first row is the head.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<StyledLine>>,
}

impl Table {
    /// Returns the rows of the table, at most `width` columns wide. Lines between cells are drawn only if `has_lines`:
    /// a screen reader would spell them out.
    pub(super) fn layout(&self, width: Option<usize>, has_lines: bool) -> Vec<StyledLine> {
        let separator = if has_lines { " │ " } else { "  " };
        match self.column_widths(width, separator.chars().count()) {
            Some(widths) => self.columns(&widths, separator, has_lines),
            None => self.list(width),
        }
    }

    /// Returns the widths of the columns; `None` if they do not fit.
    fn column_widths(&self, width: Option<usize>, separator: usize) -> Option<Vec<usize>> {
        let count = self.rows.iter().map(Vec::len).max().filter(|count| *count > 0)?;
        let cells = |at: usize| self.rows.iter().filter_map(move |row| row.get(at));
        let mut widths: Vec<usize> = (0..count)
            .map(|at| cells(at).map(StyledLine::columns).max().unwrap_or_default())
            .collect();
        let Some(width) = width else { return Some(widths) };
        let least: Vec<usize> = (0..count)
            .map(|at| {
                let word = cells(at).map(StyledLine::widest_word).max().unwrap_or_default();
                word.clamp(1, MIN_COLUMN.max(width / count / 2))
            })
            .collect();
        let room = width.checked_sub(separator * count.saturating_sub(1))?;
        if least.iter().sum::<usize>() > room {
            return None;
        }
        for column in &mut widths {
            *column = (*column).min(room);
        }
        for _ in room..widths.iter().sum() {
            // The widest column that may shrink becomes narrower.
            let columns = widths.iter_mut().zip(&least);
            let (widest, _) =
                columns.filter(|(it, least)| **it > **least).max_by_key(|(it, _)| **it)?;
            *widest -= 1;
        }
        Some(widths)
    }

    fn columns(&self, widths: &[usize], separator: &str, has_lines: bool) -> Vec<StyledLine> {
        let between = StyledLine::new(DIM, separator);
        let rule = || {
            let bars: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            StyledLine::new(DIM, &bars.join("─┼─"))
        };
        let wrap = |(cell, width): (&StyledLine, &usize)| cell.wrap(Some(*width), 0);
        let wrap = |row: &Vec<StyledLine>| row.iter().zip(widths).map(wrap).collect();
        let wrapped: Vec<Vec<Vec<StyledLine>>> = self.rows.iter().map(wrap).collect();
        let height = |cells: &Vec<Vec<StyledLine>>| cells.iter().map(Vec::len).max().unwrap_or(1);
        // Without a line between them, wrapped rows could not be told apart.
        let is_wrapped = wrapped.iter().skip(1).any(|cells| height(cells) > 1);
        let mut lines = Vec::new();
        for (number, cells) in wrapped.iter().enumerate() {
            if number > 0 && has_lines && (number == 1 || is_wrapped) {
                lines.push(rule());
            } else if number > 1 && is_wrapped {
                lines.push(StyledLine::default());
            }
            for at in 0..height(cells) {
                let mut line = StyledLine::default();
                for (column, width) in widths.iter().enumerate() {
                    if column > 0 {
                        line.extend(between.clone());
                    }
                    let cell = cells.get(column).and_then(|rows| rows.get(at));
                    let alignment = self.alignments.get(column).copied();
                    let is_last = column + 1 == widths.len();
                    line.extend(aligned(cell, *width, alignment, is_last));
                }
                lines.push(line.trimmed());
            }
        }
        lines
    }

    /// Returns a row of its own for each cell, after the head of its column.
    fn list(&self, width: Option<usize>) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        let head = self.rows.first();
        for row in self.rows.iter().skip(1) {
            if !lines.is_empty() {
                lines.push(StyledLine::default());
            }
            for (at, cell) in row.iter().enumerate() {
                let mut line = head.and_then(|head| head.get(at)).cloned().unwrap_or_default();
                if !line.is_empty() {
                    line.push(BOLD, ": ");
                }
                line.extend(cell.clone());
                lines.extend(line.wrap(width, 2));
            }
        }
        if self.rows.len() == 1 {
            lines.extend(head.into_iter().flatten().flat_map(|cell| cell.wrap(width, 2)));
        }
        lines
    }
}

/// Returns a row of a cell, filled up to the width; the last one of a line has no blanks at its end.
fn aligned(
    cell: Option<&StyledLine>,
    width: usize,
    alignment: Option<Alignment>,
    is_last: bool,
) -> StyledLine {
    let cell = cell.cloned().unwrap_or_default();
    let fill = width.saturating_sub(cell.columns());
    let left = match alignment {
        Some(Alignment::Right) => fill,
        Some(Alignment::Center) => fill / 2,
        Some(Alignment::Left | Alignment::None) | None => 0,
    };
    let mut line = StyledLine::new(Style::new(), &" ".repeat(left));
    line.extend(cell);
    if !is_last {
        line.push(Style::new(), &" ".repeat(fill - left));
    }
    line
}
