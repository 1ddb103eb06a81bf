//! The rows below the finished text: unfinished text, who works at what, the open question, the input and the status.
//!
//! Pure: the caller gives the time and the size, and draws the rows.

use super::super::messages::NAME_WIDTH;
use super::super::roster::{age, short};
use super::super::sanitize::{columns, fit, one_line, pad};
use super::super::style::{BOLD, DIM, Palette, WARN, of_member, status_mark};
use super::completion::Menu;
use super::input_line::InputLine;
use super::viewport::PaneRows;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use anstyle::Style;
use std::time::{Duration, Instant};

/// The most members whose work is shown; the others are counted.
const WORKING_ROWS: usize = 4;
/// The most rows of a menu.
const MENU_ROWS: usize = 8;
/// The most prompts that are shown while they wait.
const QUEUED_ROWS: usize = 3;
/// The time between two frames of the spinner.
pub(super) const FRAME: Duration = Duration::from_millis(120);

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The work of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkingRow {
    pub(crate) name: String,
    /// The colour word of the member; empty for the lead.
    pub(crate) color: String,
    pub(crate) what: String,
    /// The source of the last line of output.
    pub(crate) output: WorkOutput,
    pub(crate) since: Instant,
    /// The tokens of the agent so far; 0 is not shown.
    pub(crate) tokens: u64,
}

/// The source of the last line of output of a working agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkOutput {
    /// The commands of this session, whose output arrives as progress.
    OfSession,
    /// This line; empty if there is none.
    Line(String),
}

/// A question that owns the input until it is answered or put off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuestionPrompt {
    pub(crate) id: String,
    /// The name and the colour word of the agent that asks.
    pub(crate) name: String,
    pub(crate) color: String,
    /// The completion of "NAME asks to", on one line.
    pub(crate) what: String,
    /// The keys and their meaning.
    pub(crate) choices: Vec<(&'static str, String)>,
    /// Its number and the number of all that wait.
    pub(crate) position: (usize, usize),
}

/// A member in the status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberMark {
    pub(crate) name: String,
    pub(crate) color: String,
    pub(crate) status: Status,
}

/// The last row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatusLine {
    /// The mode, and the model as `provider/name`; `None` before they are known.
    pub(crate) mode: Option<PermissionMode>,
    pub(crate) model: String,
    pub(crate) members: Vec<MemberMark>,
    /// The number of questions that wait for an answer.
    pub(crate) questions: usize,
    /// Tokens and cost of all, in words.
    pub(crate) cost: String,
    /// The used share of the lead's context in percent, if it is known.
    pub(crate) context_percent: Option<u64>,
}

/// The content of the pane, except for the input.
#[derive(Debug, Default)]
pub(super) struct Pane {
    pub(super) palette: Palette,
    /// The prompt before the input, with its blank.
    pub(super) prompt: String,
    /// Rows of text that may still change.
    pub(super) preview: Vec<String>,
    pub(super) working: Vec<WorkingRow>,
    /// The last line of output of the running command, or the call that the model still writes.
    pub(super) output: String,
    /// Prompts that the lead has not taken in yet.
    pub(super) queued: Vec<String>,
    pub(super) question: Option<QuestionPrompt>,
    pub(super) status_line: StatusLine,
    /// A hint that the next key removes.
    pub(super) notice: String,
    /// The text in place of the input while the session ends.
    pub(super) closing: Option<String>,
}

/// Parts of a row, each with its style.
type Parts = Vec<(Style, String)>;

impl Pane {
    /// Whether the pane changes by itself as time passes.
    pub(super) fn is_moving(&self) -> bool {
        !self.working.is_empty() || self.closing.is_some()
    }

