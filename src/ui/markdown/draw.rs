//! The drawing of one block of markdown as rows of the terminal.

use super::code::Lexer;
use super::table::Table;
use crate::ui::style::{BOLD, DIM, Palette};
use crate::ui::styled_text::{MIN_WIDTH, StyledLine, over};
use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::ops::Range;

const PLAIN: Style = Style::new();
const CODE: Style = AnsiColor::Cyan.on_default();
const CODE_INDENT: &str = "  ";
/// The width of a rule between paragraphs where the terminal has none.
const RULE_WIDTH: usize = 40;

/// A list or quote around the rows, with the text before its first row and before the others.
#[derive(Debug)]
struct Container {
    first: Option<StyledLine>,
    others: StyledLine,
}

/// A link whose text is being read.
#[derive(Debug)]
struct OpenLink {
    address: String,
    title: String,
    text: String,
}

#[derive(Debug)]
pub(super) struct Drawing {
    palette: Palette,
    width: Option<usize>,
    rows: String,
    containers: Vec<Container>,
    /// The numbers of the next items of the open lists; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// Whether an empty row comes before the next row.
    has_gap: bool,
    /// The lines of the running text before `line`; only a hard break ends one.
    lines: Vec<StyledLine>,
    line: StyledLine,
    styles: Vec<Style>,
    links: Vec<OpenLink>,
    code: Option<(Lexer, String)>,
    table: Option<Table>,
    /// The end of the last cell in the source.
    cell_end: usize,
}

/// The place of an item among the items before it, which are drawn apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number that replaces its own.
    pub(super) number: Option<u64>,
    /// The blanks before its mark.
    pub(super) indent: usize,
}

/// Renders the markdown of one block.
pub(super) fn block(text: &str, place: Place, palette: Palette, width: Option<usize>) -> String {
    let source = without_definitions(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut drawing = Drawing::new(palette, width);
    if place.indent > 0 {
        let others = StyledLine::new(PLAIN, &" ".repeat(place.indent));
        drawing.containers.push(Container { first: None, others });
    }
    for (event, range) in Parser::new_ext(&source, options).into_offset_iter() {
        if is_block(&event) {
            drawing.end_text();
            drawing.has_gap = is_after_blank(&source, range.start);
        }
        match event {
            Event::Start(Tag::List(Some(start))) => {
                let is_first = drawing.lists.is_empty();
                drawing.lists.push(Some(place.number.filter(|_| is_first).unwrap_or(start)));
            }
            Event::Start(tag) => drawing.start(tag),
            Event::End(tag) => drawing.end(tag, &source, range),
            Event::Rule => drawing.rule(),
            Event::Text(text) | Event::InlineHtml(text) => drawing.text(&text),
            Event::Code(code) => drawing.code_span(&code),
            Event::Html(html) => drawing.html(&html),
            // A model means the ends of its lines, as authors of comments and messages do.
            Event::SoftBreak | Event::HardBreak => drawing.end_line(),
            Event::TaskListMarker(is_done) => drawing.text(if is_done { "[x] " } else { "[ ] " }),
            // These need options that are off.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                drawing.text(&text);
            }
        }
    }
    drawing.end_text();
    drawing.rows
}

/// Renders the row above fenced code: the text after the fence, unless it only names a known language.
pub(super) fn code_label(info: &str, palette: Palette, width: Option<usize>) -> String {
    let mut drawing = Drawing::new(palette, width);
    drawing.code_label(info);
    drawing.rows
}

/// Renders a line of fenced code at the top level.
pub(super) fn code_line(
    lexer: &mut Lexer,
    text: &str,
    palette: Palette,
    width: Option<usize>,
) -> String {
    let mut drawing = Drawing::new(palette, width);
    drawing.code_line(lexer, text);
    drawing.rows
}

/// Returns the text in which nothing is the definition of a link: a definition would not be shown.
fn without_definitions(text: &str) -> String {
    let mut is_code = false;
    let mut changed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content =
            line.trim_start_matches(|c: char| " \t>-*+.)".contains(c) || c.is_ascii_digit());
        is_code ^= content.starts_with("```") || content.starts_with("~~~");
        let is_definition = content.starts_with('[') && content.contains("]:");
        if is_definition && !is_code {
            let (before, definition) = line.split_at(line.len() - content.len());
            changed.extend([before, "\\", definition]);
        } else {
            changed.push_str(line);
        }
    }
    changed
}

/// Whether an event begins a block.
fn is_block(event: &Event<'_>) -> bool {
    let Event::Start(tag) = event else { return *event == Event::Rule };
    !matches!(
        tag,
        Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Link { .. }
            | Tag::Image { .. }
            | Tag::TableHead
            | Tag::TableRow
            | Tag::TableCell
    )
}

