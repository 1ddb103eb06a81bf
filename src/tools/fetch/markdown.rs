//! Text in Markdown, written from its beginning to its end: nothing that was written is read again or moved, so that the
//! time grows with the text, and the memory with what is written.

/// The deepest nesting of lists and quotes that is shown.
const MAX_CONTAINERS: usize = 16;
/// The deepest nesting of links and emphasis that is shown.
const MAX_SPANS: usize = 16;
/// The deepest nesting of tables that is told apart.
const MAX_TABLES: usize = 16;
/// Texts of links to the place where they stand, which say nothing.
const ANCHOR_SIGNS: [&str; 5] = ["", "#", "¶", "§", "🔗"];

/// A part of a line with a meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpanKind {
    Strong,
    Emphasis,
    Code,
    /// A link to an address; `None` for a link within the page.
    Link(Option<String>),
}

#[derive(Debug)]
struct Span {
    kind: SpanKind,
    /// The length of the text before it; `None` before its first word.
    begins_at: Option<usize>,
}

/// A block that holds other blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerKind {
    Quote,
    /// A list, with the number of its next item; `None` for a list without numbers.
    List(Option<u32>),
    Item,
    Definition,
}

#[derive(Debug)]
struct Container {
    kind: ContainerKind,
    /// The beginning of its first line, until that is written.
    first: Option<String>,
    /// The beginning of its further lines.
    rest: String,
}

/// A table that is being written.
#[derive(Debug, Default)]
struct Table {
    /// Whether it only places blocks beside each other, so that its cells are blocks.
    is_layout: bool,
    /// Whether its first row, with the line below it, is written.
    has_head: bool,
    /// The cells of the current row that are complete.
    row: Vec<String>,
}

/// Text whose line breaks count.
#[derive(Debug)]
struct Preformatted {
    language: String,
    text: String,
    /// Whether the text has a character that can be seen.
    is_visible: bool,
}

#[derive(Debug)]
pub(super) struct Writer {
    out: String,
    written: usize,
    most: usize,
    /// The number of line breaks before the next word.
    breaks: usize,
    has_space: bool,
    /// The sign of the heading that begins with the next word.
    heading: &'static str,
    containers: Vec<Container>,
    spans: Vec<Span>,
    tables: Vec<Table>,
    /// The text of the current cell.
    cell: Option<String>,
    preformatted: Option<Preformatted>,
}