    /// Returns the rows for a terminal of this size.
    pub(super) fn rows(
        &self,
        input: &mut InputLine,
        now: Instant,
        width: usize,
        height: usize,
    ) -> PaneRows {
        let width = width.saturating_sub(1).max(8);
        let most = height.saturating_sub(1).max(1);
        let (typed, cursor) = self.input_rows(input, width, (most / 3).max(1));
        let mut below = Vec::new();
        let is_asking = self.question.is_some();
        if let Some(menu) = input.menu().filter(|_| !is_asking && self.closing.is_none()) {
            below.extend(self.menu_rows(menu, width));
        }
        below.push(self.status_row(width));
        let mut above = self.working_rows(now, width);
        above.extend(self.queued_rows(width));
        above.extend(self.question_rows(width));
        // The input and the status are always visible; the least important of the others is cut first.
        below.drain(..below.len().saturating_sub(most.saturating_sub(typed.len()).max(1)));
        let room = most.saturating_sub(typed.len() + below.len());
        let cut = above.len().saturating_sub(room);
        above.drain(..cut);
        let room = (room - above.len()).min(height / 2);
        let preview = self.preview.iter().skip(self.preview.len().saturating_sub(room));
        let mut rows: Vec<String> = preview.map(|row| fit_styled(row, width)).collect();
        rows.extend(above);
        let first = rows.len();
        rows.extend(typed);
        rows.extend(below);
        rows.truncate(most.max(1));
        let row = (first + cursor.0).min(rows.len().saturating_sub(1));
        PaneRows { rows, cursor: (row, cursor.1.min(width)) }
    }

    /// Returns the rows of the input, and the cursor in them.
    fn input_rows(
        &self,
        input: &mut InputLine,
        width: usize,
        most: usize,
    ) -> (Vec<String>, (usize, usize)) {
        if let Some(closing) = &self.closing {
            return (vec![self.palette.warn(&fit(closing, width))], (0, 0));
        }
        let searched = input.searched().map(|text| format!("(search) {text}: "));
        let question = self.question.as_ref().map(|_| "answer> ".to_owned());
        let prompt = searched.or(question).unwrap_or_else(|| self.prompt.clone());
        let prompt = if columns(&prompt) * 2 > width { "> ".to_owned() } else { prompt };
        let indent = columns(&prompt);
        let drawn = input.draw(width.saturating_sub(indent + 1), most);
        let rows = drawn.rows.iter().enumerate().map(|(at, row)| match at {
            0 => format!("{}{row}", self.palette.bold(&prompt)),
            _ => format!("{}{row}", " ".repeat(indent)),
        });
        (rows.collect(), (drawn.cursor.0, indent + drawn.cursor.1))
    }