/// Whether the line before the one at this position has no text.
fn is_after_blank(source: &str, at: usize) -> bool {
    let before = source.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').unwrap_or_default();
    let line = before.get(..line_start).unwrap_or_default().rsplit('\n').next();
    line_start > 0 && line.is_some_and(|line| line.trim_matches(['>', ' ', '\t']).is_empty())
}

impl Drawing {
    fn new(palette: Palette, width: Option<usize>) -> Self {
        Self {
            palette,
            width: width.map(|width| width.max(MIN_WIDTH)),
            rows: String::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            has_gap: false,
            lines: Vec::new(),
            line: StyledLine::default(),
            styles: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            cell_end: 0,
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis => self.styles.push(PLAIN.italic()),
            Tag::Strong => self.styles.push(BOLD),
            Tag::Strikethrough => {
                self.plain_mark("~~");
                self.styles.push(PLAIN.strikethrough());
            }
            Tag::Link { dest_url, title, .. } | Tag::Image { dest_url, title, .. } => {
                let (address, title) = (dest_url.into_string(), title.into_string());
                self.links.push(OpenLink { address, title, text: String::new() });
                self.styles.push(PLAIN.underline());
            }
            Tag::Heading { level, .. } => {
                self.plain_mark(&format!("{} ", "#".repeat(level as usize)));
                self.styles.push(match level {
                    HeadingLevel::H1 => BOLD.underline(),
                    HeadingLevel::H2 => BOLD,
                    HeadingLevel::H3 | HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => {
                        BOLD.italic()
                    }
                });
            }
            Tag::BlockQuote(_) => {
                let bar = StyledLine::new(DIM, if self.palette.is_colored { "│ " } else { "> " });
                self.containers.push(Container { first: None, others: bar });
            }
            Tag::CodeBlock(kind) => {
                let info = match kind {
                    CodeBlockKind::Indented => String::new(),
                    CodeBlockKind::Fenced(info) => info.into_string(),
                };
                self.code_label(&info);
                self.code = Some((Lexer::new(&info), String::new()));
            }
            Tag::List(number) => self.lists.push(number),
            Tag::Item => self.start_item(),
            Tag::Table(alignments) => {
                self.table = Some(Table { alignments, rows: Vec::new() });
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                let is_head = self.table.as_ref().is_some_and(|table| table.rows.len() == 1);
                self.styles.extend(is_head.then_some(BOLD));
            }
            Tag::Paragraph
            | Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn start_item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ if self.palette.is_colored => "• ".into(),
            _ => "- ".into(),
        };
        let first = StyledLine::new(DIM, &mark);
        let others = StyledLine::new(PLAIN, &" ".repeat(first.columns()));
        self.containers.push(Container { first: Some(first), others });
    }