impl Writer {
    /// Creates a writer of about `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            out: String::new(),
            written: 0,
            most,
            breaks: 0,
            has_space: false,
            heading: "",
            containers: Vec::new(),
            spans: Vec::new(),
            tables: Vec::new(),
            cell: None,
            preformatted: None,
        }
    }

    /// Whether nothing more is written.
    pub(super) fn is_full(&self) -> bool {
        self.written >= self.most
    }

    pub(super) fn is_preformatted(&self) -> bool {
        self.preformatted.is_some()
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        self.end_preformatted();
        while !self.tables.is_empty() {
            self.end_table();
        }
        self.close_open_spans();
        let end = self.out.trim_end().len();
        self.out.truncate(end);
        self.out
    }

    /// Writes text of the page, in which each run of white space is one space.
    pub(super) fn text(&mut self, text: &str) {
        if let Some(block) = &mut self.preformatted {
            self.written += text.len();
            block.text.push_str(text);
            block.is_visible = block.is_visible || !text.trim().is_empty();
            return;
        }
        let is_space = |c: char| c.is_ascii_whitespace() || c == '\u{a0}';
        for (number, word) in text.split(is_space).enumerate() {
            self.has_space |= number > 0;
            if !word.is_empty() && !self.is_full() {
                self.begin();
                self.push_text(word);
            }
        }
    }

    /// Writes a word of Markdown.
    pub(super) fn word(&mut self, word: &str) {
        if self.preformatted.is_none() && !self.is_full() {
            self.begin();
            self.push_text(word);
        }
    }

    /// Separates what was written from what follows, by this number of line breaks.
    pub(super) fn separate(&mut self, breaks: usize) {
        if let Some(block) = &mut self.preformatted {
            if !block.text.is_empty() && !block.text.ends_with('\n') {
                block.text.push('\n');
            }
            return;
        }
        self.close_open_spans();
        self.heading = "";
        if self.cell.is_some() {
            self.has_space = true;
        } else if self.containers.last().is_none_or(|inner| inner.first.is_none()) {
            // In an item without text the block begins on the line of the item's sign.
            self.breaks = self.breaks.max(breaks);
        }
    }

    /// Begins a heading with this sign.
    pub(super) fn heading(&mut self, sign: &'static str) {
        self.leave_cell();
        self.separate(2);
        if !self.is_preformatted() {
            self.heading = sign;
        }
    }

    /// Writes a line between two blocks.
    pub(super) fn rule(&mut self) {
        self.separate(2);
        if self.cell.is_none() {
            self.word("---");
            self.separate(2);
        }
    }

    pub(super) fn begin_container(&mut self, kind: ContainerKind) {
        if self.is_preformatted() {
            return;
        }
        if kind == ContainerKind::Item {
            self.end_items();
        }
        if matches!(kind, ContainerKind::Quote | ContainerKind::List(_)) {
            self.leave_cell();
        }
        self.separate(self.breaks_around(kind));
        if self.containers.len() >= MAX_CONTAINERS || self.cell.is_some() {
            return;
        }
        let (first, rest) = match kind {
            ContainerKind::Quote => ("> ".to_owned(), "> ".to_owned()),
            ContainerKind::List(_) => (String::new(), String::new()),
            ContainerKind::Item => {
                let sign = self.item_sign();
                let rest = " ".repeat(sign.len());
                (sign, rest)
            }
            ContainerKind::Definition => (": ".to_owned(), "  ".to_owned()),
        };
        let first = (!first.is_empty()).then_some(first);
        self.containers.push(Container { kind, first, rest });
    }

    /// Ends the innermost container of this kind, and all within it.
    pub(super) fn end_container(&mut self, kind: ContainerKind) {
        let is_meant = |container: &Container| match (container.kind, kind) {
            (ContainerKind::List(_), ContainerKind::List(_)) => true,
            (own, kind) => own == kind,
        };
        if self.is_preformatted() {
            return;
        }
        if let Some(at) = self.containers.iter().rposition(is_meant) {
            self.close_open_spans();
            self.containers.truncate(at);
        }
        self.separate(self.breaks_around(kind));
    }

    /// Ends the definition of a term before the next one.
    pub(super) fn end_definition(&mut self) {
        if self.containers.last().is_some_and(|it| it.kind == ContainerKind::Definition) {
            self.end_container(ContainerKind::Definition);
        }
    }

    /// Ends the item of the innermost list, and all within it.
    fn end_items(&mut self) {
        let is_list = |container: &Container| matches!(container.kind, ContainerKind::List(_));
        let list = self.containers.iter().rposition(is_list);
        let from = list.map_or(0, |at| at + 1);
        let inside = self.containers.iter().skip(from);
        if let Some(at) = inside.clone().position(|it| it.kind == ContainerKind::Item) {
            self.close_open_spans();
            self.containers.truncate(from + at);
        }
    }

    /// Returns the sign of the next item of the innermost list.
    fn item_sign(&mut self) -> String {
        let numbers =
            self.containers.iter_mut().rev().find_map(|container| match &mut container.kind {
                ContainerKind::List(next) => Some(next),
                ContainerKind::Quote | ContainerKind::Item | ContainerKind::Definition => None,
            });
        match numbers.and_then(Option::as_mut) {
            Some(next) => {
                let sign = format!("{next}. ");
                *next = next.saturating_add(1);
                sign
            }
            None => "- ".into(),
        }
    }

    fn breaks_around(&self, kind: ContainerKind) -> usize {
        let is_inner = self.containers.iter().any(|it| it.kind == ContainerKind::Item);
        match kind {
            ContainerKind::Quote => 2,
            ContainerKind::List(_) if !is_inner => 2,
            ContainerKind::List(_) | ContainerKind::Item | ContainerKind::Definition => 1,
        }
    }

    pub(super) fn begin_span(&mut self, kind: SpanKind) {
        if !self.is_preformatted() && self.spans.len() < MAX_SPANS {
            self.spans.push(Span { kind, begins_at: None });
        }
    }

    /// Ends the innermost span of this kind, and all within it. Of links any is meant.
    pub(super) fn end_span(&mut self, kind: &SpanKind) {
        let is_meant = |span: &Span| match (&span.kind, kind) {
            (SpanKind::Link(_), SpanKind::Link(_)) => true,
            (own, kind) => own == kind,
        };
        let Some(at) = self.spans.iter().rposition(is_meant) else { return };
        for span in self.spans.split_off(at).into_iter().rev() {
            self.close(span);
        }
    }

    fn close_open_spans(&mut self) {
        let is_open = |span: &Span| span.begins_at.is_some();
        let Some(at) = self.spans.iter().position(is_open) else { return };
        for span in self.spans.split_off(at).into_iter().rev() {
            self.close(span);
        }
    }

    fn close(&mut self, Span { kind, begins_at }: Span) {
        let Some(begin) = begins_at else { return };
        if let SpanKind::Link(target) = &kind {
            let sign = usize::from(target.is_some());
            let target_text = self.cell.as_ref().unwrap_or(&self.out);
            let text = target_text.get(begin + sign..).unwrap_or_default();
            if ANCHOR_SIGNS.contains(&text.trim()) {
                self.cell.as_mut().unwrap_or(&mut self.out).truncate(begin);
                return;
            }
        }
        match kind {
            SpanKind::Strong => self.push("**"),
            SpanKind::Emphasis => self.push("*"),
            SpanKind::Code => self.push("`"),
            SpanKind::Link(None) => {}
            SpanKind::Link(Some(url)) if url.contains(['(', ')']) => {
                self.push(&format!("](<{url}>)"));
            }
            SpanKind::Link(Some(url)) => self.push(&format!("]({url})")),
        }
    }

    pub(super) fn begin_preformatted(&mut self, language: String) {
        if !self.is_preformatted() {
            self.leave_cell();
            self.separate(2);
            self.preformatted =
                Some(Preformatted { language, text: String::new(), is_visible: false });
        }
    }

    /// Sets the language of preformatted text that has none and no text yet.
    pub(super) fn set_language(&mut self, language: String) {
        if let Some(block) = self.preformatted.as_mut().filter(|it| !it.is_visible)
            && block.language.is_empty()
        {
            block.language = language;
        }
    }

    pub(super) fn end_preformatted(&mut self) {
        let Some(Preformatted { language, text, is_visible }) = self.preformatted.take() else {
            return;
        };
        let text = text.trim_end();
        let text = text.strip_prefix('\n').unwrap_or(text);
        if !is_visible {
            return;
        }
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
        let fence = "`".repeat(longest.max(2) + 1);
        // It was counted when it was collected.
        self.written = self.written.saturating_sub(text.len());
        self.spans.clear();
        self.begin();
        self.push(&format!("{fence}{language}"));
        for line in text.lines() {
            if self.is_full() {
                break;
            }
            self.new_line(1);
            self.push(line);
        }
        self.new_line(1);
        self.push(&fence);
        self.separate(2);
    }

    pub(super) fn begin_table(&mut self) {
        if self.is_preformatted() {
            return;
        }
        self.leave_cell();
        self.separate(2);
        if self.tables.len() < MAX_TABLES {
            self.tables.push(Table::default());
        }
    }

    pub(super) fn end_table(&mut self) {
        if !self.is_preformatted() {
            self.end_row();
            drop(self.tables.pop());
            self.separate(2);
        }
    }

    pub(super) fn begin_cell(&mut self) {
        if self.is_preformatted() {
            return;
        }
        self.end_cell();
        match self.tables.last() {
            Some(table) if !table.is_layout => {
                self.close_open_spans();
                self.spans.clear();
                self.has_space = false;
                self.cell = Some(String::new());
            }
            Some(_) | None => self.separate(1),
        }
    }

    pub(super) fn end_cell(&mut self) {
        if self.is_preformatted() || self.cell.is_none() {
            return;
        }
        self.close_open_spans();
        self.spans.clear();
        if let (Some(cell), Some(table)) = (self.cell.take(), self.tables.last_mut()) {
            table.row.push(cell);
        }
        self.has_space = false;
    }

    /// Writes the row that ends. One of a single cell is a line of text.
    pub(super) fn end_row(&mut self) {
        if self.is_preformatted() {
            return;
        }
        self.end_cell();
        let Some(table) = self.tables.last_mut() else { return };
        let row = std::mem::take(&mut table.row);
        let has_head = table.has_head;
        table.has_head |= row.len() > 1;
        let is_empty = row.iter().all(String::is_empty);
        if !is_empty {
            self.begin();
            if row.len() > 1 || has_head {
                self.push_written(&format!("| {} |", row.join(" | ")));
            } else {
                self.push_written(&row.concat());
            }
        }
        // The line below the first row makes it a table.
        if row.len() > 1 && !has_head {
            if is_empty {
                self.begin();
                self.push_written(&format!("|{}", "  |".repeat(row.len())));
            }
            self.new_line(1);
            self.push(&format!("|{}", "---|".repeat(row.len())));
        }
        self.separate(1);
    }

    /// Lets the cells of all open tables be blocks, since a block is within one of them.
    fn leave_cell(&mut self) {
        if self.cell.is_none() {
            return;
        }
        self.end_cell();
        let mut cells = Vec::new();
        for table in &mut self.tables {
            table.is_layout = true;
            cells.append(&mut table.row);
        }
        for cell in cells.iter().filter(|cell| !cell.is_empty()) {
            self.separate(1);
            self.begin();
            self.push_written(cell);
        }
        self.separate(1);
    }

    /// Writes what stands before the next word: line breaks with what begins each line, or a space, and the signs of
    /// the spans that begin with it.
    fn begin(&mut self) {
        let has_space = std::mem::take(&mut self.has_space);
        if let Some(cell) = &mut self.cell {
            if has_space && !cell.is_empty() {
                cell.push(' ');
            }
        } else if self.out.is_empty() || self.breaks > 0 {
            let breaks = std::mem::take(&mut self.breaks);
            self.new_line(if self.out.is_empty() { 0 } else { breaks });
            let sign = std::mem::take(&mut self.heading);
            self.push(sign);
        } else if has_space && !self.out.ends_with(' ') {
            self.push(" ");
        }
        for at in 0..self.spans.len() {
            let length = self.cell.as_ref().unwrap_or(&self.out).len();
            let Some(span) = self.spans.get_mut(at).filter(|it| it.begins_at.is_none()) else {
                continue;
            };
            span.begins_at = Some(length);
            let sign = match span.kind {
                SpanKind::Strong => "**",
                SpanKind::Emphasis => "*",
                SpanKind::Code => "`",
                SpanKind::Link(Some(_)) => "[",
                SpanKind::Link(None) => "",
            };
            self.push(sign);
        }
    }

    /// Begins a line after this number of line breaks.
    fn new_line(&mut self, breaks: usize) {
        let end = self.out.trim_end_matches(' ').len();
        self.out.truncate(end);
        for number in 0..breaks {
            self.push("\n");
            if number + 1 < breaks {
                let open = self.containers.iter().filter(|it| it.first.is_none());
                let blank: String = open.map(|it| it.rest.as_str()).collect();
                self.push(blank.trim_end());
            }
        }
        let begin = self.containers.iter_mut();
        let begin: String =
            begin.map(|it| it.first.take().unwrap_or_else(|| it.rest.clone())).collect();
        self.push(&begin);
    }

    fn push_text(&mut self, text: &str) {
        if self.cell.is_some() && text.contains('|') {
            self.push(&text.replace('|', "\\|"));
        } else {
            self.push(text);
        }
    }

    /// Writes text that was counted when it was collected.
    fn push_written(&mut self, text: &str) {
        self.written = self.written.saturating_sub(text.len());
        self.push(text);
    }

    fn push(&mut self, text: &str) {
        self.written += text.len();
        self.cell.as_mut().unwrap_or(&mut self.out).push_str(text);
    }
}