    fn working_rows(&self, now: Instant, width: usize) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        let shown = self.working.iter().take(WORKING_ROWS);
        for work in shown {
            let elapsed = now.saturating_duration_since(work.since);
            let frame = elapsed.as_millis() / FRAME.as_millis();
            let frame = usize::try_from(frame).unwrap_or_default() % SPINNER.len();
            let spinner = SPINNER.get(frame).copied().unwrap_or(" ");
            let tokens = match work.tokens {
                0 => String::new(),
                tokens => format!(" · {} tokens", short(tokens)),
            };
            let end = format!("  {}{tokens}", age(elapsed));
            let name = one_line(&work.name, NAME_WIDTH);
            let room = width.saturating_sub(columns(&name) + columns(&end) + 4);
            let parts = vec![
                (DIM, format!("{spinner} ")),
                (of_member(&work.color), name),
                (Style::new(), format!("  {}", one_line(&work.what, room))),
                (DIM, end),
            ];
            rows.push(self.row(&parts, width));
            let output = match &work.output {
                WorkOutput::OfSession => &self.output,
                WorkOutput::Line(line) => line,
            };
            if !output.is_empty() {
                let text = format!("  └ {output}");
                rows.push(self.row(&vec![(DIM, text)], width));
            }
        }
        let more = self.working.len().saturating_sub(WORKING_ROWS);
        if more > 0 {
            rows.push(self.row(&vec![(DIM, format!("  … and {more} more at work"))], width));
        }
        rows
    }

    fn queued_rows(&self, width: usize) -> Vec<String> {
        let row = |text: &String| self.row(&vec![(DIM, format!("queued: {text}"))], width);
        self.queued.iter().rev().take(QUEUED_ROWS).rev().map(row).collect()
    }

    fn question_rows(&self, width: usize) -> Vec<String> {
        let Some(question) = self.question.as_ref().filter(|_| self.closing.is_none()) else {
            return Vec::new();
        };
        let (number, all) = question.position;
        let count = if all > 1 { format!("  ({number} of {all})") } else { String::new() };
        let name = one_line(&question.name, NAME_WIDTH);
        let room = width.saturating_sub(columns(&name) + columns(&count) + 12);
        let title = vec![
            (WARN, "? ".to_owned()),
            (of_member(&question.color), name),
            (BOLD, format!(" asks to {}", one_line(&question.what, room))),
            (DIM, count),
        ];
        let mut rows = vec![self.row(&title, width)];
        let mut parts = Parts::new();
        let mut used = 0;
        for (key, meaning) in &question.choices {
            let text = format!(" {meaning}");
            let length = columns(key) + columns(&text);
            if used > 0 && used + 3 + length > width.saturating_sub(2) {
                rows.push(self.row(&parts, width));
                (parts, used) = (Parts::new(), 0);
            }
            let gap = if used == 0 { "  " } else { " · " };
            used += columns(gap) + length;
            parts.push((DIM, gap.to_owned()));
            parts.push((BOLD, (*key).to_owned()));
            parts.push((DIM, text));
        }
        rows.push(self.row(&parts, width));
        rows
    }

    fn menu_rows(&self, menu: &Menu, width: usize) -> Vec<String> {
        let selected = menu.selected.unwrap_or_default();
        let first = (selected + 1).saturating_sub(MENU_ROWS);
        let shown = menu.candidates.iter().enumerate().skip(first).take(MENU_ROWS);
        let longest = menu.candidates.iter().map(|it| columns(&it.word)).max().unwrap_or_default();
        let longest = longest.min(width / 2);
        let mut rows: Vec<String> = shown
            .map(|(at, candidate)| {
                let is_selected = menu.selected == Some(at);
                let mark = if is_selected { "❯ " } else { "  " };
                let style = if is_selected { BOLD } else { Style::new() };
                let word = pad(&one_line(&candidate.word, longest.max(1)), longest);
                let about = format!("  {}", candidate.about);
                self.row(&vec![(style, format!("{mark}{word}")), (DIM, about)], width)
            })
            .collect();
        let more = menu.candidates.len().saturating_sub(first + MENU_ROWS);
        if more > 0 {
            rows.push(self.row(&vec![(DIM, format!("  … {more} more"))], width));
        }
        rows
    }

    fn status_row(&self, width: usize) -> String {
        if !self.notice.is_empty() {
            return self.row(&vec![(WARN, one_line(&self.notice, width))], width);
        }
        let status = &self.status_line;
        let Some(mode) = status.mode else { return String::new() };
        let mode_style = match mode {
            PermissionMode::Bypass => super::super::style::BAD.bold(),
            PermissionMode::Plan | PermissionMode::AcceptEdits => WARN,
            PermissionMode::Default => DIM,
        };
        let mut parts = vec![(mode_style, mode.to_string())];
        if status.questions > 0 {
            let plural = if status.questions == 1 { "" } else { "s" };
            let text = format!("{} question{plural} waiting", status.questions);
            parts.extend([(DIM, " · ".into()), (WARN.bold(), text)]);
        }
        parts.push((DIM, format!(" · {}", one_line(&status.model, 40))));
        for member in &status.members {
            let (mark, _) = status_mark(member.status, false);
            let dot = mark.split(' ').next().unwrap_or_default();
            let name = one_line(&member.name, NAME_WIDTH);
            parts
                .extend([(DIM, " · ".into()), (of_member(&member.color), format!("{dot} {name}"))]);
        }
        if !status.cost.is_empty() {
            parts.push((DIM, format!(" · {}", status.cost)));
        }
        if let Some(percent) = status.context_percent {
            parts.push((DIM, format!(" · context {percent} %")));
        }
        self.row(&parts, width)
    }

    /// Returns a row of at most `width` columns.
    fn row(&self, parts: &Parts, width: usize) -> String {
        let mut left = width;
        let mut row = String::new();
        for (style, text) in parts {
            let text = one_line_keeping_blanks(text);
            let shown = fit(&text, left);
            left -= columns(&shown).min(left);
            row.push_str(&self.palette.paint(*style, &shown));
            if columns(&shown) < columns(&text) {
                break;
            }
        }
        row
    }
}

/// Returns sanitized text on one line; blanks at its ends separate it from its neighbours.
fn one_line_keeping_blanks(text: &str) -> String {
    super::super::sanitize::sanitize(text).replace(['\n', '\t'], " ")
}