    fn end(&mut self, tag: TagEnd, source: &str, range: Range<usize>) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong => {
                self.styles.pop();
            }
            TagEnd::Strikethrough => {
                self.styles.pop();
                self.plain_mark("~~");
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::Heading(_) => {
                self.end_text();
                self.styles.pop();
            }
            TagEnd::Item => {
                self.end_text();
                // An item without text has its mark.
                if self.containers.last().is_some_and(|item| item.first.is_some()) {
                    self.row(StyledLine::default());
                }
                self.containers.pop();
            }
            TagEnd::List(_) => {
                self.end_text();
                self.lists.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_text();
                self.containers.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::TableCell => {
                if self.table.as_ref().is_some_and(|table| table.rows.len() == 1) {
                    self.styles.pop();
                }
                self.cell_end = range.end;
                let cell = self.take_lines().into_iter().next().unwrap_or_default();
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell.trimmed());
                }
            }
            TagEnd::TableRow => self.end_table_row(source, range.end),
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                for line in table.layout(self.room(), self.palette.is_colored) {
                    self.row(line);
                }
            }
            TagEnd::Paragraph
            | TagEnd::HtmlBlock
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::TableHead
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => self.end_text(),
        }
    }

    /// Adds cells that have no column to the last cell: the parser leaves them out.
    fn end_table_row(&mut self, source: &str, end: usize) {
        let left_out = source.get(self.cell_end..end).unwrap_or_default();
        let left_out = left_out.trim_matches(|c: char| c.is_whitespace() || c == '|');
        let row = self.table.as_mut().and_then(|table| table.rows.last_mut());
        if let Some(last) = row.and_then(|row| row.last_mut()).filter(|_| !left_out.is_empty()) {
            last.push(PLAIN, " ");
            last.push_folded(PLAIN, left_out);
        }
    }

    fn code_span(&mut self, code: &str) {
        let code = if self.palette.is_colored {
            code.to_owned()
        } else {
            let mark = if code.contains('`') { "``" } else { "`" };
            format!("{mark}{code}{mark}")
        };
        for link in &mut self.links {
            link.text.push_str(&code);
        }
        let style = over(self.style(), CODE);
        self.line.push(style, &code);
    }

    /// Adds HTML as text; its lines stay lines.
    fn html(&mut self, html: &str) {
        for line in html.lines() {
            self.text(line);
            self.end_line();
        }
    }

    fn rule(&mut self) {
        let width = self.room().unwrap_or(RULE_WIDTH);
        let rule = if self.palette.is_colored { &"─".repeat(width) } else { "---" };
        self.row(StyledLine::new(DIM, rule));
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(PLAIN, |lower, upper| over(lower, *upper))
    }

    fn text(&mut self, text: &str) {
        if let Some((_, code)) = &mut self.code {
            return code.push_str(text);
        }
        for link in &mut self.links {
            link.text.push_str(text);
        }
        let style = self.style();
        self.line.push_folded(style, text);
    }

    /// Adds a mark in place of a style that a plain palette does not show.
    fn plain_mark(&mut self, mark: &str) {
        if !self.palette.is_colored {
            self.line.push(PLAIN, mark);
        }
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }

    fn end_link(&mut self) {
        self.styles.pop();
        let Some(OpenLink { address, title, text }) = self.links.pop() else { return };
        let is_shown = text == address || address.strip_prefix("mailto:") == Some(&text);
        let mut parts = Vec::new();
        if !is_shown && !address.is_empty() {
            parts.push(address);
        }
        if !title.is_empty() {
            parts.push(format!("\"{title}\""));
        }
        if !parts.is_empty() {
            let blank = if text.is_empty() { "" } else { " " };
            let style = over(self.style(), DIM);
            self.line.push_folded(style, &format!("{blank}({})", parts.join(" ")));
        }
    }

    fn code_label(&mut self, info: &str) {
        if !info.is_empty() && !Lexer::is_name(info) {
            self.indented(&StyledLine::new(DIM, info), 0);
        }
    }

    fn code_line(&mut self, lexer: &mut Lexer, text: &str) {
        let hang = text.chars().take_while(|c| *c == ' ').count();
        self.indented(&lexer.line(text), hang);
    }

    fn indented(&mut self, line: &StyledLine, hang: usize) {
        let room = self.room();
        // A narrow column is for the code alone.
        let indent = if room.is_some_and(|room| room < MIN_WIDTH) { "" } else { CODE_INDENT };
        for row in line.wrap(room.map(|room| room - indent.len()), hang) {
            let mut indented = StyledLine::new(PLAIN, indent);
            indented.extend(row);
            self.row(indented);
        }
    }

    fn end_code(&mut self) {
        let Some((mut lexer, code)) = self.code.take() else { return };
        for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
            self.code_line(&mut lexer, line);
        }
    }

    /// Returns the lines of the running text, which ends.
    fn take_lines(&mut self) -> Vec<StyledLine> {
        if !self.line.is_empty() {
            self.end_line();
        }
        std::mem::take(&mut self.lines)
    }

    /// Ends the running text, and draws it.
    fn end_text(&mut self) {
        for line in self.take_lines() {
            for row in line.wrap(self.room(), 0) {
                self.row(row);
            }
        }
    }

    /// Returns the width that the containers leave for text.
    fn room(&self) -> Option<usize> {
        let used: usize = self.containers.iter().map(|it| it.others.columns()).sum();
        self.width.map(|width| width - used.min(width / 2))
    }

    fn row(&mut self, line: StyledLine) {
        if std::mem::take(&mut self.has_gap) && !self.rows.is_empty() {
            let mut gap = StyledLine::default();
            for container in &self.containers {
                gap.extend(container.others.clone());
            }
            self.push_row(&self.cut(&gap).trimmed());
        }
        let mut prefix = StyledLine::default();
        for container in &mut self.containers {
            let first = container.first.take();
            prefix.extend(first.unwrap_or_else(|| container.others.clone()));
        }
        let mut row = self.cut(&prefix);
        row.extend(line);
        self.push_row(&row.trimmed());
    }

    /// Returns the text before a row without what would take more than half of the width.
    fn cut(&self, prefix: &StyledLine) -> StyledLine {
        self.width.map_or_else(|| prefix.clone(), |width| prefix.cut(width / 2))
    }

    fn push_row(&mut self, row: &StyledLine) {
        self.rows.push_str(&row.paint(self.palette));
        self.rows.push('\n');
    }
}