/// Returns a styled row without the part that is too wide. A row with styles was made for this width already.
fn fit_styled(row: &str, width: usize) -> String {
    if row.contains('\x1b') { row.to_owned() } else { fit(row, width).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::completion::Vocabulary;
    use super::super::history::History;
    use super::*;
    use proptest::prelude::*;

    fn input(text: &str) -> InputLine {
        let mut input = InputLine::new(History::default(), Vocabulary::default());
        input.set(text);
        input
    }

    fn work(name: &str, seconds: u64, now: Instant) -> WorkingRow {
        let since = now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let (name, color, what) =
            (name.to_owned(), "blue".to_owned(), "bash cargo test".to_owned());
        WorkingRow {
            name,
            color,
            what,
            output: WorkOutput::Line(String::new()),
            since,
            tokens: 5_120,
        }
    }

    fn pane(now: Instant) -> Pane {
        let members = [("alice", Status::Working), ("bob", Status::Idle)];
        let members = members.map(|(name, status)| MemberMark {
            name: name.into(),
            color: "blue".into(),
            status,
        });
        Pane {
            prompt: "team> ".into(),
            working: vec![work("alice", 12, now)],
            status_line: StatusLine {
                mode: Some(PermissionMode::Default),
                model: "rehearsal".into(),
                members: members.into(),
                questions: 1,
                cost: "12.3k tokens".into(),
                context_percent: Some(3),
            },
            ..Pane::default()
        }
    }

    fn question() -> QuestionPrompt {
        QuestionPrompt {
            id: "alice:1".into(),
            name: "alice".into(),
            color: "blue".into(),
            what: "run: cargo test".into(),
            choices: vec![("y", "yes".into()), ("n WHY", "no, and why".into())],
            position: (1, 2),
        }
    }

    #[test]
    fn the_pane_shows_work_input_and_status() {
        let now = Instant::now();
        let rows = pane(now).rows(&mut input("do it"), now, 100, 24);
        let wanted = [
            "⠋ alice  bash cargo test  12s · 5.1k tokens",
            "team> do it",
            "default · 1 question waiting · rehearsal · ● alice · ○ bob · 12.3k tokens · context 3 %",
        ];
        assert_eq!((rows.rows, rows.cursor), (wanted.map(String::from).into(), (1, 11)));
    }

    #[test]
    fn a_question_takes_the_place_of_the_prompt() {
        let now = Instant::now();
        let mut pane = pane(now);
        (pane.working, pane.question) = (Vec::new(), Some(question()));
        let rows = pane.rows(&mut input("n"), now, 60, 24).rows;
        assert_eq!(rows[0], "? alice asks to run: cargo test  (1 of 2)");
        assert_eq!(rows[1], "  y yes · n WHY no, and why");
        assert_eq!(rows[2], "answer> n");
    }

    #[test]
    fn a_notice_and_the_end_replace_status_and_input() {
        let now = Instant::now();
        let mut pane = pane(now);
        pane.notice = "to quit: /quit".into();
        assert_eq!(pane.rows(&mut input(""), now, 60, 24).rows[2], "to quit: /quit");
        pane.closing = Some("Stopping alice".into());
        assert_eq!(pane.rows(&mut input("x"), now, 60, 24).rows[1], "Stopping alice");
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_the_input_is_always_visible(
            width in 10usize..120, height in 3usize..40, typed in "[a-z ]{0,60}",
            preview in proptest::collection::vec("[a-z ]{0,140}", 0..30), workers in 0usize..8,
            asks: bool,
        ) {
            let now = Instant::now();
            let mut pane = pane(now);
            pane.working = (0..workers).map(|_| work("alice", 7, now)).collect();
            (pane.preview, pane.question) = (preview, asks.then(question));
            let drawn = pane.rows(&mut input(&typed), now, width, height);
            prop_assert!(drawn.rows.len() < height, "{} of {height}", drawn.rows.len());
            for row in &drawn.rows {
                prop_assert!(columns(row) < width.max(9), "{row:?}");
            }
            prop_assert!(drawn.rows.iter().any(|row| row.contains('>')), "{:?}", drawn.rows);
        }
    }
}
